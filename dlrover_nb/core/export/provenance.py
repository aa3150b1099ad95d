"""Provenance of an exported plan, as annotations: some for people, one for `import`.

People read who decided what, when, why and on which prediction. A program reads ``dlrover-nb/context``: the
same with the job itself, as JSON that decodes to the records. Kubernetes allows 256 KiB for all annotations
of a resource, so free texts are cut and a fit that is too large is left out; a job that does not fit is
refused. Unless the user asks for them, no document holds a secret: `structs.secrets` says what has a
placeholder, and an import reports it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from sys import float_info
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.basics.redaction import Redactor
from dlrover_nb.core.codec import to_json, to_short_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.candidates import Prediction  # noqa: TC001 - the same
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobSpec  # noqa: TC001 - the record below is decoded by its annotations
from dlrover_nb.core.structs.job.secrets import secret_values, without_secrets
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import ResourcePlan  # noqa: TC001 - the same
from dlrover_nb.core.structs.views.fit import FitReport  # noqa: TC001 - the same

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

PREFIX = "dlrover-nb/"  # of annotation and label keys
CONTEXT = f"{PREFIX}context"
MAX_NOTE = 1000  # characters of a free text
MAX_FIT = 16 << 10  # bytes of an included fit
MAX_JOB = 96 << 10  # bytes of a job: one variable of a process holds 128 KiB
MAX_TOTAL = 256 << 10  # bytes of all annotations of one resource, by Kubernetes


@dataclass(frozen=True, slots=True)
class Provenance:
    """Provenance of a plan; None or empty where unknown.

    Parameters
    ----------
    decision
        The one that set it.
    prediction
        Its prediction.
    proposal
        The id under which it was proposed.
    before
        The plan that this one replaces: the job's, or where it has this one already, the one before.
    fit
        The model behind the prediction.
    simulated
        Whether all this comes from a simulated cluster.
    """

    decision: Decision | None = None
    prediction: Prediction | None = None
    proposal: str = ""
    before: ResourcePlan | None = None
    fit: FitReport | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What an export passes to an import: the job as it was submitted, and the plan with its provenance.

    `left_out` names what was not written because it is secret.
    """

    kind: str
    version: str
    job: JobSpec
    plan: ResourcePlan
    provenance: Provenance = field(default_factory=Provenance)
    auto_scale: bool = False
    left_out: tuple[str, ...] = ()


def provenance_of(snapshot: JobSnapshot, plan: ResourcePlan) -> Provenance:
    """Find the latest decision for `plan` in a job, the proposal and prediction that were made for it."""
    proposals = {p.id: p for p in snapshot.proposals}
    predictions = {p.candidate.plan: p.candidate.prediction for p in snapshot.proposals}
    predictions |= {m.plan: m.predicted for m in snapshot.markers if m.predicted is not None}

    def decided(decision: Decision) -> ResourcePlan | None:
        if decision.verdict is Verdict.ACCEPT and decision.proposal in proposals:
            return proposals[decision.proposal].candidate.plan
        return decision.plan

    proposal = next((p.id for p in reversed(snapshot.proposals) if p.candidate.plan == plan), "")
    decision = next((d for d in reversed(snapshot.decisions) if decided(d) == plan), None)
    prediction = predictions.get(plan)
    fit = snapshot.fit if prediction is not None else None
    return Provenance(
        decision, prediction, proposal, _before(snapshot, plan), fit, simulated=snapshot.simulated
    )


def _before(snapshot: JobSnapshot, plan: ResourcePlan) -> ResourcePlan | None:
    if snapshot.target != plan:
        return snapshot.target
    return next((marker.plan for marker in reversed(snapshot.markers) if marker.plan != plan), None)


def context_of(
    kind: str,
    job: JobSpec,
    plan: ResourcePlan,
    provenance: Provenance,
    *,
    auto_scale: bool,
    with_secrets: bool = False,
) -> Context:
    """Return the context of an export, in the size that annotations allow, without secrets unless asked for.

    Raises
    ------
    InvalidValueError
        When the job's description is too large.
    """
    if job.sync is Sync.ALLREDUCE:
        job = replace(job, foreign=None)  # the programs of its workers are ours, and a submit adds them
    bare, left_out = (job, ()) if with_secrets else without_secrets(job)
    if (n_byte := len(to_json(bare))) > MAX_JOB:
        raise InvalidValueError(
            f"job {job.name} must be described in {MAX_JOB >> 10} KiB to be exported, got {n_byte >> 10} KiB"
            "; name fewer columns in its data"
        )
    redactor = Redactor(secret_values(job))
    decision = provenance.decision
    if decision is not None:
        text = redactor(decision.why[: 8 * MAX_NOTE])  # far enough that no secret is cut in two at the end
        decision = replace(decision, why=text[:MAX_NOTE])
    provenance = replace(provenance, decision=decision, fit=_storable(provenance.fit))
    return Context(kind, version(), bare, plan, provenance, auto_scale, left_out)


def notes_of(context: Context) -> dict[str, str]:
    """Return the annotations of one resource; empty ones are left out."""
    decision, provenance = context.provenance.decision, context.provenance
    notes = {
        "kind": context.kind,
        "version": context.version,
        "owner": context.job.owner,
        "plan": str(context.plan),
    }
    if provenance.simulated:
        notes["simulated"] = "yes: measured and predicted on no real node"
    if provenance.before is not None:
        notes["plan-before"] = str(provenance.before)
    if decision is not None:
        notes |= {
            "decision": f"{decision.id} {decision.verdict}".strip(),
            "decided-by": decision.by,
            "decided-at": datetime.fromtimestamp(decision.at_s, UTC).isoformat(timespec="seconds"),
            "why": decision.why,
        }
    notes["proposal"] = provenance.proposal or (decision.proposal or "" if decision else "")
    notes |= _predicted(provenance.prediction, provenance.fit)
    notes["left-out"] = "; ".join(context.left_out)
    return {
        **{f"{PREFIX}{key}": text[:MAX_NOTE] for key, text in notes.items() if text},
        CONTEXT: to_short_json(context).decode(),
    }


def _predicted(prediction: Prediction | None, fit: FitReport | None) -> dict[str, str]:
    if prediction is None:
        return {}
    band = f"{prediction.samples_per_s:.0f} ({prediction.low:.0f} to {prediction.high:.0f}, 90 % band)"
    notes = {"predicted-samples-per-s": f"{band}, extrapolated" if prediction.extrapolates else band}
    if fit is not None:
        forms = ", ".join(f"{form.name} {percent(form.weight)}" for form in fit.forms)
        notes["predicted-by"] = (
            f"fit of {fit.n_sample} windows of {fit.n_plan} plans, error {percent(fit.mape, 1)}"
            + f": {forms}" * bool(forms)
        )
    return notes


@cache
def version() -> str:
    """Return the version of this package as it is installed."""
    return metadata.version("dlrover-nb")


def _storable(fit: FitReport | None) -> FitReport | None:
    """Return a fit that JSON can hold: an error without bound becomes the largest number."""
    if fit is None:
        return None
    terms = tuple(
        term if math.isfinite(term.std_error) else replace(term, std_error=float_info.max)
        for term in fit.coefficients
    )
    fit = replace(fit, coefficients=terms)
    return fit if len(to_json(fit)) <= MAX_FIT else None
