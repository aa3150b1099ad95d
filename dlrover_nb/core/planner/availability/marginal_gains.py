"""What the next core and GiB would give to each job, by its own model, and swaps that would gain.

Samples per second of different jobs cannot be compared, so a gain is relative: the share by which a job would
get faster. Per core and per GiB, the steps of all jobs then stand in one order. A swap takes a step down of
one job and a step up of another that fits into what that frees; it gains where the second gets faster by a
larger share than the first gets slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.decisions.query_answers import Explanation, Marginal
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

MIB_PER_GIB = 1024
MOST_SWAPS = 10
LEAST_GAIN = 0.005  # of a swap: less is noise


@dataclass(frozen=True, slots=True)
class Step:
    """The next step of a job along one axis.

    Parameters
    ----------
    what
        In words: ``1 more worker``.
    cores, memory_mib
        That it takes; negative: that it frees.
    share
        By which the job gets faster; negative: slower.
    refusal
        Why it would be refused now; empty: it would not.
    """

    job: str
    owner: str
    what: str
    cores: float
    memory_mib: int
    samples_per_s: float
    share: float
    refusal: str = ""

    @property
    def per_core(self) -> float | None:
        """Share per core; None where it takes no core."""
        return self.share / self.cores if self.cores >= CPU_STEP else None

    @property
    def per_gib(self) -> float | None:
        """Share per GiB; None where it takes no memory."""
        return self.share / self.memory_mib * MIB_PER_GIB if self.memory_mib > 0 else None


@dataclass(frozen=True, slots=True)
class Swap:
    """A step down of one job and a step up of another, and the sum of their shares."""

    giver: Step
    taker: Step

    @property
    def share(self) -> float:
        """By which the taker gets faster, less that by which the giver gets slower."""
        return self.taker.share + self.giver.share


def steps_of(job: str, owner: str, explanation: Explanation) -> tuple[Step, ...]:
    """Return the next steps of a job, up and down; none where nothing is predicted yet."""
    base = explanation.candidate or explanation.baseline
    if base is None or base.prediction.samples_per_s <= 0:
        return ()
    now = base.prediction.samples_per_s
    return tuple(
        step
        for marginal in explanation.marginals
        if (step := _step(job, owner, marginal, explanation.plan, now)) is not None
    )


def _step(job: str, owner: str, marginal: Marginal, plan: ResourcePlan, now: float) -> Step | None:
    if marginal.samples_per_s is None:
        return None
    then = marginal.weighed.plan
    return Step(
        job,
        owner,
        marginal.what,
        round(then.total_cpu - plan.total_cpu, 2),
        then.total_memory_mib - plan.total_memory_mib,
        marginal.samples_per_s,
        marginal.samples_per_s / now,
        marginal.weighed.refusal,
    )


def best_per_core(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return for each job the step that gains most per core, the best job first."""
    return _best((step.per_core, step) for step in steps)


def best_per_gib(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return for each job the step that gains most per GiB, the best job first."""
    return _best((step.per_gib, step) for step in steps)


def _best(valued: Iterable[tuple[float | None, Step]]) -> tuple[Step, ...]:
    best: dict[str, tuple[float, Step]] = {}
    for value, step in valued:
        if value is not None and (step.job not in best or value > best[step.job][0]):
            best[step.job] = (value, step)
    return tuple(step for _, step in sorted(best.values(), key=lambda each: (-each[0], each[1].job)))


def swaps_of(steps: Sequence[Step]) -> tuple[Swap, ...]:
    """Return the swaps that gain most, each pair of jobs once, the best first.

    A step up that is refused now counts: what refuses it may be the room that the swap makes. A step down
    that is refused does not.
    """
    givers = [step for step in steps if step.cores < 0 and not step.refusal]
    takers = [step for step in steps if step.cores > 0 and step.share > 0]
    best: dict[tuple[str, str], Swap] = {}
    for giver in givers:
        for taker in takers:
            swap, pair = Swap(giver, taker), (giver.job, taker.job)
            if giver.job == taker.job or not _has_room(swap) or swap.share < LEAST_GAIN:
                continue
            if pair not in best or swap.share > best[pair].share:
                best[pair] = swap
    swaps = sorted(best.values(), key=lambda swap: (-swap.share, swap.giver.job, swap.taker.job))
    return tuple(swaps[:MOST_SWAPS])


def _has_room(swap: Swap) -> bool:
    fits_cpu = swap.taker.cores <= -swap.giver.cores + CPU_STEP / 2
    return fits_cpu and swap.taker.memory_mib <= -swap.giver.memory_mib
