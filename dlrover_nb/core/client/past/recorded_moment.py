"""A job at a moment, from what the history database holds: for runs whose journal is not on this machine.

A record is shown from the time on that it has. Of a proposal the database has the last status alone: one that
was closed later was pending then. So it is with an action against stragglers, which was under way from its
decision until it was closed. An outcome has the time of its plan, not of its measurement: it is shown where a
later plan or the end of the run proves that it was measured by then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.client.past.comparison import plan_spans
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.core.structs.views.moment import Happening, HappeningKind, Moment, Source

if TYPE_CHECKING:
    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.structs.decisions.decisions import Mitigation, Outcome, Proposal

MISSING = (
    "The journal of this run is not on this machine. The database has no front, no memory forecast and no "
    "nodes of a moment; its throughput is rolled up."
)


def moment_of(history: RunHistory, at_s: float) -> Moment:
    """Return a run as it was at a moment, as far as its records tell."""
    run = history.run
    has_ended = run.ended_at_s is not None and run.ended_at_s <= at_s
    plan = [span.plan for span in plan_spans(history) if span.at_s <= at_s] or [run.spec.plan]
    rows = [row for row in history.series if row.at_s <= at_s]
    fits = [fit for fit in history.fits if fit.at_s <= at_s]
    return Moment(
        at_s,
        Source.DATABASE,
        plan[-1],
        phase=run.phase if has_ended else None,
        message=run.message if has_ended else "",
        samples_per_s=rows[-1].samples_per_s if rows else None,
        speeds=tuple((row.at_s, row.samples_per_s) for row in rows),
        proposals=tuple(_as_then(p, at_s) for p in history.proposals if p.created_at_s <= at_s),
        decisions=tuple(d for d in history.decisions if d.at_s <= at_s),
        mitigations=tuple(
            _done_then(m, history, at_s) for m in history.mitigations if m.created_at_s <= at_s
        ),
        outcomes=tuple(o for o in history.outcomes if _was_measured(o, history, at_s)),
        fit_kept=fits[-1] if fits else None,
        missing=MISSING,
    )


def happenings_of(history: RunHistory) -> tuple[Happening, ...]:
    """Return what happened in a run, as far as its records tell, oldest first."""
    run = history.run
    events = [
        Happening(run.started_at_s, HappeningKind.PHASE, f"submitted by {run.owner or 'an unnamed user'}")
    ]
    events += [
        Happening(p.created_at_s, HappeningKind.PROPOSAL, f"{p.id} proposed: {p.candidate.plan.short}")
        for p in history.proposals
    ]
    events += [
        Happening(m.created_at_s, HappeningKind.PROPOSAL, f"{m.id} proposed: {m.words}")
        for m in _proposed(history)
    ]
    events += [
        Happening(d.at_s, HappeningKind.DECISION, f"{d.id}: {d.words} by {d.by}") for d in history.decisions
    ]
    events += [
        Happening(span.at_s, HappeningKind.PLAN, f"{span.plan.short} runs")
        for span in plan_spans(history)[1:]
    ]
    if run.ended_at_s is not None:
        message = run.message and f": {run.message}"
        events.append(Happening(run.ended_at_s, HappeningKind.PHASE, f"{run.phase}{message}"))
    return tuple(sorted(events, key=lambda each: each.at_s))


def _as_then(proposal: Proposal, at_s: float) -> Proposal:
    if proposal.closed_at_s is None or proposal.closed_at_s <= at_s:
        return proposal
    return replace(proposal, status=ProposalStatus.PENDING, closed_at_s=None, note="")


def _done_then(action: Mitigation, history: RunHistory, at_s: float) -> Mitigation:
    if action.closed_at_s is not None and action.closed_at_s <= at_s:
        return action
    is_ordered = any(d.id == action.decision and d.at_s <= at_s for d in history.decisions)
    return replace(
        action,
        status=ProposalStatus.APPLYING if is_ordered else ProposalStatus.PENDING,
        closed_at_s=None,
        note="",
        decision=action.decision if is_ordered else "",
    )


def _proposed(history: RunHistory) -> tuple[Mitigation, ...]:
    """Return the actions that waited for an answer: all but those that a user ordered without a proposal."""
    direct = {d.id for d in history.decisions if d.verdict is Verdict.MITIGATE}
    return tuple(m for m in history.mitigations if m.decision not in direct)


def _was_measured(outcome: Outcome, history: RunHistory, at_s: float) -> bool:
    later = [o.applied_at_s for o in history.outcomes if o.applied_at_s > outcome.applied_at_s]
    ends = [*later, *(() if history.run.ended_at_s is None else (history.run.ended_at_s,))]
    return any(end_s <= at_s for end_s in ends)
