"""Sentences about a job that its own view and its line in a list share, so that both say the same. Pure.

They are made of what a list carries of a job (`JobSummary`), of which a snapshot has all. `jobs.headline`
chooses among them by the snapshot, `rows.job_sentence` by the summary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets import moves, units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import QuarantinedShard
    from dlrover_nb.core.structs.views.snapshot import Evaluation, MemoryLine
    from dlrover_nb.core.structs.views.summary import ProposedChange

EVALUATING = "All rows are trained: the model is being evaluated."
MANUAL = "Manual mode: you decide, and nothing is proposed."
MEASURING = "Measuring this plan: a proposal needs a few steady windows."


def sentence(text: str) -> str:
    """Return text with a capital letter and one full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def about(seconds: float) -> str:
    """Return a time span with two digits."""
    return units.duration(float(f"{seconds:.2g}") if seconds < 90 else 60 * float(f"{seconds / 60:.2g}"))


# ended


def failed(ran_s: float | None, why: str) -> str:
    """Say that a job has failed, why, and after how long where that is known."""
    reason = why.rstrip(".") or "we do not know why; the job's logs may tell"
    return f"Failed{_after(ran_s)}: {reason}."


def stopped(ran_s: float | None) -> str:
    """Say that a job was stopped."""
    return f"Stopped{_after(ran_s)}."


def _after(ran_s: float | None) -> str:
    return "" if ran_s is None else f" after {about(ran_s)}"


def done(ran_s: float | None, evaluation: Evaluation | None) -> str:
    """Say that a job has succeeded, and how good its model is."""
    quality = "" if evaluation is None else f": {evaluation}"
    return f"Done{'' if ran_s is None else f' in {about(ran_s)}'}{quality}."


# what waits for a person


def rows_in_question(shard: QuarantinedShard) -> str:
    """Say which rows ended workers."""
    workers = moves.counted(len(shard.killed), Role.WORKER)
    return f"Rows {shard.start:,} to {shard.stop:,} ended {workers} (shard {shard.shard})."


def proposed(change: ProposedChange, currency: str, full: MemoryLine | None, needs: Sequence[str]) -> str:
    """Say what is proposed, how fast the job is then, and at what price.

    Parameters
    ----------
    full
        The role that will be without memory, by a forecast.
    needs
        Why nodes need more: also that one was killed, which no forecast says.
    """
    match change.kind:
        case ProposalKind.PROTECT:
            short = sentence(needs[0]) if needs else "Memory is short."
            needed = full_words(full) if full else short
            return f"{needed} {sentence(_move(change).order)}"
        case ProposalKind.EXPLORE:
            return _trial_words(change)
        case ProposalKind.IMPROVE:
            return _better_words(change, currency)
        case _:
            assert_never(change.kind)


def _move(change: ProposedChange) -> moves.Move:
    return moves.move(change.plan if change.before is None else change.before, change.plan)


def _trial_words(change: ProposedChange) -> str:
    evidence = "nothing like it has run yet" if change.extrapolates else "what has run does not tell"
    band = _band(change)
    speed = f", so anything from {band} times as fast" if band else ""
    return sentence(f"try {_move(change).doing}: {evidence}{speed}")


def _better_words(change: ProposedChange, currency: str) -> str:
    faster = change.samples_per_s / change.before_samples_per_s if change.before_samples_per_s else 0.0
    band = _band(change)
    speed = f"{moves.times(faster)}{band and f' ({band})'}" if faster else "faster"
    price = moves.price_words(change.cost_per_hour, change.before_cost_per_hour, currency)
    return sentence(f"{_move(change).order}: {speed}{price and ' ' + price}")


def _band(change: ProposedChange) -> str:
    return "" if change.least is None or change.most is None else moves.factors(change.least, change.most)


def full_words(line: MemoryLine) -> str:
    """Say when nodes of a role run out of memory."""
    chance = "" if line.oom_probability is None else f" ({_chance(line.oom_probability)})"
    node = moves.NAMES[line.role]
    if line.full_in_s is None:
        return f"A {node} may run out of memory before the end{chance}."
    return f"A {node} will run out of memory in about {about(line.full_in_s)}{chance}."


def _chance(probability: float) -> str:
    tenths = round(10 * probability)
    if 0 < tenths < 10:
        return f"{tenths} in 10 chance"
    return "almost certain" if tenths else f"{chance_words(probability)} chance"


def slow_node(action: str, gain: float | None) -> str:
    """Say what is proposed against a slow node."""
    faster = "" if gain is None else f": about {units.percent(gain)} faster"
    return sentence(f"{action}{faster}")


# what goes on


def changing(before: ResourcePlan, after: ResourcePlan) -> str:
    """Say that a change of plan is under way."""
    return sentence(moves.move(before, after).doing)
