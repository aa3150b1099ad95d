"""What the audit says of a command beside who asked: the job, its plans, the prediction for the new one.

A command about an action against stragglers changes no plan, and has the words of that action instead.

Drawn from the snapshot that the command was asked on. A job whose master does not answer has none of it, and
can be stopped all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core import pricing
from dlrover_nb.core.structs.commands import AuditRow

if TYPE_CHECKING:
    from dlrover_nb.core.structs.commands import Asker, Command, Stage
    from dlrover_nb.core.structs.decisions import Decision, Prediction
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.snapshot import JobSnapshot


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """What is known of a command's job when it is asked."""

    owner: str = ""
    namespace: str = ""
    run: str = ""
    before: ResourcePlan | None = None
    after: ResourcePlan | None = None
    predicted: Prediction | None = None
    cost_per_hour: float | None = None
    version: str = ""  # of plan, mode and pins
    cost_before_per_hour: float | None = None
    currency: str = ""
    cluster: str = ""  # key of the cluster where the front end has keys
    mitigation: str = ""  # the action against stragglers in words; empty: it is about none
    refusal: str = ""  # why the job's master would refuse it now; empty: nothing says that it would


def facts_of(
    command: Command,
    snapshot: JobSnapshot | None,
    *,
    namespace: str = "",
    predicted: Prediction | None = None,
    refusal: str = "",
) -> CommandFacts:
    """Return the facts of a command.

    Parameters
    ----------
    snapshot
        Of its job; None: its master does not answer.
    predicted
        For a plan of the user's own, where it was asked for; that of a proposal is in the snapshot.
    refusal
        Why the master would refuse that plan; empty: it would not, or the command has none.
    """
    if snapshot is None:
        return CommandFacts(namespace=namespace)
    decision, after, prices = command.decision, None, snapshot.spec.prices
    if decision is not None:
        proposal = next((p for p in snapshot.proposals if p.id == decision.proposal), None)
        after = decision.plan
        if after is None and proposal is not None and decision.verdict == "accept":
            after, predicted = proposal.candidate.plan, proposal.candidate.prediction
    return CommandFacts(
        owner=snapshot.spec.owner,
        namespace=namespace,
        run=f"{snapshot.spec.name}@{snapshot.started_at_s:.3f}",
        before=snapshot.target,
        after=after,
        predicted=predicted,
        cost_per_hour=None if after is None else pricing.cost_per_hour(after, prices),
        version=snapshot.version,
        cost_before_per_hour=pricing.cost_per_hour(snapshot.target, prices),
        currency=prices.currency,
        mitigation=_action_words(decision, snapshot),
        refusal=refusal or _not_open(decision, snapshot),
    )


def _not_open(decision: Decision | None, snapshot: JobSnapshot) -> str:
    """Return why a decision cannot answer the id that it names; empty: that is open, or it names none."""
    if decision is None or not decision.proposal:
        return ""
    ids = [each.id for each in (snapshot.open_proposal, snapshot.open_mitigation) if each is not None]
    if decision.proposal in ids:
        return ""
    what = f"open are {' and '.join(ids)}" if ids else "none is open"
    return (
        f"{decision.proposal} of job {snapshot.spec.name} must be open for an answer, but {what}; "
        "look at the job's plans again"
    )


def _action_words(decision: Decision | None, snapshot: JobSnapshot) -> str:
    """Return the action that a decision orders, or answers by its id."""
    if decision is None:
        return ""
    if decision.action is not None:
        return decision.action.words
    return next((each.words for each in snapshot.mitigations if each.id == decision.proposal), "")


def facts_of_submit(spec: JobSpec, *, namespace: str) -> CommandFacts:
    """Return the facts of a submit: the plan of the job, and what it costs."""
    return CommandFacts(
        owner=spec.owner,
        namespace=namespace,
        after=spec.plan,
        cost_per_hour=pricing.cost_per_hour(spec.plan, spec.prices),
    )


def audit_row(command: Command, asker: Asker, facts: CommandFacts, stage: Stage, at_s: float) -> AuditRow:
    """Return the first row of a command; `with_answer` makes those that follow."""
    predicted, after = facts.predicted, facts.after or facts.before
    return AuditRow(
        at_s,
        asker.person.name,
        asker.entry,
        command.action,
        command.job,
        stage,
        namespace=facts.namespace,
        run=facts.run,
        subject=command.subject,
        why=command.why,
        plan_before=str(facts.before or ""),
        plan_after=str(after or ""),
        predicted_samples_per_s=predicted.samples_per_s if predicted else None,
        low=predicted.low if predicted else None,
        high=predicted.high if predicted else None,
        cost_per_hour=facts.cost_per_hour,
        key=command.key,
        cost_before_per_hour=facts.cost_before_per_hour,
        currency=facts.currency,
        mitigation=facts.mitigation,
    )


def with_answer(row: AuditRow, stage: Stage, answer: str, at_s: float) -> AuditRow:
    """Return the row that says what became of a command."""
    return replace(row, stage=stage, answer=answer, at_s=at_s)
