"""What plans would change in the held-out quality of the model, against the plan that runs.

Other numbers of asynchronous workers give gradients another age (`staleness.ages`), and curves of quality
against age say what that costs (`staleness.curves`): those of the way in which this job applies gradients. A
plan with as many workers as now changes nothing, whatever its cores and parameter servers. Where no curve is
at hand the change is not known, and nothing is assumed. It is not known either of workers in step (BSP,
all-reduce) without a global batch: there more workers make larger steps, and no gradient is old.

A bound on the loss of AUC (`PlanBounds.max_auc_loss`) is a promise, and what it costs is seen only once the
job has ended. So the bad end of the band counts, and a plan with more workers whose change is not known does
not keep it. It is counted from the plan that the job was submitted with: from the present one, a job could
lose any amount in small steps. Plans with as many or fewer workers than now always keep it.

Rejected: to judge by the expected change alone. Half of the plans at the bound would then break it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.percents import fraction
from dlrover_nb.core.staleness.ages import mean_ages
from dlrover_nb.core.staleness.curves import Changes, FittedCurve, combined
from dlrover_nb.core.structs.decisions.candidates import QualityChange, WayChange
from dlrover_nb.core.structs.job.spec_choices import StaleSteps, Sync

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.quality import QualityCurve

    Array = NDArray[np.float64]

IN_STEP = frozenset({Sync.BSP, Sync.ALLREDUCE})


def way_of(spec: JobSpec) -> str:
    """Return the name of how a job applies gradients, as curves have it."""
    if spec.stale_steps is StaleSteps.NORMALISED:
        return spec.stale_steps
    return Sync.ASP if spec.sync is Sync.SSP else spec.sync  # the same ages on average


@dataclass(frozen=True, slots=True)
class _Training:
    """What the change of a plan depends on, beside its number of workers.

    `now` and `first` are the workers of the plan that runs and of the one that was submitted; `n_row` are the
    samples that the job trains, and `batch_size` those of a batch with one worker.
    """

    curves: tuple[QualityCurve, ...]
    way: str
    overlap: bool
    global_batch: int | None
    batch_size: int
    n_row: int
    now: int
    first: int

    @classmethod
    def of(cls, s: Situation) -> _Training:
        """Return what a situation says of it; curves count where ages make a difference."""
        spec, is_priced = s.spec, s.spec.sync not in IN_STEP and s.spec.foreign is None
        return cls(
            s.curves if is_priced else (),
            way_of(spec),
            spec.overlap,
            spec.global_batch,
            spec.batch_of(1),
            s.n_sample_total or s.n_sample_left,
            s.plan.worker.count,
            spec.plan.worker.count,
        )

    def ages(self, way: str, n_worker: Array) -> Array:
        """Return the mean age of gradients with each number of workers, in updates: shape (n_plans,).

        Where parameter servers gather gradients, an update has as many as a global batch, or one of each
        worker.
        """
        ages = mean_ages(n_worker, in_step=way in IN_STEP, overlap=self.overlap)
        if way != Sync.GBA:
            return ages
        n_gathered = n_worker if self.global_batch is None else self.global_batch / self.batch_size
        return np.asarray(ages / np.maximum(n_gathered, 1.0))

    def transfer(self, curve: QualityCurve) -> Array:
        """Return how far changes may differ in this job from those of a curve, as a share of them.

        Batches are compared at one worker: a curve of workers that share a global batch has how it shrinks.
        """
        return _fitted(curve).transfer(self.n_row, self.batch_size)


@dataclass(frozen=True, slots=True)
class _Table:
    """Changes with 1, 2, ... workers against the present number: arrays of shape (n_workers,).

    `first_low` are the low ends of the changes of AUC against the plan that the job was submitted with,
    `others` the changes of AUC in other ways of applying gradients.
    """

    auc: Changes
    loss: Changes
    first_low: Array
    others: Mapping[str, Changes]
    curves: tuple[QualityCurve, ...]


def quality_changes(s: Situation, n_worker: Collection[int]) -> dict[int, QualityChange | None]:
    """Return what each number of workers changes, by that number; None: not known yet."""
    numbers = sorted(set(n_worker))
    training = _Training.of(s)
    *ages, age_now = training.ages(training.way, np.array([*numbers, training.now])).tolist()
    table = _table(training, 1 << int(max([*numbers, 1]) - 1).bit_length())
    shares_batch = s.spec.sync in IN_STEP and s.spec.shared_batch is not None
    return {
        n: _change(None if n == training.now or shares_batch else n, table, age, age_now)
        for n, age in zip(numbers, ages, strict=True)
    }


def keeps_bound(s: Situation, n_worker: Array) -> NDArray[np.bool_]:
    """Return which numbers of workers surely cost no more AUC than the bound lets them: shape (n_plans,)."""
    most = s.spec.bounds.max_auc_loss
    if most is None:
        return np.ones(len(n_worker), dtype=bool)
    changes = quality_changes(s, [int(n) for n in n_worker])
    now = s.plan.worker.count
    allowed = {n: _keeps(each, most, is_more=n > now) for n, each in changes.items()}
    return np.array([allowed[int(n)] for n in n_worker], dtype=bool)


def over_bound(candidate: Candidate, now: Candidate, spec: JobSpec) -> str:
    """Say that a plan may cost more AUC than the job's bound; empty if it surely does not."""
    most, change = spec.bounds.max_auc_loss, candidate.quality
    if most is None:
        return ""
    if _keeps(change, most, is_more=candidate.plan.worker.count > now.plan.worker.count):
        return ""
    if change is None:
        return (
            f"its change of AUC is not known yet, and the bound is a loss of {fraction(most)}; "
            "a rehearsal measures it"
        )
    loss = fraction(-change.first_low)
    return f"it may cost up to {loss} of AUC against the first plan, the bound is {fraction(most)}"


def _keeps(change: QualityChange | None, most: float, *, is_more: bool) -> bool:
    return not is_more or (change is not None and -change.first_low <= most)


def _change(n: int | None, table: _Table | None, age: float, age_now: float) -> QualityChange | None:
    """Return the change with a number of workers; None for one that trains as the present one does."""
    same = QualityChange(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, age, age_now)
    if n is None or table is None:
        return same if n is None else None
    i = n - 1
    return replace(
        same,
        auc=float(table.auc.mean[i]),
        auc_low=float(table.auc.low[i]),
        auc_high=float(table.auc.high[i]),
        loss=float(table.loss.mean[i]),
        loss_low=float(table.loss.low[i]),
        loss_high=float(table.loss.high[i]),
        origins=tuple(sorted({curve.origin for curve in table.curves})),
        first_low=float(table.first_low[i]),
        n_row=max(curve.n_row * curve.n_epoch for curve in table.curves),
        ways=tuple(
            WayChange(way, float(e.mean[i]), float(e.low[i]), float(e.high[i]))
            for way, e in sorted(table.others.items())
        ),
    )


@lru_cache(maxsize=256)
def _fitted(curve: QualityCurve) -> FittedCurve:
    return FittedCurve(curve)


@lru_cache(maxsize=64)
def _table(t: _Training, n_most: int) -> _Table | None:
    """Return what up to so many workers change, in the job's own way; None: not known.

    A job asks for the same numbers hundreds of times while it weighs plans, and a curve takes milliseconds.
    """
    own = tuple(curve for curve in t.curves if curve.way == t.way)
    if not own:
        return None
    n_worker = np.arange(1.0, n_most + 1)
    ages = t.ages(t.way, n_worker)
    now, first = t.ages(t.way, np.array([t.now, t.first])).tolist()

    def all_of(measure: Callable[[FittedCurve], Changes]) -> Changes:
        whole = combined([measure(_fitted(curve)).widened(t.transfer(curve)) for curve in own])
        assert whole is not None
        return whole

    return _Table(
        all_of(lambda fit: fit.auc(ages, now)),
        all_of(lambda fit: fit.loss(ages, now)),
        all_of(lambda fit: fit.auc(ages, first)).low,
        _other_ways(t, n_worker, own),
        own,
    )


def _other_ways(t: _Training, n_worker: Array, own: Sequence[QualityCurve]) -> dict[str, Changes]:
    """Return the change of AUC with each number of workers in other ways, against the plan that runs.

    Only of curves that were measured beside one of the job's own way: what both have at age 0 is compared.
    """
    now = np.array([t.now])
    changes: dict[str, list[Changes]] = {}
    for curve in t.curves:
        beside = next((each for each in own if _runs(each) == _runs(curve)), None)
        if beside is None or curve.way == beside.way:
            continue
        there = _fitted(curve).auc(t.ages(curve.way, n_worker))
        here = _fitted(beside).auc(t.ages(beside.way, now))
        mean = there.mean - here.mean + curve.base_auc - beside.base_auc
        change = Changes(mean, np.hypot(there.deviation, here.deviation))
        changes.setdefault(curve.way, []).append(change.widened(t.transfer(curve)))
    return {way: whole for way, each in changes.items() if (whole := combined(each)) is not None}


def _runs(curve: QualityCurve) -> tuple[object, ...]:
    """Return what runs of two ways must have in common."""
    return curve.origin, curve.n_row, curve.n_epoch, curve.learning_rate, curve.optimizer
