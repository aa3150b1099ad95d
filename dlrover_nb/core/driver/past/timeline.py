"""What happened to a job, as a reader of its past wants to find it: phases, proposals, decisions, losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Proposal
from dlrover_nb.core.structs.views.events import (
    Event,
    Instruction,
    JobSubmitted,
    NodeOutOfMemory,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    Remember,
    RoomChanged,
)
from dlrover_nb.core.structs.views.moment import Happening, HappeningKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.driver.past.past_walk import Facts


def happenings(
    event: Event, orders: tuple[Instruction, ...], before: Facts, after: Facts
) -> Iterator[Happening]:
    """Yield what an event, and what followed from it, means to a reader."""
    if (change := _said(event) or _lost(event, before, after)) is not None:
        yield Happening(event.at_s, *change)
    for order in orders:
        if isinstance(order, Remember):
            yield from _remembered(order)


def _said(event: Event) -> tuple[HappeningKind, str] | None:
    match event:
        case JobSubmitted(spec=spec):
            return HappeningKind.PHASE, f"submitted by {spec.owner or 'someone'}"
        case PhaseChanged(phase=phase, message=message):
            return HappeningKind.PHASE, f"{phase}{message and ': ' + message}"
        case PlanApplied(plan=plan):
            return HappeningKind.PLAN, f"{plan.short} runs"
        case PlanFailed(plan=plan, why=why):
            return HappeningKind.PLAN, f"{plan.short} could not be applied: {why}"
        case NodeOutOfMemory(node=node):
            return HappeningKind.MEMORY, f"{node} was killed for lack of memory"
        case _:
            is_room = isinstance(event, RoomChanged)
            return (HappeningKind.CAPACITY, "the capacity changed") if is_room else None


def _lost(event: Event, before: Facts, after: Facts) -> tuple[HappeningKind, str] | None:
    """Say that a node went missing; while the plan changes, nodes come and go."""
    is_change = before.target != before.running
    if not isinstance(event, NodeReported) or before.running is None or is_change:
        return None
    return (HappeningKind.LOSS, "a node is missing") if after.running is None else None


def _remembered(order: Remember) -> Iterator[Happening]:
    match order.record:
        case Proposal() as proposal if proposal.status == "pending":
            plan = proposal.candidate.plan.short
            yield Happening(order.at_s, HappeningKind.PROPOSAL, f"{proposal.id} proposed: {plan}")
        case Mitigation() as action if action.is_open:
            yield Happening(order.at_s, HappeningKind.PROPOSAL, f"{action.id} proposed: {action.words}")
        case Decision() as decision:
            words = f"{decision.id}: {decision.words} by {decision.by}"
            yield Happening(order.at_s, HappeningKind.DECISION, words)
