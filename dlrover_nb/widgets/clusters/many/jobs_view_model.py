"""View model of many jobs: one query per tick for all of them, and each job's history once.

Histories are fetched in sequence on a separate thread, since each is thousands of rows; the view shows what
it has meanwhile. Readers get one consistent `JobsViewState`.
"""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.widgets.clusters.many.grid import Grid
from dlrover_nb.widgets.clusters.many.job_rows import JobReading, JobsViewState, drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.structs.views.summary import JobSummary

FORGET_S = 60.0  # a job without a summary for so long is gone
CAPACITY_EVERY = 10  # ticks: machines change rarely
_HISTORY = ThreadPoolExecutor(1, thread_name_prefix="dlrover-history")


class _SharedTime:
    """One time for a chart of many jobs, whose masters' clocks may be hours apart.

    It begins as the latest time of all jobs, and then passes with the time of one job, as long as that job's
    time passes. The latest time of each tick was rejected: when the job whose clock is ahead leaves, the
    chart stands still until the others have caught up. The viewer's own clock was rejected: simulated time is
    faster.

    Attributes
    ----------
    now_s
        The present time, by the clock of the job that was ahead at first.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._times: dict[str, float] = {}
        self._job = ""  # whose time it passes with

    def advance(self, times: Mapping[str, float]) -> float:
        """Note the present time of each job (0: none); return the chart's time."""
        moved = {name: at_s for name, at_s in times.items() if at_s > self._times.get(name, at_s) > 0}
        if not self.now_s:
            self.now_s = max(times.values())
        elif moved:
            self._job = self._job if self._job in moved else min(moved)
            self.now_s += moved[self._job] - self._times[self._job]
        self._times = dict(times)
        return self.now_s

    def shift_s(self, job: str) -> float:
        """Return what to add to the times of a job, so that its present is the chart's."""
        at_s = self._times.get(job, 0.0)
        return self.now_s - at_s if at_s else 0.0


class JobsViewModel:
    """The newest state of all jobs of a cluster.

    Parameters
    ----------
    cluster
        Where they run.
    monotonic
        A monotonic clock in seconds; ages use it because masters' clocks may differ from ours.
    """

    def __init__(self, cluster: Cluster, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._monotonic = cluster, monotonic
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._grid = Grid()
        self._heard: dict[str, tuple[JobSummary, float]] = {}
        self._origin_s, self._time = 0.0, _SharedTime()
        self._error, self._answered_s, self._n_fetch = "", monotonic(), 0
        self._capacity, self._description = cluster.capacity(), cluster.description
        self._read()

    def fetch(self) -> None:
        """Fetch updates; an error of the cluster is kept for display."""
        with self._fetching:
            try:
                self._read()
            except DlroverError as error:
                with self._lock:
                    self._error = str(error).splitlines()[0]

    def _read(self) -> None:
        summaries = self._cluster.live_jobs()
        self._n_fetch += 1
        if self._n_fetch % CAPACITY_EVERY == 0:
            self._capacity = self._cluster.capacity()
        with self._lock:
            new = self._take(summaries)
        for name in new:
            _HISTORY.submit(self._fill, name, self._time.shift_s(name))

    def state(self) -> JobsViewState:
        """Return the present state."""
        with self._lock:
            now_s = self._monotonic()
            return JobsViewState(
                self._description,
                self._capacity,
                self._jobs(now_s),
                self._grid.copy(),
                self._origin_s,
                now_s - self._answered_s,
                self._error,
            )

    def _jobs(self, now_s: float) -> tuple[JobReading, ...]:
        return tuple(JobReading(job, now_s - heard_s) for job, heard_s in self._heard.values())

    def _take(self, summaries: tuple[JobSummary, ...]) -> list[str]:
        """Store summaries; return the jobs whose lines are new."""
        now_s = self._answered_s = self._monotonic()
        self._error = ""
        for job in summaries:
            latest = self._heard.get(job.name)
            is_news = latest is None or latest[0].at_s != job.at_s or job.phase.is_final
            self._heard[job.name] = (job, now_s if latest is None or is_news else latest[1])
        self._heard = {name: latest for name, latest in self._heard.items() if now_s - latest[1] < FORGET_S}
        return self._tick(summaries, now_s) if summaries else []

    def _tick(self, summaries: tuple[JobSummary, ...], now_s: float) -> list[str]:
        jobs = self._jobs(now_s)
        before, lines = self._grid.names, drawn(jobs)
        for name in before.difference(lines):
            self._grid.drop(name)
        at_s = self._time.advance({job.name: job.at_s for job in summaries})
        if not before:
            self._begin(summaries, at_s)
        speeds = {heard.summary.name: speed(heard) for heard in jobs}
        self._grid.add(at_s, {name: speeds[name] for name in lines})
        return [name for name in lines if name not in before]

    def _begin(self, summaries: tuple[JobSummary, ...], at_s: float) -> None:
        """Let the chart begin at the start of the oldest running job, or the oldest of all."""
        running = [job for job in summaries if not job.phase.is_final] or summaries
        starts_s = (job.started_at_s + self._time.shift_s(job.name) for job in running)
        from_s = min(at_s, *starts_s)  # no time is before the chart's origin
        self._grid.open_back(from_s, at_s)
        self._origin_s = min(from_s, self._origin_s or from_s)

    def _fill(self, name: str, shift_s: float) -> None:
        """Fetch a job's history; empty for a job that is gone meanwhile."""
        try:
            job = self._cluster.job(name).series(0).job
        except DlroverError:
            return
        with self._lock:
            times_s = [at_s + shift_s for at_s in job.get("at_s", [])]
            self._grid.fill(name, times_s, job.get("samples_per_s", []))


def speed(heard: JobReading) -> float:
    """Return a job's throughput for its line; NaN, a gap, where it is unknown."""
    job = heard.summary
    return math.nan if job.phase.is_final or heard.is_stale else round(job.samples_per_s, 1)
