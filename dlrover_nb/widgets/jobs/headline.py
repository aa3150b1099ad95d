"""The sentence of a job: what a colleague would say of it now, and what can be done about it.

The most important line of each view, and the same words in all of them. What waits for a person comes first,
then what goes on, then how the last change turned out. Each state is a function that returns None where it
does not hold; the first that holds speaks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.client.until import first_steps
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode, Objective
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.summary import share_done
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Lead, Tone
from dlrover_nb.widgets.jobs import moves
from dlrover_nb.widgets.jobs.wait_lines import text_of
from dlrover_nb.widgets.oom import running_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.decisions.decisions import Outcome, Proposal
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, MemoryLine

    State = Callable[[JobSnapshot], Lead | None]


def headline(snapshot: JobSnapshot) -> Lead:
    """Return the sentence of a job as it is now."""
    return next(filter(None, (state(snapshot) for state in STATES)))


def old_picture(age_s: float) -> Lead:
    """Return what is said instead where the job's master does not answer: nothing can be decided then."""
    return Lead(f"This picture is {_about(age_s)} old; reconnecting.", tone=Tone.WARNING)


def answer_labels(proposal: Proposal | None) -> tuple[str, str]:
    """Return what the buttons say that accept and reject a proposal, with its id; None: none is open."""
    if proposal is None:
        return "Do it", "Not now"
    verb = "Try it" if proposal.kind is ProposalKind.EXPLORE else "Do it"
    return f"{verb} ({proposal.id})", f"Not now ({proposal.id})"


def rows_labels(snapshot: JobSnapshot) -> tuple[str, str]:
    """Return what the buttons say that train rows in question again and skip them; empty: there are none."""
    if not snapshot.quarantined or snapshot.phase.is_final:
        return "", ""
    name = f"shard {snapshot.quarantined[0].shard}"
    return f"Try again ({name})", f"Skip it ({name})"


def missed(snapshot: JobSnapshot) -> bool:
    """Whether the sentence says that the last change turned out otherwise than predicted."""
    if snapshot.open_proposal is not None or not snapshot.outcomes or snapshot.phase.is_final:
        return False
    return snapshot.outcomes[-1].plan == snapshot.target and snapshot.outcomes[-1].inside_band is False


OTHER_LABEL = "Something else…"


# ended


def _failed(snapshot: JobSnapshot) -> Lead | None:
    if snapshot.phase is not JobPhase.FAILED:
        return None
    why = snapshot.message.rstrip(".") or "the reason is not known; the job's logs may tell"
    return Lead(f"Failed after {_ran_for(snapshot)}: {why}.", _trained(snapshot), Tone.FAILED)


def _done(snapshot: JobSnapshot) -> Lead | None:
    if not snapshot.phase.is_final:
        return None
    if snapshot.phase is JobPhase.STOPPED:
        return Lead(f"Stopped after {_ran_for(snapshot)}.", _trained(snapshot))
    quality = "" if snapshot.evaluation is None else f": {snapshot.evaluation}"
    return Lead(f"Done in {_ran_for(snapshot)}{quality}.")


def _ran_for(snapshot: JobSnapshot) -> str:
    return _about((snapshot.ended_at_s or snapshot.at_s) - snapshot.started_at_s)


def _trained(snapshot: JobSnapshot) -> str:
    share = share_done(snapshot.train)
    return "" if share is None else f"{units.percent(share)} of the rows were trained."


# what waits for a person


def _rows_in_question(snapshot: JobSnapshot) -> Lead | None:
    if not snapshot.quarantined:
        return None
    first, *more = snapshot.quarantined
    n_worker, n_row = len(first.killed), first.stop - first.start - first.n_row_done
    waits = "waits" if len(more) == 1 else "wait"
    others = f" {units.counted(len(more), 'more shard')} {waits} too." if more else ""
    return Lead(
        f"Rows {first.start:,} to {first.stop:,} ended {moves.counted(n_worker, Role.WORKER)} "
        f"(shard {first.shard}).",
        f"Repair the data and try again, or go on without the {n_row:,} rows left of it.{others}",
        Tone.WARNING,
    )


def _memory(snapshot: JobSnapshot) -> Lead | None:
    proposal = snapshot.open_proposal
    if proposal is None or proposal.kind is not ProposalKind.PROTECT:
        return None
    return proposed(proposal, snapshot)


def proposed(proposal: Proposal, snapshot: JobSnapshot) -> Lead:
    """Return the sentence of an open proposal, whatever else the job has to say."""
    change = moves.move(proposal.baseline.plan, proposal.candidate.plan).order
    match proposal.kind:
        case ProposalKind.PROTECT:
            lines = running_out(snapshot)
            needed = _full_words(lines[0]) if lines else "Memory is short."
            pause = _price_and_pause(proposal, snapshot)
            return Lead(f"{needed} {_sentence(change)}", pause, Tone.WARNING)
        case ProposalKind.EXPLORE:
            words = _trial_words(proposal)
        case ProposalKind.IMPROVE:
            words = _better_words(proposal, snapshot)
        case _:
            assert_never(proposal.kind)
    return Lead(words, _reason(proposal, snapshot), Tone.NEWS)


def sentence_alone(proposal: Proposal, snapshot: JobSnapshot) -> Lead:
    """Return the sentence of an open proposal above all that is known of it: without the line below."""
    return replace(proposed(proposal, snapshot), detail="")


def _full_words(line: MemoryLine) -> str:
    chance = "" if line.oom_probability is None else f" ({_chance(line.oom_probability)})"
    node = moves.NAMES[line.role]
    if line.full_in_s is None:
        return f"A {node} may run out of memory before the end{chance}."
    return f"A {node} will run out of memory in about {_about(line.full_in_s)}{chance}."


def _chance(probability: float) -> str:
    tenths = round(10 * probability)
    if 0 < tenths < 10:
        return f"{tenths} in 10 chance"
    return "almost certain" if tenths else f"{units.percent(probability)} chance"


def _proposed(snapshot: JobSnapshot) -> Lead | None:
    proposal = snapshot.open_proposal
    return None if proposal is None else proposed(proposal, snapshot)


def _trial_words(proposal: Proposal) -> str:
    new, now = proposal.candidate.prediction, proposal.baseline.prediction
    evidence = "nothing like it has run yet" if new.extrapolates else "what has run does not tell"
    doing = moves.move(proposal.baseline.plan, proposal.candidate.plan).doing
    return _sentence(f"try {doing}: {evidence}, so anything from {moves.band(new, now)} times as fast")


def _better_words(proposal: Proposal, snapshot: JobSnapshot) -> str:
    candidate, base = proposal.candidate, proposal.baseline
    faster = candidate.prediction.samples_per_s / base.prediction.samples_per_s
    band = moves.band(candidate.prediction, base.prediction)
    price = moves.price_words(candidate, base, _currency(snapshot))
    change = moves.move(base.plan, candidate.plan).order
    return _sentence(f"{change}: {moves.times(faster)} ({band}){price and ' ' + price}")


def _reason(proposal: Proposal, snapshot: JobSnapshot) -> str:
    """Return why, what it costs beside its price, and what auto mode waits for."""
    is_trial = proposal.kind is ProposalKind.EXPLORE
    why = "A trial: it tells what such plans bring." if is_trial else proposal.candidate.reason
    waits = f"Auto mode waits: {proposal.note}." if proposal.note and snapshot.mode is Mode.AUTO else ""
    price = _price_and_pause(proposal, snapshot, with_price=is_trial)
    return " ".join(filter(None, (why and _sentence(why), price, waits)))


def _price_and_pause(proposal: Proposal, snapshot: JobSnapshot, *, with_price: bool = True) -> str:
    """Return what the change costs, as sentences; whether prices are assumed also where others name them."""
    pause_s, parts = proposal.candidate.transition_s, []
    price = moves.price_words(proposal.candidate, proposal.baseline, _currency(snapshot))
    if with_price and price.startswith("for "):
        parts.append(f"it costs {price.removeprefix('for ')}")
    if pause_s > 0:
        parts.append(f"the change pauses training for {_about(pause_s)}")
    assumed = "Prices are assumed." if snapshot.spec.prices.assumed and price else ""
    costs = _sentence("; ".join(parts)) if parts else ""
    return " ".join(filter(None, (costs, assumed)))


def _slow_node(snapshot: JobSnapshot) -> Lead | None:
    action = snapshot.open_mitigation
    if action is None:
        return None
    gain = "" if action.gain is None else f": about {units.percent(action.gain)} faster"
    return Lead(_sentence(f"{action.words}{gain}"), _sentence(action.why), Tone.NEWS)


# what goes on


def _starting(snapshot: JobSnapshot) -> Lead | None:
    what = first_steps(snapshot)
    return Lead(f"{text_of(what, _age_s(snapshot))}.") if what else None


def _age_s(snapshot: JobSnapshot) -> float:
    return max(snapshot.at_s - snapshot.started_at_s, 0.0)


def _under_way(snapshot: JobSnapshot) -> Lead | None:
    decision = next((d for d in snapshot.decisions if d.id == snapshot.under_way), None)
    if decision is None or snapshot.ran is None or snapshot.ran == snapshot.target:
        return None
    since = _about(max(snapshot.at_s - decision.at_s, 0.0))
    waits = [node for node in snapshot.nodes if node.waits_for]
    state = f"{units.counted(len(waits), 'node')} waiting for room, " if waits else ""
    goes_on = "Training goes on." if snapshot.samples_per_s > 0 else "Training is paused."
    doing = moves.move(snapshot.ran, snapshot.target).doing
    return Lead(f"{_sentence(f'{doing}: {state}{since} so far')} {goes_on}", tone=Tone.NEWS)


def _host_is_busy(snapshot: JobSnapshot) -> Lead | None:
    words = "" if snapshot.host is None else snapshot.host.words
    return Lead(words, tone=Tone.WARNING) if words else None


def _evaluating(snapshot: JobSnapshot) -> Lead | None:
    if snapshot.phase is not JobPhase.EVALUATING:
        return None
    return Lead("All rows are trained: the model is being evaluated.")


def _measuring(snapshot: JobSnapshot) -> Lead | None:
    if snapshot.measuring:
        return Lead("The new plan runs. Measuring what it brings.")
    if snapshot.fit is None and snapshot.mode is not Mode.MANUAL:
        return Lead("Measuring this plan: a proposal needs a few steady windows.")
    return None


def _turned_out(snapshot: JobSnapshot) -> Lead | None:
    """Return how the last change turned out while its plan runs."""
    if not snapshot.outcomes or snapshot.outcomes[-1].plan != snapshot.target:
        return None
    outcome = snapshot.outcomes[-1]
    before, promised = outcome.before_samples_per_s, outcome.predicted
    if not before or promised is None:
        return None
    reached, wanted = outcome.measured_samples_per_s / before, promised.samples_per_s / before
    if outcome.inside_band:
        words = f"As predicted: {moves.times(reached).removesuffix(' as now')} as before."
        return Lead(words, f"{_host_part(outcome)}{_next(snapshot)}")
    side = "Slower" if reached < wanted else "Faster"
    words = f"{side} than predicted: {moves.factor(reached)} times as fast as before instead of "
    return Lead(f"{words}{moves.factor(wanted)}.", f"{_host_part(outcome)}{_next(snapshot)}")


def _host_part(outcome: Outcome) -> str:
    if outcome.host_share < 0.005:
        return ""
    return f"Other work on the host took {units.percent(outcome.host_share)} of the time. "


def _next(snapshot: JobSnapshot) -> str:
    """Return what is proposed after a change: nothing is open."""
    return "No other plan is clearly better by what is measured so far." if snapshot.fit is not None else ""


def _nothing_to_do(snapshot: JobSnapshot) -> Lead:
    if snapshot.mode is Mode.MANUAL:
        return Lead("Manual mode: you decide, and nothing is proposed.")
    front = snapshot.front
    if front is None:
        return Lead("No proposal yet.")
    if front.why_empty:
        return Lead(f"No other plan is possible: {front.why_empty}.")
    better = "faster" if snapshot.spec.objective is Objective.SPEED else "better for its price"
    n = f"none of the {front.n_plan:,} plans" if front.n_plan > 1 else "no other plan"
    return Lead(f"Nothing to do: {n} within your limits is clearly {better}.")


STATES: tuple[State, ...] = (
    _failed,
    _done,
    _rows_in_question,
    _starting,
    _memory,
    _under_way,
    _proposed,
    _slow_node,
    _host_is_busy,
    _evaluating,
    _measuring,
    _turned_out,
    _nothing_to_do,
)


def _currency(snapshot: JobSnapshot) -> str:
    return snapshot.front.currency if snapshot.front else snapshot.spec.prices.currency


def _sentence(text: str) -> str:
    """Return text with a capital letter and one full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _about(seconds: float) -> str:
    """Return a time span with two digits."""
    return units.duration(float(f"{seconds:.2g}") if seconds < 90 else 60 * float(f"{seconds / 60:.2g}"))
