"""From runs to curves: paired differences, so that what seeds have in common does not count as error.

All runs of one seed begin with the same parameters and read the same batches in the same order. Their
differences so vary far less than their values: the error of a point is that of the mean of these differences.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.rehearsal.ways import batch_of
from dlrover_nb.core.structs.training.quality import CurveOrigin, QualityCurve, QualityPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.rehearsal.runs import Run
    from dlrover_nb.core.rehearsal.ways import WayName
    from dlrover_nb.core.structs.job.job import JobSpec

LEAST_SEEDS = 2  # one says nothing of how much differences vary


def curve_of(runs: Sequence[Run], way: WayName, spec: JobSpec, *, n_row: int, n_epoch: int) -> QualityCurve:
    """Return the curve of one way; its points are those beyond a single worker.

    Parameters
    ----------
    runs
        Of all ways and delays. A seed counts where it has the run of a single worker too.
    n_row, n_epoch
        Rows of one pass, and passes.

    Raises
    ------
    InvalidValueError
        When no delay has runs of two seeds.
    """
    by_workers = points_by_workers(runs, way)
    bases = [r for r in runs if r.way == way and r.delay.n_worker == 1 and not r.has_diverged]
    if not by_workers:
        raise InvalidValueError(
            f"a curve needs runs of {LEAST_SEEDS} seeds with one worker and with more, got {len(bases)}; "
            "let the rehearsal run longer"
        )
    points = {point.age: point for point in by_workers.values()}
    return QualityCurve(
        way=str(way),
        origin=CurveOrigin.REHEARSAL,
        batch_size=batch_of(way, spec, 1),
        n_row=n_row,
        n_epoch=n_epoch,
        learning_rate=spec.model.learning_rate,
        optimizer=spec.model.optimizer,
        base_loss=float(np.mean([run.loss for run in bases])),
        base_auc=float(np.mean([run.auc for run in bases])),
        points=tuple(points[age] for age in sorted(points)),
    )


def points_by_workers(runs: Sequence[Run], way: WayName) -> dict[int, QualityPoint]:
    """Return the point of each number of workers above 1 that has runs of two seeds, in order.

    Runs that diverged have no quality, and are left out.
    """
    mine = [run for run in runs if run.way == way and not run.has_diverged]
    bases = {run.seed: run for run in mine if run.delay.n_worker == 1}
    points = {}
    for n_worker in sorted({run.delay.n_worker for run in mine} - {1}):
        own = [run for run in mine if run.delay.n_worker == n_worker and run.seed in bases]
        if len(own) >= LEAST_SEEDS:
            points[n_worker] = _point([(bases[run.seed], run) for run in own])
    return points


def _point(pairs: Sequence[tuple[Run, Run]]) -> QualityPoint:
    loss, loss_error = _mean([run.loss - base.loss for base, run in pairs])
    auc, auc_error = _mean([run.auc - base.auc for base, run in pairs])
    age = float(np.mean([run.age for _, run in pairs]))
    return QualityPoint(age, loss, auc, loss_error, auc_error, len(pairs))


def _mean(differences: Sequence[float]) -> tuple[float, float]:
    """Return a mean and its standard error."""
    values = np.asarray(differences)
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
