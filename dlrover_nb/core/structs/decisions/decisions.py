"""Proposals, actions against stragglers, decisions on them, and outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from dlrover_nb.core.basics.redaction import BareReason
from dlrover_nb.core.structs.decisions.actions import ActionChoice
from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import ResourcePlan

ALIKE = 0.02  # of a speed: what hosts may differ by and still be the same to a reader
FIRST_VERSION = "d0"  # of a job whose plan, mode and pins no decision has changed


class ProposalKind(StrEnum):
    """Whether a plan is proposed to learn from it, because it is better, or to keep a node alive."""

    EXPLORE = "explore"
    IMPROVE = "improve"
    PROTECT = "protect"  # more memory, before or after a node runs out of memory

    @property
    def words(self) -> str:
        """What people read; files and the API have the value itself."""
        return {"explore": "experiment", "improve": "improvement", "protect": "protection"}[self.value]


class ProposalStatus(StrEnum):
    """Life of a proposal; the transitions stand in `core.controller.plans.proposal_states`."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    OVERRIDDEN = "overridden"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    APPLYING = "applying"
    APPLIED = "applied"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The nearest change of one quantity at which another plan would be recommended.

    Parameters
    ----------
    quantity
        The quantity that would have to change: ``throughput of the proposed plan``.
    now, at
        Its current value and the break-even value, in `unit`.
    plan
        The plan recommended beyond the break-even.
    words
        The result as one sentence.
    """

    quantity: str
    now: float
    at: float
    unit: str
    plan: ResourcePlan
    words: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """That a user rejected a plan or undid it, and the evidence at that moment.

    Parameters
    ----------
    by, at_s, did
        Who did it, when, and what: ``rejected`` or ``undid``.
    samples_per_s
        Throughput predicted of the plan on a host without other load.
    n_plan
        How many plans were measured.
    """

    by: str
    at_s: float
    did: str
    samples_per_s: float
    n_plan: int


@dataclass(frozen=True, slots=True)
class Returned:
    """Why a plan is proposed again that a user refused: the evidence now, as in `Refusal`."""

    refusal: Refusal
    samples_per_s: float
    n_plan: int

    @property
    def words(self) -> str:
        """What has changed since, as a sentence."""
        was, n = self.refusal, self.n_plan - self.refusal.n_plan
        longer = "the same plans were measured for longer"
        measured = f"{n} more plan{'s' * (n != 1)} ran" if n > 0 else longer
        return (
            f"{was.by} {was.did} this plan before, when we predicted {was.samples_per_s:,.0f} samples/s; "
            f"since then {measured}, and we predict {self.samples_per_s:,.0f}."
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan proposed to the user; `id` (``p1``, ``p2``, …) is unique in its job."""

    id: str
    job: str
    kind: ProposalKind
    candidate: Candidate
    baseline: Candidate
    why: str
    created_at_s: float
    status: ProposalStatus = ProposalStatus.PENDING
    closed_at_s: float | None = None
    note: str = ""
    flip: BreakEven | None = None  # None: no plausible change would alter the recommendation
    returned: Returned | None = None  # None: it was not refused before


class Verdict(StrEnum):
    """Kind of a decision."""

    ACCEPT = "accept"
    OVERRIDE = "override"
    REJECT = "reject"
    SCALE = "scale"
    MODE = "mode"
    PIN = "pin"
    MITIGATE = "mitigate"
    BUDGET = "budget"

    @property
    def sets_plan(self) -> bool:
        """Whether it may set another plan; an accepted or ordered action against stragglers sets none.

        A new verdict has to say so here: one that sets a plan must be checked and undone as such.
        """
        match self:
            case Verdict.ACCEPT | Verdict.OVERRIDE | Verdict.SCALE:
                return True
            case Verdict.REJECT | Verdict.MODE | Verdict.PIN | Verdict.BUDGET | Verdict.MITIGATE:
                return False
            case _ as never:
                assert_never(never)


@dataclass(frozen=True, slots=True)
class Decision(BareReason):
    """One decision by a user or by auto mode; magics, buttons and the command line make the same record.

    `proposal` is the id that the user saw, of a proposal or of a mitigation; `plan` is given for OVERRIDE and
    SCALE, `mode` for MODE, `pins` (all that hold from now on) for PIN, `action` for MITIGATE, `budget_total`
    for BUDGET (None: no limit).
    `id` is filled in by the controller (``d1``, ``d2``, …). `undoes` names the decision that this one
    reverts; the controller refuses it once a later one has changed the same thing. `seen` is the version of
    the plan that the user saw (`JobSnapshot.version`); empty: whichever it is now. A credential in `why`
    becomes a placeholder.
    """

    verdict: Verdict
    by: str
    at_s: float
    proposal: str | None = None
    plan: ResourcePlan | None = None
    mode: Mode | None = None
    why: str = ""
    id: str = ""
    pins: Pins | None = None
    undoes: str = ""
    seen: str = ""
    action: ActionChoice | None = None
    budget_total: float | None = None

    @property
    def words(self) -> str:
        """The decision: ``accept p2``, ``scale 2w x 0.5 + 1p x 0.25``, ``undo of d3: mode manual``."""
        plan, pins = self.plan and self.plan.short, None if self.pins is None else str(self.pins)
        action = self.action and self.action.words
        parts = (self.verdict, self.proposal, plan, self.mode, pins, action, self._budget_words)
        text = " ".join(str(word) for word in parts if word)
        return f"undo of {self.undoes}: {text}" if self.undoes else text

    @property
    def _budget_words(self) -> str:
        if self.verdict is not Verdict.BUDGET:
            return ""
        return "off" if self.budget_total is None else f"{self.budget_total:,.6g}"


def version_of(undo: Decision | None) -> str:
    """Return the version of plan, mode and pins, by the decision that would undo the latest change."""
    return FIRST_VERSION if undo is None else undo.undoes


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an applied plan: predicted against measured throughput.

    It covers the steady windows up to the next change, so that an outcome becomes surer as the plan runs on.

    The prediction is the one that its decider saw: of an accepted proposal as it was proposed, of any other
    plan as a what-if answered at the decision. It is never changed. What the host's other load took came and
    went whatever the plan was, so the measured speed is put on the host as it was predicted for
    (`comparable_samples_per_s`). Rejected: to put the prediction on the host as it was later. It is the same
    error, but a prediction that differs from the one a person remembers looks as if it graded itself.

    Parameters
    ----------
    predicted
        None: nothing could be predicted when it was decided.
    measured_samples_per_s
        Mean over its windows, as measured.
    n_sample
        Steady windows behind the measurement.
    host_share
        Part of that time which other load on the host took.
    """

    decision: str
    plan: ResourcePlan
    predicted: Prediction | None
    measured_samples_per_s: float
    before_samples_per_s: float | None
    n_sample: int
    applied_at_s: float
    pause_s: float
    host_share: float = 0.0

    @property
    def plan_samples_per_s(self) -> float:
        """Measured throughput of the plan on a host without other load."""
        return self.measured_samples_per_s / (1 - self.host_share)

    @property
    def comparable_samples_per_s(self) -> float:
        """Measured throughput, had the host's other load been as it was when the plan was predicted."""
        return self.measured_samples_per_s * (1.0 if self.predicted is None else self._over_host)

    @property
    def has_host_changed(self) -> bool:
        """Whether the host's other load was so different that the measurement itself is not comparable."""
        return self.predicted is not None and abs(self._over_host - 1) >= ALIKE

    @property
    def _over_host(self) -> float:
        """What the host gave when the plan was predicted, over what it gave while it was measured."""
        then = 1.0 if self.predicted is None else self.predicted.host
        return then / (1 - self.host_share)

    @property
    def error(self) -> float | None:
        """Relative error of the prediction, without what the host changed."""
        p = self.predicted
        return None if p is None else p.samples_per_s / self.comparable_samples_per_s - 1

    @property
    def inside_band(self) -> bool | None:
        """Whether the measurement lies in the predicted band, without what the host changed."""
        p = self.predicted
        return None if p is None else p.low <= self.comparable_samples_per_s <= p.high


@dataclass(frozen=True, slots=True)
class Mitigation:
    """One action against stragglers; `id` (``m1``, ``m2``, …) is unique in its job.

    It has the life of a proposal (`core.controller.plans.proposal_states`). One that a user ordered without a
    proposal begins as accepted.

    Parameters
    ----------
    id, job
        Its names.
    action
        What to do.
    why
        The numbers that say so, as a sentence.
    cost
        What it costs the job, in words.
    created_at_s
        When it was proposed or ordered.
    gain
        Expected share by which the job trains faster; None: unknown.
    status, closed_at_s, note
        As of a proposal.
    decision
        Id of the decision that ordered it; empty: none.
    """

    id: str
    job: str
    action: ActionChoice
    why: str
    cost: str
    created_at_s: float
    gain: float | None = None
    status: ProposalStatus = ProposalStatus.PENDING
    closed_at_s: float | None = None
    note: str = ""
    decision: str = ""

    @property
    def words(self) -> str:
        """The action in a sentence."""
        return self.action.words

    @property
    def is_open(self) -> bool:
        """Whether it waits for a decision."""
        return self.status is ProposalStatus.PENDING

    @property
    def is_under_way(self) -> bool:
        """Whether it was ordered and has not ended."""
        return self.status in {ProposalStatus.ACCEPTED, ProposalStatus.APPLYING}
