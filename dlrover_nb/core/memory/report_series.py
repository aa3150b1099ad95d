"""Reports of memory over the whole time of a plan, in a bounded number.

Fifty nodes that report each second would fill a ring of the latest reports in seconds, and growth laws need
the whole series: so one report is kept for each interval of time, and the interval doubles whenever there are
too many reports. The newest report is always kept, as it defines "as now".
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs import _check

N_KEPT = 600
FIRST_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Report:
    """Memory of the largest node of a role at one time, and the samples trained by then."""

    at_s: float
    n_sample: int
    memory_mib: float

    def __post_init__(self) -> None:
        _check.at_least("n_sample", self.n_sample, 0)
        _check.at_least("memory_mib", self.memory_mib, 0)


class MemorySeries:
    """Keeps at most `n_kept` reports, evenly spread over time, and the newest one."""

    def __init__(self, n_kept: int = N_KEPT) -> None:
        _check.at_least("n_kept", n_kept, 2)
        self._n_kept = n_kept
        self._every_s = FIRST_EVERY_S
        self._kept: list[Report] = []
        self._newest: Report | None = None

    def add(self, report: Report) -> None:
        """Add a report; one that is older than the newest is late, and ignored."""
        if self._newest is not None and report.at_s < self._newest.at_s:
            return
        self._newest = report
        if self._kept and report.at_s - self._kept[-1].at_s < self._every_s:
            return
        self._kept.append(report)
        if len(self._kept) > self._n_kept:
            self._kept = self._kept[::2]
            self._every_s = max(2 * self._every_s, self._kept[1].at_s - self._kept[0].at_s)

    @property
    def reports(self) -> tuple[Report, ...]:
        """The kept reports, oldest first; samples trained never fall (work done again is not new work)."""
        newest = self._newest
        rows = [*self._kept]
        if newest is not None and newest is not rows[-1]:
            rows.append(newest)
        for i in range(1, len(rows)):
            if rows[i].n_sample < rows[i - 1].n_sample:
                rows[i] = Report(rows[i].at_s, rows[i - 1].n_sample, rows[i].memory_mib)
        return tuple(rows)

    @property
    def span_s(self) -> float:
        """Seconds from the first to the newest report."""
        return self._newest.at_s - self._kept[0].at_s if self._newest is not None else 0.0
