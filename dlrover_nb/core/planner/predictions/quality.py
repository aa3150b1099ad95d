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
from dlrover_nb.core.staleness.ages import Updating, mean_ages
from dlrover_nb.core.staleness.curves import Changes, FittedCurve, combined
from dlrover_nb.core.structs.decisions.candidates import QualityChange, WayChange
from dlrover_nb.core.structs.job.spec_choices import StaleSteps, Sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


def ages_of(spec: JobSpec, way: str, n_worker: Array) -> Array:
    """Return the mean age of gradients with each number of workers, in updates: shape (n_plans,).

    Where parameter servers gather gradients, an update has as many as a global batch, or one of each worker.
    """
    ages = mean_ages(n_worker, Updating(in_step=way in IN_STEP, overlap=spec.overlap))
    if way != Sync.GBA:
        return ages
    n_gathered = n_worker if spec.global_batch is None else spec.global_batch / spec.batch_size
    return np.asarray(ages / np.maximum(n_gathered, 1.0))


@dataclass(frozen=True, slots=True)
class _Expected:
    """Changes with each number of workers against the present one: arrays of shape (n_plans,).

    `first_low` are the low ends of the changes of AUC against the plan that the job was submitted with.
    """

    auc: Changes
    loss: Changes
    curves: tuple[QualityCurve, ...]
    first_low: Array


def quality_changes(s: Situation, n_worker: Sequence[int]) -> dict[int, QualityChange | None]:
    """Return what each number of workers changes, by that number; None: not known yet."""
    numbers = sorted(set(n_worker))
    ages = ages_of(s.spec, way_of(s.spec), np.array([*numbers, s.plan.worker.count]))
    age_now = float(ages[-1])
    by_age = [_no_change(float(age), age_now) for age in ages]
    own = _expected(s, np.array(numbers))
    others = {} if own is None else _other_ways(s, np.array(numbers), own.curves)
    return {
        n: by_age[i] if _is_same(s, n) else _change(i, by_age[i], own, others) for i, n in enumerate(numbers)
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


def _is_same(s: Situation, n_worker: int) -> bool:
    """Whether a number of workers trains as the present one does."""
    shares_batch = s.spec.sync in IN_STEP and s.spec.shared_batch is not None
    return n_worker == s.plan.worker.count or shares_batch


def _no_change(age: float, age_now: float) -> QualityChange:
    return QualityChange(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, age, age_now)


@lru_cache(maxsize=256)
def _fitted(curve: QualityCurve) -> FittedCurve:
    return FittedCurve(curve)


def _expected(s: Situation, n_worker: Array) -> _Expected | None:
    """Return what each number of workers changes, in the job's own way; None: not known."""
    way = way_of(s.spec)
    curves = tuple(curve for curve in s.curves if curve.way == way)
    if not curves or s.spec.sync in IN_STEP or s.spec.foreign is not None:
        return None
    ages = ages_of(s.spec, way, n_worker)
    now, first = ages_of(s.spec, way, np.array([s.plan.worker.count, s.spec.plan.worker.count])).tolist()

    def both(measure: Callable[[FittedCurve], Changes]) -> Changes:
        whole = combined([measure(_fitted(curve)).widened(_transfer(s, curve)) for curve in curves])
        assert whole is not None
        return whole

    return _Expected(
        both(lambda fit: fit.auc(ages, now)),
        both(lambda fit: fit.loss(ages, now)),
        curves,
        both(lambda fit: fit.auc(ages, first)).low,
    )


def _other_ways(s: Situation, n_worker: Array, own: Sequence[QualityCurve]) -> dict[str, Changes]:
    """Return the change of AUC with each number of workers in other ways, against the plan that runs.

    Only of curves that were measured beside one of the job's own way: what both have at age 0 is compared.
    """
    now = np.array([s.plan.worker.count])
    changes: dict[str, list[Changes]] = {}
    for curve in s.curves:
        beside = next((each for each in own if _runs(each) == _runs(curve)), None)
        if beside is None or curve.way == beside.way:
            continue
        there = _fitted(curve).auc(ages_of(s.spec, curve.way, n_worker))
        here = _fitted(beside).auc(ages_of(s.spec, beside.way, now))
        mean = there.mean - here.mean + curve.base_auc - beside.base_auc
        change = Changes(mean, np.hypot(there.deviation, here.deviation))
        changes.setdefault(curve.way, []).append(change.widened(_transfer(s, curve)))
    return {way: whole for way, each in changes.items() if (whole := combined(each)) is not None}


def _runs(curve: QualityCurve) -> tuple[object, ...]:
    """Return what runs of two ways must have in common."""
    return curve.origin, curve.n_row, curve.n_epoch, curve.learning_rate, curve.optimizer


def _transfer(s: Situation, curve: QualityCurve) -> Array:
    """Return how far changes may differ in this job from those of a curve, as a share of them.

    Batches are compared at one worker: a curve of workers that share a global batch has how it shrinks.
    """
    return _fitted(curve).transfer(s.n_sample_total or s.n_sample_left, s.spec.batch_of(1))


def _change(
    i: int, same: QualityChange, own: _Expected | None, others: Mapping[str, Changes]
) -> QualityChange | None:
    if own is None:
        return None
    ways = ((way, float(e.mean[i]), float(e.low[i]), float(e.high[i])) for way, e in sorted(others.items()))
    return replace(
        same,
        auc=float(own.auc.mean[i]),
        auc_low=float(own.auc.low[i]),
        auc_high=float(own.auc.high[i]),
        loss=float(own.loss.mean[i]),
        loss_low=float(own.loss.low[i]),
        loss_high=float(own.loss.high[i]),
        origins=tuple(sorted({curve.origin for curve in own.curves})),
        first_low=float(own.first_low[i]),
        n_row=max(curve.n_row * curve.n_epoch for curve in own.curves),
        ways=tuple(WayChange(*each) for each in ways),
    )
