"""A simulated week of 1,000 workers: its records, time of a restart, memory of its master, by day.

The records are those of every master (`RecordedController`), the reports those of `journal.py`. A week of one
report a second and node would be 630 million events; here nodes report for `--burst-s` seconds each three
hours, as real ones do, and not in between. So all that depends on time (windows, forecasts, telemetry,
history) goes through a whole week, and all that depends on the number of events through some sixty segments
of the journal. A hundred nodes a day are lost and replaced by nodes with new names, and each day another plan
is applied and goes back: what is kept for each node that ever was would show as growth. The restart
at each day's end is that of a real master, in a process of its own: what a second master leaves in the heap
is not the growth of the one that is measured.

    python benchmarks/soak_week.py [--workers 1000 --days 3 --burst-s 15] [--whole]

The last line is JSON: `journal_mb` is the largest of the week, `replay_s` the slowest restart of one at each
day's end, `master_rss_growth_mib` the growth from the end of the second day to that of the last.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
from journal import BATCH, DAY_S, WORKERS_OF_A_PS, Took, Written, replayed, sample, size_mb
from lengths import parsed, print_figures

from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.events import (
    Decided,
    Event,
    JobSubmitted,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    ProgressMade,
    Ticked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.controller.decision_view import DecisionView

LOST_A_DAY = 100
SETTLED_DAY = 2  # rings and windows are full
BURST_EVERY_S = 3 * 3600
CHANGED_S, BACK_S = DAY_S // 3, DAY_S // 2  # of each day: another plan runs between the two
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Day:
    """The end of one day."""

    journal_mb: float
    replay_s: float
    replay_cpu_s: float
    rss_mib: float


class Nodes:
    """The nodes of a job: each has its name until it is lost."""

    def __init__(self, n_worker: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._n_named = dict.fromkeys(Role, 0)
        self.names: list[tuple[str, Role]] = []
        self._add(Role.WORKER, n_worker)
        self._add(Role.PS, max(n_worker // WORKERS_OF_A_PS, 1))

    def _add(self, role: Role, n: int) -> None:
        for _ in range(n):
            self.names.append((f"{role}-{self._n_named[role]}", role))
            self._n_named[role] += 1

    def lose(self, n: int) -> None:
        """Replace some nodes by new ones."""
        for _ in range(n):
            _, role = self.names.pop(int(self._rng.integers(len(self.names))))
            self._add(role, 1)

    def resize(self, n_worker: int) -> None:
        """Begin or end workers until there are so many."""
        workers = [each for each in self.names if each[1] is Role.WORKER]
        for gone in workers[n_worker:]:
            self.names.remove(gone)
        self._add(Role.WORKER, n_worker - len(workers))


def plan_of(n_worker: int) -> ResourcePlan:
    """Return the plan of so many workers."""
    n_ps = max(n_worker // WORKERS_OF_A_PS, 1)
    return ResourcePlan(RolePlan(n_worker, 1.0, 2048), RolePlan(n_ps, 2.0, 4096))


def bursts(n_worker: int, burst_s: int, rng: np.random.Generator) -> Iterator[list[Event]]:
    """Yield the events of a job, those of its start and then a burst at a time, without an end."""
    usual = plan_of(n_worker)
    other = replace(usual, worker=replace(usual.worker, count=n_worker * 9 // 10))
    spec = JobSpec("week", owner="ada", plan=usual, mode=Mode.MANUAL)
    capacity = Capacity((NodeShape(96.0, 384 * 1024, max(n_worker // 40, 2)),))
    yield [
        JobSubmitted(0.0, spec, capacity, 10**13, 10**6, 16),
        PhaseChanged(0.0, JobPhase.TRAINING),
        PlanApplied(0.0, usual, 0.0),
    ]
    nodes, plan, from_s = Nodes(n_worker, rng), usual, 0
    while True:
        from_s += BURST_EVERY_S
        changes: list[Event] = []
        wanted = other if CHANGED_S <= from_s % DAY_S < BACK_S else usual
        if wanted != plan:
            decision = Decision(Verdict.SCALE, "ada", from_s, plan=wanted)
            changes = [Decided(from_s, decision), PlanApplied(from_s + 0.1, wanted, 0.1)]
            plan = wanted
            nodes.resize(plan.worker.count)
        nodes.lose(rng.poisson(LOST_A_DAY * BURST_EVERY_S / DAY_S))
        reports = [each for i in range(burst_s) for each in _second(from_s + i, nodes, plan, rng)]
        yield [*changes, *reports]


def _second(from_s: int, nodes: Nodes, plan: ResourcePlan, rng: np.random.Generator) -> Iterator[Event]:
    """Yield what a master gets within one second."""
    yield ProgressMade(from_s + 0.2, from_s * plan.worker.count * BATCH)
    noise = rng.normal(1.0, 0.03, len(nodes.names))
    for i, ((name, role), factor) in enumerate(zip(nodes.names, noise, strict=True)):
        at_s = from_s + 0.3 + 0.5 * i / len(noise)
        yield NodeReported(at_s, sample(name, role, at_s, float(factor)), plan)
    yield Ticked(from_s + 0.9)


def _read(folder: Path) -> tuple[Took, DecisionView]:
    took, again = replayed(folder)
    view = again.controller.view()
    again.close()
    return took, view


def restarted(folder: Path) -> tuple[Took, DecisionView]:
    """Return how long a master that replaces the one of a folder takes, and its view."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_read, folder).result()


def days(n_worker: int, n_day: int, burst_s: int, folder: Path) -> Iterator[tuple[Day, Written]]:
    """Write the records of a job; yield the end of each day."""
    written, process = Written(folder), psutil.Process()
    events = bursts(n_worker, burst_s, np.random.default_rng(0))
    written.emit(next(events))
    largest_mb = 0.0
    for day in range(n_day):
        for _ in range(DAY_S // BURST_EVERY_S):
            written.emit(next(events))
            largest_mb = max(largest_mb, size_mb(folder))
        gc.collect()
        rss_mib = process.memory_info().rss / _MIB
        took, view = restarted(folder)
        assert view == written.recorded.controller.view(), f"day {day + 1}"
        yield Day(largest_mb, took.wall_s, took.cpu_s, rss_mib), written
    written.recorded.close()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--burst-s", type=int, default=15, help="of reports in each three hours")
    options = parsed(parser, days=7)
    ends: list[Day] = []
    with tempfile.TemporaryDirectory(prefix="dlr-week-") as name:
        for day, written in days(options.workers, options.days, options.burst_s, Path(name, "run")):
            ends.append(day)
            print(
                f"day {len(ends)}: {written.n_event:,} events, {written.n_segment} rotations, journal "
                f"{day.journal_mb:.1f} MB, restart {day.replay_s:.2f} s ({day.replay_cpu_s:.2f} s of the "
                f"processor), memory {day.rss_mib:.0f} MiB",
                flush=True,
            )
    settled = ends[min(SETTLED_DAY, len(ends)) - 1]
    print_figures(
        "soak_week",
        {
            "week_workers": options.workers,
            "week_burst_s": options.burst_s,
            "week_events": written.n_event,
            "week_segments": written.n_segment,
            "journal_mb": round(max(day.journal_mb for day in ends), 1),
            "replay_s": round(max(day.replay_s for day in ends), 2),
            "replay_cpu_s": round(max(day.replay_cpu_s for day in ends), 2),
            "master_rss_mib": [round(day.rss_mib) for day in ends],
            "master_rss_growth_mib": round(ends[-1].rss_mib - settled.rss_mib, 1),
        },
    )


if __name__ == "__main__":
    main()
