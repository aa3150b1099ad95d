"""A job's time series, rolled up for the history: one row a minute, however often nodes report.

Permanent data must be small: the speed is the mean over the row, memory the largest of any node, because that
is the one that is killed, and cores the most that any node used in one report, because that is what it needs.
Each report costs a few comparisons; no report is read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import Remember
from dlrover_nb.core.structs.views.past_jobs import SeriesRow

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.samples import NodeSample

LEAST_S = 1.0  # of a last row: shorter ones are not significant


class Rollup:
    """Rolls up the reports of one job.

    Parameters
    ----------
    row_s
        Seconds of a row; where no report arrives for longer, the row is that long.
    at_s
        When the first row begins.
    """

    def __init__(self, row_s: float, at_s: float) -> None:
        self._row_s = row_s
        self._began_s = at_s
        self._n_sample = 0
        self._worker_mib = self._ps_mib = self._worker_cpu = self._ps_cpu = 0.0

    def add(self, sample: NodeSample) -> None:
        """Add a report."""
        if sample.role is Role.WORKER:
            self._n_sample += sample.n_sample
            self._worker_mib = max(self._worker_mib, sample.memory_mib)
            self._worker_cpu = max(self._worker_cpu, sample.cpu_cores)
        else:
            self._ps_mib = max(self._ps_mib, sample.memory_mib)
            self._ps_cpu = max(self._ps_cpu, sample.cpu_cores)

    def close(self, plan: ResourcePlan, at_s: float, *, is_last: bool = False) -> tuple[Remember, ...]:
        """Return the row once it is full, or at the end of the job; `plan` is what should run."""
        span_s = at_s - self._began_s
        if span_s < (LEAST_S if is_last else self._row_s):
            return ()
        row = SeriesRow(
            at_s=at_s,
            span_s=span_s,
            samples_per_s=self._n_sample / span_s,
            workers=plan.worker.count,
            ps=plan.ps.count,
            worker_memory_mib=self._worker_mib,
            ps_memory_mib=self._ps_mib,
            worker_cpu=self._worker_cpu,
            ps_cpu=self._ps_cpu,
        )
        self._began_s = at_s
        self._n_sample = 0
        self._worker_mib = self._ps_mib = self._worker_cpu = self._ps_cpu = 0.0
        return (Remember(at_s, row),)
