"""Speeds measured on a real cluster over workers and PS, as the truth of simulated jobs.

They are over (number of PS, number of workers), and interpolated between them. Outside the measured range the
nearest measured plan counts, and that is noted, because any extrapolation would be invented.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.interpolate import LinearNDInterpolator

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.training.samples import TimeSplit

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.plan.resources import ResourcePlan


class TableTruth:
    """Measured speeds over (PS, workers), linear in logarithms between them.

    Parameters
    ----------
    n_ps, n_worker, samples_per_s
        One entry per measured plan; a plan measured more than once counts by its geometric mean.
    name
        Of the measured job.

    Attributes
    ----------
    n_clamped
        Number of different plans requested outside the measured range so far.

    Notes
    -----
    CPU and memory per node were constant when the tables were measured: they do not matter here. Between
    measured plans the logarithm of the speed is linear in the logarithms of both counts on the triangles of
    a Delaunay triangulation; on the grid itself it is exactly what was measured.
    """

    def __init__(
        self, n_ps: list[int], n_worker: list[int], samples_per_s: list[float], *, name: str = ""
    ) -> None:
        self.name = name
        self._measured = _means(n_ps, n_worker, samples_per_s, name)
        self._at = np.log(np.array(list(self._measured), dtype=np.float64))
        self._log_speed = np.log(np.array(list(self._measured.values())))
        self._between = LinearNDInterpolator(self._at, self._log_speed) if _spans_plane(self._at) else None
        self._cache: dict[tuple[int, int], float] = dict(self._measured)
        self.n_clamped = 0
        rates = [(speed / w, speed / p) for (p, w), speed in self._measured.items()]
        self._most_of_worker, self._most_of_ps = (max(rate) for rate in zip(*rates, strict=True))

    @property
    def plans(self) -> tuple[tuple[int, int], ...]:
        """The measured plans as (PS, workers)."""
        return tuple(self._measured)

    def is_measured(self, plan: ResourcePlan) -> bool:
        """Whether the speed of a plan comes from the table itself."""
        return (plan.ps.count, plan.worker.count) in self._measured

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:  # noqa: ARG002 - see below
        """Return samples per second; independent of the batch size, which was fixed in the measurement."""
        key = plan.ps.count, plan.worker.count
        if key not in self._cache:
            self._cache[key] = self._interpolate(np.log(np.array(key, dtype=np.float64)))
        return self._cache[key]

    def speed_served(self, plan: ResourcePlan, batch_size: int, times: float) -> float:  # noqa: ARG002 - see below
        """Return the measured speed: the tables do not say what a step waits for."""
        return self.speed(plan, batch_size)

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        """Return T_iter as one part: its parts were not measured."""
        return TimeSplit(other_s=plan.worker.count * batch_size / self.speed(plan, batch_size))

    def used_cores(self, plan: ResourcePlan, batch_size: int) -> tuple[float, float]:
        """Return the cores that a worker and a PS keep busy.

        Notes
        -----
        The tables say how fast plans were. A node counts as fully busy in the plan in which it did most, and
        elsewhere in proportion to what it does: cores follow the speed (NEARCHUS, Fig. 2).
        """
        speed = self.speed(plan, batch_size)
        worker = min(speed / plan.worker.count / self._most_of_worker, 1.0)
        return plan.worker.cpu * worker, plan.ps.cpu * min(speed / plan.ps.count / self._most_of_ps, 1.0)

    def _interpolate(self, at: NDArray[np.float64]) -> float:
        inside = np.nan if self._between is None else float(self._between(at[None, :])[0])
        if not np.isnan(inside):
            return float(np.exp(inside))
        self.n_clamped += 1
        nearest = int(((self._at - at) ** 2).sum(axis=1).argmin())
        return float(np.exp(self._log_speed[nearest]))


def _means(
    n_ps: list[int], n_worker: list[int], speeds: list[float], name: str
) -> dict[tuple[int, int], float]:
    if not speeds or not len(n_ps) == len(n_worker) == len(speeds):
        raise InvalidValueError(
            f"a table of speeds needs as many PS counts, worker counts and speeds, at least one of each, "
            f"got {len(n_ps)}, {len(n_worker)}, {len(speeds)} for {name or 'a job'}"
        )
    log_speeds: dict[tuple[int, int], list[float]] = {}
    for p, w, speed in zip(n_ps, n_worker, speeds, strict=True):
        log_speeds.setdefault((p, w), []).append(float(np.log(speed)))
    return {key: float(np.exp(np.mean(logs))) for key, logs in sorted(log_speeds.items())}


def _spans_plane(at: NDArray[np.float64]) -> bool:
    return len(at) >= 3 and int(np.linalg.matrix_rank(at - at[0])) == 2


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """A measured job: its table, batch size and model size."""

    truth: TableTruth
    global_batch: int
    model_mib: float


def read_tables(path: Path) -> dict[str, MeasuredJob]:
    """Read measured speeds from a CSV file such as DL2's testbed, by model; failed rows are left out.

    The columns used are model, num_ps, num_worker, speed_total, global_batch, model_size_mb, and failed.

    Raises
    ------
    InvalidValueError
        When a column is missing.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    needed = {"model", "num_ps", "num_worker", "speed_total", "global_batch", "model_size_mb"}
    missing = needed - set(rows[0] if rows else ())
    if missing:
        raise InvalidValueError(
            f"{path.name} must have the columns {sorted(needed)}, got none of {sorted(missing)}"
        )
    good = [row for row in rows if row.get("failed", "0") != "1" and float(row["speed_total"]) > 0]
    return {name: _measured_job(name, good) for name in sorted({row["model"] for row in good})}


def _measured_job(name: str, rows: list[dict[str, str]]) -> MeasuredJob:
    own = [row for row in rows if row["model"] == name]
    table = TableTruth(
        [int(row["num_ps"]) for row in own],
        [int(row["num_worker"]) for row in own],
        [float(row["speed_total"]) for row in own],
        name=name,
    )
    return MeasuredJob(table, int(own[0]["global_batch"]), float(own[0]["model_size_mb"]))
