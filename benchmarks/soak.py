"""A real job of half an hour under random faults of every kind, and a simulated week of 1,000 workers.

The job trains a stream of rows with processes of this machine: a detached master, workers and parameter
servers. A seeded generator kills and stops them, fills the disks under run folder and checkpoints, sets
their clocks, spoils rows and changes the plan, each printed as it happens. Then the stream ends, and two
independent witnesses are asked whether each row was trained: the account of rows, and the parameters, of
which one counts the rows that were applied (`soak_rows`). Mounting disks needs root, setting clocks a C
compiler; without them those faults are left out, and the last line says so.

The week (`soak_week`) writes and replays the records of a job of 1,000 workers.

    python benchmarks/soak.py [--minutes 30 --seed 0] [--burst-s 15] [--no-week]

The last line is JSON. `lost_shards` are shards that the account does not hold as done, `rows_exact` says that
it holds each row once; `rows_never` and `rows_again` are what the parameters say: rows that were not applied
although no batch of theirs was reported as skipped, and rows that were applied twice, which a killed worker
may cause that had not yet told of its last batches. `replay_s`, `journal_mb` and `master_rss_growth_mib` are
of the week; `job_` before a name means the real job.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lengths import parsed, print_figures
from soak_faults import FAULTS, names
from soak_job import BATCH, PIECE, rss_mib, soaked
from soak_rows import RATE
from soak_witness import witnessed

from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from soak_faults import Fault
    from soak_job import SoakJob

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

POLL_S = 0.25
SAMPLE_S = 10.0
BETWEEN_S = (4.0, 20.0)  # from the begin of one fault to the next
START_LIMIT_S = 300.0
END_LIMIT_S = 1200.0
MARGIN_SHARDS = 64  # between the last granted shard and the end of the stream
WEEK = Path(__file__).with_name("soak_week.py")


@dataclass
class Notes:
    """What is noted while faults fall."""

    n_faults: Counter[str] = field(default_factory=Counter)
    master_back_s: list[float] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    journal_mb: float = 0.0
    killed_at_s: float | None = None


class Soak:
    """Lets faults fall on a job, one begun after the other; those that last overlap."""

    def __init__(self, job: SoakJob, seed: int) -> None:
        self._job, self._rng, self._began_s = job, random.Random(seed), time.monotonic()
        self._following = names(self._rng)
        self._under_way: list[tuple[float, Fault]] = []
        self.notes = Notes()
        self._sampled_s = 0.0

    def run(self, minutes: float) -> JobSnapshot | None:
        """Let faults fall for so long; return the state in which the job ended early, if it did."""
        end_s = self._began_s + 60 * minutes
        next_s, name = time.monotonic(), self._following()
        while (at_s := time.monotonic()) < end_s:
            now = self.turn(at_s)
            if now is not None and now.phase.is_final:
                return now
            if now is not None and at_s >= next_s:
                self._begin(name, now)
                next_s, name = at_s + self._rng.uniform(*BETWEEN_S), self._following()
            time.sleep(POLL_S)
        for _, fault in self._under_way:
            self._end(fault)
        self._under_way.clear()
        return None

    def turn(self, at_s: float) -> JobSnapshot | None:
        """End what is over, look at the job, and take a sample now and then."""
        for each in [each for each in self._under_way if at_s >= each[0]]:
            self._under_way.remove(each)
            self._end(each[1])
        now = self._job.look()
        if now is not None and self.notes.killed_at_s is not None:
            self.notes.master_back_s.append(time.monotonic() - self.notes.killed_at_s)
            self.notes.killed_at_s = None
        if at_s >= self._sampled_s + SAMPLE_S:
            self._sampled_s = at_s
            self._sample(now)
        return now

    def _begin(self, name: str, now: JobSnapshot) -> None:
        fault = FAULTS[name](self._job, now, self._rng)
        if fault is None:
            return
        self.notes.n_faults[name] += 1
        self._say(f"{fault.what}" + f" for {fault.lasts_s:.1f} s" * (fault.end is not None))
        if name in {"kill_master", "kill_all"}:
            self.notes.killed_at_s = time.monotonic()
        if fault.end is not None:
            self._under_way.append((time.monotonic() + fault.lasts_s, fault))

    def _end(self, fault: Fault) -> None:
        assert fault.end is not None
        fault.end()
        self._say(f"no longer: {fault.what}")

    def _sample(self, now: JobSnapshot | None) -> None:
        self.notes.journal_mb = max(self.notes.journal_mb, self._job.journal_mb())
        if (mib := rss_mib(self._job.master)) is not None:
            self.notes.rss_mib.append(mib)
        if now is not None:
            nodes = ", ".join(f"{node.id} {node.state}" for node in now.nodes)
            self._say(f"    {now.phase}, {now.train.n_sample_done:,} rows; {nodes}; {now.message}")

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:7.1f} {text}", flush=True)


def until(soak: Soak, limit_s: float, *, is_end: bool) -> JobSnapshot:
    """Wait until the job trains, or has ended."""
    end_s = time.monotonic() + limit_s
    while True:
        now = soak.turn(time.monotonic())
        if now is not None and (now.phase.is_final if is_end else now.train.n_sample_done):
            return now
        if time.monotonic() > end_s or (now is not None and now.phase.is_final):
            raise SystemExit(f"it did not come to that: {now and now.message}\n" + _story(now))
        time.sleep(POLL_S)


def _story(now: JobSnapshot | None) -> str:
    return "\n".join(now.story if now else ())


def measured(job: SoakJob, minutes: float, seed: int) -> dict[str, object]:
    """Soak the job, end its rows, and return all figures of it."""
    soak = Soak(job, seed)
    until(soak, START_LIMIT_S, is_end=False)
    now = soak.run(minutes)
    n_row = 0
    if now is None:
        before = until(soak, START_LIMIT_S, is_end=False)
        n_row = before.train.n_sample_total + MARGIN_SHARDS * PIECE + random.Random(seed).randrange(PIECE)
        job.end_rows_at(n_row)
        now = until(soak, END_LIMIT_S, is_end=True)
    train, notes = now.train, soak.notes
    lost = math.ceil(n_row / PIECE) - train.done
    is_exact = not lost and train.done == train.total and train.n_sample_done == train.n_sample_total == n_row
    print("\n".join(now.story), flush=True)
    found: dict[str, object] = {
        "phase": str(now.phase),
        "message": now.message,
        "minutes": minutes,
        "seed": seed,
        "n_fault": notes.n_faults.total(),
        "n_faults": dict(sorted(notes.n_faults.items())),
        "left_out": sorted(FAULTS.keys() - notes.n_faults.keys()),
        "lost_shards": lost,
        "rows_exact": is_exact,
        "shards": train.total,
        "rows": n_row,
        "returned": train.returned,
        "refused": train.refused,
        "skipped_batches": len(job.skipped),
        "n_spoilt": job.n_spoilt,
        "longest_still_s": round(job.longest_still_s, 1),
        "master_back_s_median": _median(notes.master_back_s),
        "master_back_s_max": round(max(notes.master_back_s, default=math.nan), 1),
        "job_journal_mb": round(notes.journal_mb, 1),
        "job_master_rss_mib": _quarters(notes.rss_mib),
    }
    if now.phase is JobPhase.SUCCEEDED:
        found |= witnessed(job.folder, n_row, tuple(job.skipped), BATCH, job.spec.seed)
    return found


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 1) if values else math.nan


def _quarters(values: list[float]) -> list[float]:
    """Return the median of each quarter of the time."""
    n = max(len(values) // 4, 1)
    return [round(statistics.median(values[i : i + n]), 1) for i in range(0, n * (len(values) // n), n)]


def week(burst_s: int, n_worker: int) -> dict[str, object]:
    """Return the figures of the simulated week, from a process of its own: its memory is measured."""
    command = [sys.executable, str(WEEK), "--burst-s", str(burst_s), "--workers", str(n_worker), "--whole"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = ""
        for line in process.stdout:
            print(line, end="", flush=True)
    if process.returncode:
        raise SystemExit("the simulated week failed")
    found: dict[str, object] = json.loads(line)
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=0.5, help="of faults on the real job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--burst-s", type=int, default=15, help="of reports in each three hours of the week")
    parser.add_argument("--workers", type=int, default=1000, help="of the week's job")
    parser.add_argument("--no-week", action="store_true", default=True, help="the real job alone")
    options = parsed(parser, minutes=30.0, no_week=False)
    began_s = time.monotonic()
    found: dict[str, object] = {"benchmark": "soak"}
    with tempfile.TemporaryDirectory(prefix="dlr") as name, soaked(Path(name), RATE) as job:
        found |= measured(job, options.minutes, options.seed)
    if not options.no_week:
        found |= week(options.burst_s, options.workers)
    print_figures("soak", found | {"seconds": round(time.monotonic() - began_s, 1)})
    if not found["rows_exact"] or found.get("rows_never"):
        raise SystemExit(f"rows were lost: {found['message']}")


if __name__ == "__main__":
    main()
