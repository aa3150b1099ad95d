"""What the journal of a day keeps on the disk, and how long a master that restarts reads it.

A job of `--workers` workers (and a PS for each 25) reports once a second and node, as real ones do, to the
records that every master has (`RecordedController`): controller, journal in segments, telemetry, history. Its
size and the time of a restart settle within a few segments, and do not depend on how much was written before;
so `--segments` of them are written, and a day's events are those of a second times 86,400. Without snapshots
a restart replays all of a day: its size follows from the measured bytes of an event, its time from a full
replay of the same events in one file, as a release before snapshots wrote them.

`--whole-day N` writes each event of a day of N workers, without that assumption.

    python benchmarks/journal.py [--workers 1000 --segments 6] [--whole-day 2]

The last line is JSON: `replay_s` and `journal_mb` of the 1,000 workers at the worst moment (a segment that is
full), `replay_cpu_s` of the processor alone, which other programs do not change, `plain_replay_s` and
`plain_journal_mb` without snapshots, `rotation_s` the pause of one rotation, `event_us` the cost of an event
with all records, `worker_16` the same figures for 16 workers.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from lengths import parsed, print_figures

from dlrover_nb.core.driver.loop.recorded_controller import RecordedController
from dlrover_nb.core.rundir import journal
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import (
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

DAY_S = 86_400
WORKERS_OF_A_PS = 25
BATCH = 512


class Took(NamedTuple):
    """Seconds on the clock, and of the processor: on a busy machine they differ."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one job."""

    n_event_per_s: int
    event_bytes: float
    event_us: float
    rotation_s: float
    journal_mb: float
    replay: Took
    plain_us: float

    @property
    def n_day_event(self) -> int:
        """Events of a day."""
        return self.n_event_per_s * DAY_S

    def summary(self) -> dict[str, float]:
        """Return what is printed, the day without snapshots beside it."""
        return {
            "replay_s": round(self.replay.wall_s, 2),
            "replay_cpu_s": round(self.replay.cpu_s, 2),
            "journal_mb": round(self.journal_mb, 1),
            "plain_replay_s": round(self.n_day_event * self.plain_us / 1e6),
            "plain_journal_mb": round(self.n_day_event * self.event_bytes / 1e6),
            "event_bytes": round(self.event_bytes),
            "event_us": round(self.event_us, 1),
            "rotation_s": round(self.rotation_s, 3),
            "n_event_per_s": self.n_event_per_s,
        }


def seconds(n_worker: int, rng: np.random.Generator) -> Iterator[list[Event]]:
    """Yield the events of a job, second by second; the first are those of its start."""
    n_ps = max(n_worker // WORKERS_OF_A_PS, 1)
    plan = ResourcePlan(RolePlan(n_worker, 1.0, 2048), RolePlan(n_ps, 2.0, 4096))
    spec = JobSpec("day", owner="ada", plan=plan, mode=Mode.MANUAL)
    capacity = Capacity((NodeShape(96.0, 384 * 1024, max(n_worker // 40, 2)),))
    submitted = JobSubmitted(0.0, spec, capacity, 10**13, 10**6, 16)
    yield [submitted, PhaseChanged(0.0, JobPhase.TRAINING), PlanApplied(0.0, plan, 0.0)]
    names = [(f"worker-{i}", Role.WORKER) for i in range(n_worker)]
    names += [(f"ps-{i}", Role.PS) for i in range(n_ps)]
    n_done, at_s = 0, 0.0
    while True:
        at_s += 1.0
        noise = rng.normal(1.0, 0.03, len(names))
        reports: list[Event] = []
        for (name, role), factor in zip(names, noise, strict=True):
            arrived_s = at_s + 0.5 * float(factor) / len(names) * len(reports)
            reports.append(NodeReported(arrived_s, sample(name, role, arrived_s, float(factor)), plan))
        n_done += n_worker * 20 * BATCH
        yield [ProgressMade(at_s, n_done), *reports, Ticked(at_s + 0.9)]


def sample(name: str, role: Role, at_s: float, factor: float) -> NodeSample:
    is_worker = role is Role.WORKER
    iter_s = 0.0491234 * factor
    split = TimeSplit(0.0012 * factor, 0.0087 * factor, 0.0312 * factor, 0.0065 * factor, 0.0, 0.0005)
    return NodeSample(
        node=name,
        role=role,
        at_s=at_s,
        window_s=1.0003 * factor,
        n_iter=20,
        n_sample=20 * BATCH if is_worker else 0,
        iter_s=iter_s,
        split=split,
        cpu_cores=0.93 * factor,
        memory_mib=900.0 + at_s / 1000 + 3 * factor,
        parameter_mib=0.0 if is_worker else 512.0,
        n_row=0 if is_worker else 1_000_000,
        loss=0.45 * factor if is_worker else None,
        n_byte_sent=int(1.2e6 * factor),
        n_byte_received=int(1.1e6 * factor),
    )


def _opened(folder: Path) -> RecordedController:
    folder.mkdir(exist_ok=True)
    return RecordedController("day", folder, f"sqlite:///{folder.parent / 'history.db'}")


def size_mb(folder: Path) -> float:
    """Return the MB of a run folder's journal."""
    return sum(path.stat().st_size for path in folder.glob("journal*")) / 1e6


def replayed(folder: Path) -> tuple[Took, RecordedController]:
    """Return how long a restart reads the records of a run folder, and what it read."""
    recorded, began = _opened(folder), Took(time.perf_counter(), time.process_time())
    recorded.replay()
    return Took(time.perf_counter() - began.wall_s, time.process_time() - began.cpu_s), recorded


class Written:
    """The records of a job in a folder while they are written; notes the size at its largest, and pauses."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.recorded = folder, _opened(folder)
        self.n_event, self.n_segment, self.took_s = 0, 0, 0.0
        self.pauses_s: list[float] = []

    def emit(self, events: list[Event]) -> None:
        """Pass the events of one second."""
        for event in events:
            newest = self._newest()
            began_s = time.perf_counter()
            self.recorded.emit(event)
            took_s = time.perf_counter() - began_s
            self.n_event += 1
            self.took_s += took_s
            if self._newest() != newest:
                self.pauses_s.append(took_s)
                self.n_segment += 1

    def _newest(self) -> int:
        return self.recorded.segment

    @property
    def fill(self) -> float:
        """Share of the newest segment that is written."""
        return journal.segments(self.folder)[-1].n_byte / journal.SEGMENT_BYTES


def measured(n_worker: int, n_segment: int, folder: Path) -> Figures:
    """Write some segments, restart where the last is nearly full, and compare with one plain file."""
    events = seconds(n_worker, np.random.default_rng(0))
    written, plain = Written(folder / "segments"), folder / "plain"
    plain.mkdir()
    n_plain = 0
    with (plain / journal.JOURNAL).open("wb") as file:
        while written.n_segment < n_segment or written.fill < 0.97:
            several = next(events)
            written.emit(several)
            if written.n_segment < 2:
                n_plain += len(several)
                file.writelines(journal.to_line(event) for event in several)
    written.recorded.close()
    journal_mb = size_mb(written.folder)
    took, again = replayed(written.folder)
    assert again.controller.view() == written.recorded.controller.view()
    again.close()
    plain_took, whole = replayed(plain)
    whole.close()
    return Figures(
        n_event_per_s=len(several),
        event_bytes=(plain / journal.JOURNAL).stat().st_size / n_plain,
        event_us=1e6 * (written.took_s - sum(written.pauses_s)) / written.n_event,
        rotation_s=statistics.median(written.pauses_s),
        journal_mb=journal_mb,
        replay=took,
        plain_us=1e6 * plain_took.wall_s / n_plain,
    )


def whole_day(n_worker: int, folder: Path) -> dict[str, float]:
    """Write all events of a day; return the figures at its end."""
    written = Written(folder)
    for _, several in zip(range(DAY_S + 1), seconds(n_worker, np.random.default_rng(0)), strict=False):
        written.emit(several)
    written.recorded.close()
    took, again = replayed(folder)
    assert again.controller.view() == written.recorded.controller.view()
    again.close()
    return {
        "workers": n_worker,
        "n_event": written.n_event,
        "n_segment": written.n_segment,
        "replay_s": round(took.wall_s, 2),
        "journal_mb": round(size_mb(folder), 1),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--segments", type=int, default=2, help="to write before the restart")
    parser.add_argument(
        "--whole-day", type=int, default=0, metavar="N", help="write all of a day of N workers"
    )
    args = parsed(parser, segments=6)
    with tempfile.TemporaryDirectory(prefix="dlrover-nb-journal-") as folder:
        many = _case(args.workers, args.segments, Path(folder, "many"))
        few = _case(16, 2, Path(folder, "few"))
        day = whole_day(args.whole_day, Path(folder, "day")) if args.whole_day else {}
    print_figures(
        "journal", {"workers": args.workers} | many | {"worker_16": few} | ({"day": day} if day else {})
    )


def _case(n_worker: int, n_segment: int, folder: Path) -> dict[str, float]:
    folder.mkdir()
    found = measured(n_worker, n_segment, folder).summary()
    print(
        f"{n_worker} workers, a day: a restart reads {found['journal_mb']} MB in {found['replay_s']} s; "
        f"without snapshots {found['plain_journal_mb']} MB in {found['plain_replay_s']} s"
    )
    return found


if __name__ == "__main__":
    main()
