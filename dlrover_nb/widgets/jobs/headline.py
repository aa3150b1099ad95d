"""The sentence of a job: what a colleague would say of it now, and what can be done about it.

The most important line of each view, and the same words in all of them. What waits for a person comes first,
then what goes on, then how the last change turned out. Each state is a function that returns None where it
does not hold; the first that holds speaks. The words that the line of a job in a list has too are those of
`widgets.sentences`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.client.until import first_steps
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode, Objective
from dlrover_nb.core.structs.plan.prices import ARE_ASSUMED
from dlrover_nb.core.structs.views.summary import proposed_change, share_done
from dlrover_nb.core.why import tried
from dlrover_nb.widgets import moves, units
from dlrover_nb.widgets import sentences as words
from dlrover_nb.widgets.blocks import Lead, Tone
from dlrover_nb.widgets.jobs.wait_lines import text_of
from dlrover_nb.widgets.oom import running_out
from dlrover_nb.widgets.sentences import about, sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.decisions.decisions import Outcome, Proposal
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

    State = Callable[[JobSnapshot], Lead | None]


def headline(snapshot: JobSnapshot) -> Lead:
    """Return the sentence of a job as it is now."""
    return next(filter(None, (state(snapshot) for state in STATES)))


def old_picture(age_s: float) -> Lead:
    """Return what is said instead where the job's master does not answer: nothing can be decided then."""
    return Lead(f"This picture is {about(age_s)} old; reconnecting.", tone=Tone.WARNING)


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
    return Lead(words.failed(_ran_s(snapshot), snapshot.message), _trained(snapshot), Tone.FAILED)


def _done(snapshot: JobSnapshot) -> Lead | None:
    if not snapshot.phase.is_final:
        return None
    if snapshot.phase is JobPhase.STOPPED:
        return Lead(words.stopped(_ran_s(snapshot)), _trained(snapshot))
    return Lead(words.done(_ran_s(snapshot), snapshot.evaluation))


def _ran_s(snapshot: JobSnapshot) -> float:
    return (snapshot.ended_at_s or snapshot.at_s) - snapshot.started_at_s


def _trained(snapshot: JobSnapshot) -> str:
    share = share_done(snapshot.train)
    return "" if share is None else f"{units.percent(share)} of the rows were trained."


# what waits for a person


def _rows_in_question(snapshot: JobSnapshot) -> Lead | None:
    if not snapshot.quarantined:
        return None
    first, *more = snapshot.quarantined
    n_row = first.stop - first.start - first.n_row_done
    waits = "waits" if len(more) == 1 else "wait"
    others = f" {units.counted(len(more), 'more shard')} {waits} too." if more else ""
    return Lead(
        words.rows_in_question(first),
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
    full = next(iter(running_out(snapshot)), None)
    text = words.proposed(proposed_change(proposal), _currency(snapshot), full, snapshot.memory_needs)
    if proposal.kind is ProposalKind.PROTECT:
        return Lead(text, _price_and_pause(proposal, snapshot), Tone.WARNING)
    return Lead(text, _reason(proposal, snapshot), Tone.NEWS)


def sentence_alone(proposal: Proposal, snapshot: JobSnapshot) -> Lead:
    """Return the sentence of an open proposal above all that is known of it: without the line below."""
    return replace(proposed(proposal, snapshot), detail="")


def _proposed(snapshot: JobSnapshot) -> Lead | None:
    proposal = snapshot.open_proposal
    return None if proposal is None else proposed(proposal, snapshot)


def _reason(proposal: Proposal, snapshot: JobSnapshot) -> str:
    """Return why, what it costs beside its price, and what auto mode waits for."""
    is_trial = proposal.kind is ProposalKind.EXPLORE
    why = "An experiment: it shows what such plans bring." if is_trial else proposal.candidate.reason
    waits = f"Auto mode waits: {proposal.note}." if proposal.note and snapshot.mode is Mode.AUTO else ""
    price = _price_and_pause(proposal, snapshot, with_price=is_trial)
    reasons = (why and sentence(why), _tried_before(proposal, snapshot), _returned(proposal))
    return " ".join(filter(None, (*reasons, price, waits)))


def _tried_before(proposal: Proposal, snapshot: JobSnapshot) -> str:
    """Return what the plan gave when it ran; nothing where it did not."""
    measured = tried(snapshot, proposal.candidate.plan)
    return "" if measured is None else f"It ran before and gave {units.rate(measured.samples_per_s)}."


def _returned(proposal: Proposal) -> str:
    return "" if proposal.returned is None else proposal.returned.words


def _price_and_pause(proposal: Proposal, snapshot: JobSnapshot, *, with_price: bool = True) -> str:
    """Return what the change costs, as sentences; whether prices are assumed also where others name them."""
    pause_s, parts = proposal.candidate.transition_s, []
    new, now = proposal.candidate.cost_per_hour, proposal.baseline.cost_per_hour
    price = moves.price_words(new, now, _currency(snapshot))
    if with_price and price.startswith("for "):
        parts.append(f"it costs {price.removeprefix('for ')}")
    if pause_s > 0:
        parts.append(f"the change pauses training for {about(pause_s)}")
    assumed = ARE_ASSUMED if snapshot.spec.prices.assumed and price else ""
    costs = sentence("; ".join(parts)) if parts else ""
    return " ".join(filter(None, (costs, assumed)))


def _slow_node(snapshot: JobSnapshot) -> Lead | None:
    action = snapshot.open_mitigation
    if action is None:
        return None
    return Lead(words.slow_node(action.words, action.gain), sentence(action.why), Tone.NEWS)


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
    since = about(max(snapshot.at_s - decision.at_s, 0.0))
    waits = [node for node in snapshot.nodes if node.waits_for]
    state = f"{units.counted(len(waits), 'node')} waiting for room, " if waits else ""
    goes_on = "Training goes on." if snapshot.samples_per_s > 0 else "Training is paused."
    doing = moves.move(snapshot.ran, snapshot.target).doing
    return Lead(f"{sentence(f'{doing}: {state}{since} so far')} {goes_on}", tone=Tone.NEWS)


def _host_is_busy(snapshot: JobSnapshot) -> Lead | None:
    text = "" if snapshot.host is None else snapshot.host.words
    return Lead(text, tone=Tone.WARNING) if text else None


def _evaluating(snapshot: JobSnapshot) -> Lead | None:
    if snapshot.phase is not JobPhase.EVALUATING:
        return None
    return Lead(words.EVALUATING)


def _measuring(snapshot: JobSnapshot) -> Lead | None:
    if snapshot.measuring:
        return Lead("The new plan runs. Measuring what it brings.")
    if snapshot.fit is None and snapshot.mode is not Mode.MANUAL:
        return Lead(words.MEASURING)
    return None


def _turned_out(snapshot: JobSnapshot) -> Lead | None:
    """Return how the last change turned out while its plan runs."""
    if not snapshot.outcomes or snapshot.outcomes[-1].plan != snapshot.target:
        return None
    outcome = snapshot.outcomes[-1]
    before, predicted = outcome.before_samples_per_s, outcome.predicted
    if not before or predicted is None:
        return None
    reached, wanted = outcome.measured_samples_per_s / before, predicted.samples_per_s / before
    if outcome.inside_band and not outcome.has_host_changed:
        text = f"As predicted: {moves.times(reached).removesuffix(' as now')} as before."
        return Lead(text, f"{_host_part(outcome)}{_next(snapshot)}")
    if outcome.inside_band:
        text = f"{moves.factor(reached)} times as fast as before instead of {moves.factor(wanted)}, "
        text += "but only because other work on the host changed."
        return Lead(text, f"{_host_part(outcome)}{_next(snapshot)}")
    side = "Slower" if reached < wanted else "Faster"
    text = f"{side} than predicted: {moves.factor(reached)} times as fast as before instead of "
    return Lead(f"{text}{moves.factor(wanted)}.", f"{_host_part(outcome)}{_next(snapshot)}")


def _host_part(outcome: Outcome) -> str:
    if outcome.host_share < 0.005:
        return ""
    return f"Other work on the host took {units.percent(outcome.host_share)} of the time. "


def _next(snapshot: JobSnapshot) -> str:
    """Return what is proposed after a change: nothing is open."""
    return (
        "From what we have measured so far, no other plan is clearly better."
        if snapshot.fit is not None
        else ""
    )


def _nothing_to_do(snapshot: JobSnapshot) -> Lead:
    if snapshot.mode is Mode.MANUAL:
        return Lead(words.MANUAL)
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
