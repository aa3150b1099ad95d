"""What the audit says of a command beside who asked: the job, its plans, the prediction for the new one.

A command about an action against stragglers changes no plan, and has the words of that action instead.

Drawn from the snapshot that the command was asked on. A job whose master does not answer has none of it, and
can be stopped all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core import pricing
from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.decisions.actions import named
from dlrover_nb.core.structs.decisions.commands import Action, AuditRow
from dlrover_nb.core.structs.decisions.setting_checks import Settings, check_setting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.decisions.commands import Asker, Command, Stage
    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


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
        run=snapshot.run,
        before=snapshot.target,
        after=after,
        predicted=predicted,
        cost_per_hour=None if after is None else pricing.cost_per_hour(after, prices),
        version=snapshot.version,
        cost_before_per_hour=pricing.cost_per_hour(snapshot.target, prices),
        currency=prices.currency,
        mitigation=_action_words(decision, snapshot),
        refusal=refusal or refusal_of(command, snapshot),
    )


def refusal_of(command: Command, snapshot: JobSnapshot) -> str:
    """Return why a job's master would refuse a command, as far as its snapshot says; empty: it says nothing.

    A plan is weighed by the master, which alone knows how it is reached. Stop and delete are never refused.
    """
    name = snapshot.spec.name
    if snapshot.phase.is_final and command.action not in {Action.STOP, Action.DELETE}:
        return f"job {name} must be running for this, but it has {snapshot.phase}"
    if command.decision is not None:
        return _not_decidable(command.decision, snapshot)
    if command.shard is not None:
        return _not_in_quarantine(command.shard.shard, snapshot)
    if command.batches is not None:
        return _not_there((node for node, _ in command.batches.sizes), snapshot)
    return ""


def _not_decidable(decision: Decision, snapshot: JobSnapshot) -> str:
    if decision.undoes:
        return _not_the_latest(decision, snapshot)
    if decision.action is not None:
        return _not_there(named(decision.action.action), snapshot)
    return _not_open(decision, snapshot) or _not_settable(decision, snapshot)


def _not_settable(decision: Decision, snapshot: JobSnapshot) -> str:
    """Return why mode, pins or budget cannot become those of a decision."""
    spec, budget = snapshot.spec, snapshot.budget
    limit, spent = (None, 0.0) if budget is None else (budget.limit, budget.spent)
    now = Settings(
        job=spec.name,
        mode=snapshot.mode,
        pins=snapshot.pins,
        target=snapshot.target,
        bounds=spec.bounds,
        prices=spec.prices,
        budget_total=limit,
        spent=spent,
    )

    def room(plan: ResourcePlan) -> None:
        from dlrover_nb.core.planner.availability.feasibility import check_room  # noqa: PLC0415 - for pins alone

        check_room(plan, snapshot.capacity, spec.bounds)

    try:
        check_setting(decision, now, room)
    except DlroverError as error:
        return str(error)
    return ""


def _not_the_latest(decision: Decision, snapshot: JobSnapshot) -> str:
    """Return why a decision cannot be undone."""
    latest = snapshot.undo.undoes if snapshot.undo is not None else ""
    if decision.undoes == latest:
        return ""
    what = f"that is {latest}" if latest else "it has none"
    return (
        f"only the latest change of job {snapshot.spec.name} can be undone, not {decision.undoes}: {what}; "
        "look at its decisions again"
    )


def _not_in_quarantine(shard: int, snapshot: JobSnapshot) -> str:
    """Return why nothing can be decided about a shard."""
    waiting = [each.shard for each in snapshot.quarantined]
    if shard in waiting:
        return ""
    what = f"there are {and_list(waiting)}" if waiting else "none is"
    return (
        f"shard {shard} of job {snapshot.spec.name} must be in quarantine for a decision, but {what}; "
        "look at its shards again"
    )


def _not_there(nodes: Iterable[str], snapshot: JobSnapshot) -> str:
    """Return why something cannot be done to nodes; empty: all are there."""
    names = {node.id for node in snapshot.nodes}
    if not (missing := sorted(set(nodes) - names)):
        return ""
    return (
        f"{and_list(missing)} must be among the nodes of job {snapshot.spec.name}, got "
        f"{', '.join(sorted(names)) or 'none'}; name one of these"
    )


def _not_open(decision: Decision, snapshot: JobSnapshot) -> str:
    """Return why a decision cannot answer the id that it names; empty: that is open, or it names none."""
    if not decision.proposal:
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
