"""Migration of parameters on 1 -> 2 -> 1 PS while two workers train: their pause and its cost.

A real job of processes on this machine trains Wide&Deep on Census while its embedding table is filled with
untrained rows, 1 GiB of values and optimizer state in all. Then a PS is added and removed again by seamless
migration; with `--whole` once more by stop and restart, and with 4 GiB too. Every worker stamps every
iteration that its PS have acknowledged; from these stamps follow, for each change:

pause_ms            longest time between two iterations of one worker (`_master`: as the job master measures);
                    it began `pause_at_s` after the decision
switch_gap_ms       the same, but only around the moment at which the plan began to run: without what the
                    start of a process takes from the workers of a small machine
throughput_dip      lowest iterations in any one second, over the mean before
quiet_dip           the same of the seconds before, in which nothing moves: what the machine alone does
throughput_mean     iterations per second of the whole change, over the mean before
extra_pause_ms      pause_ms less the longest time between two iterations in the seconds before
move_s              from the decision until the plan runs, the start of a process included

At the top are the worst of both seamless moves, and with 4 GiB (`_4gib`) where the machine has the memory:
`extra_pause_ms`, and `lowest_second`, the worst throughput_dip; `lowest_quiet_second` is the worst quiet_dip.

    python benchmarks/migration.py [--gib 1 --seconds 5 --whole]
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lengths import parsed, print_figures

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import psutil
import zmq

from dlrover_nb.core.backends.local import backend
from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import make_features
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.rundir.job_file import read_job
from dlrover_nb.core.runtime.exchange.push_pull import Exchange
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, connect_dealer
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Migration, Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

LIMIT_S = 600.0
LARGE_GIB = 4.0  # moved too, where there is memory
LARGE_NEEDS = 2.5  # times its parameters: half of them twice while they move, and buffers
PS_MIB = 6144
FILL_ROWS = 1 << 15  # in one push
STAMP = struct.Struct("<d")
STAMPS = "DLROVER_NB_STAMPS"  # the nodes' variable with the folder of the stamps


def plan(n_ps: int) -> ResourcePlan:
    return ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(n_ps, 0.5, PS_MIB))


def run_node(config: str) -> int:
    """Run a worker that stamps its iterations; this file is then the program of its process."""
    from dlrover_nb.core.runtime.node import node
    from dlrover_nb.core.runtime.worker import trainer

    path = Path(os.environ[STAMPS]) / f"{Path(config).stem}.stamps"
    with path.open("ab", buffering=0) as file:

        def stamp(_loss: float) -> None:
            file.write(STAMP.pack(time.monotonic()))

        trainer.Trainer = partial(trainer.Trainer, on_loss=stamp)  # type: ignore[misc, assignment]
        return node.main([config])


def stamp_iterations() -> None:
    """Let workers of jobs of this process begin here, with `run_node`."""
    plain = backend._node_command  # noqa: SLF001 - there is no option for it

    def command(argument: str) -> list[str]:
        is_worker = Path(argument).stem.startswith(Role.WORKER)
        return [sys.executable, __file__, argument] if is_worker else plain(argument)

    backend._node_command = command  # noqa: SLF001 - as above


def stamps(folder: Path) -> list[np.ndarray]:
    """Return when each worker finished its iterations."""
    files = sorted(folder.glob("worker-*.stamps"))
    return [np.frombuffer(file.read_bytes()[: file.stat().st_size // 8 * 8], "<f8") for file in files]


class Job:
    """A job in a folder of its own."""

    def __init__(self, folder: Path, spec: JobSpec, features: FeatureSpec) -> None:
        self.folder, self.spec = folder, spec
        self.driver = own_job.begin(
            spec,
            features,
            own_job.RunSetup(
                LocalBackend(folder, cpus=4.0),
                folder,
                history_url=f"sqlite:///{folder.parent / 'history.db'}",
                clock=SystemClock(),
            ),
        )
        self.driver.start()

    def until(self, condition: Callable[[JobSnapshot], object]) -> JobSnapshot:
        end_s = time.monotonic() + LIMIT_S
        while not condition(now := self.driver.snapshot()):
            if now.phase.is_final or time.monotonic() > end_s:
                raise SystemExit(f"the job did not come so far: {now.phase}: {now.message}")
            time.sleep(0.05)
        return now

    def fill(self, first: int, n_row: int) -> None:
        """Fill the only PS with ids from `first` on by pushing zero gradients: no value changes."""
        now = self.until(lambda now: now.running == self.spec.plan)
        (pid,) = (each.pid for each in now.nodes if each.role is Role.PS)
        context = zmq.Context()
        job, width = read_job(self.folder), self.spec.model.row_width
        keys = JobKeys(job.public_key, job.secret_key)
        socket = connect_dealer(context, f"ipc://{self.folder}/ps-0.{pid}", "filler", keys)
        none = np.empty(0, np.int64), np.empty(0, np.float32)
        for step, start in enumerate(range(first, first + n_row, FILL_ROWS), 1):
            ids = np.arange(start, min(start + FILL_ROWS, first + n_row))
            arrays = [ids, np.zeros((len(ids), width), np.float32), none[1], none[0]]
            socket.send_multipart(encode(Exchange(1, step), arrays))
            decode(socket.recv_multipart())
        socket.close()
        context.term()

    def parameter_gib(self) -> float:
        mib = [each.last.parameter_mib or 0.0 for each in self.driver.snapshot().nodes if each.last]
        return sum(mib) / 1024


@dataclass(frozen=True)
class Change:
    """A change of the PS and its time on the monotonic clock."""

    decided_s: float
    running_s: float
    master_pause_s: float


def change(job: Job, n_ps: int, seconds: float) -> Change:
    """Scale the job to `n_ps` PS, and let it run some seconds more."""
    n_marker = len(job.driver.snapshot().markers)
    decided_s = time.monotonic()
    job.driver.decide(Decision(Verdict.SCALE, "benchmark", time.time(), plan=plan(n_ps)))
    job.until(lambda now: now.running == plan(n_ps) and len(now.markers) > n_marker)
    running_s = time.monotonic()
    time.sleep(seconds)
    return Change(decided_s, running_s, job.driver.snapshot().markers[-1].pause_s)


def measured(each: Change, all_stamps: list[np.ndarray], seconds: float) -> dict[str, float]:
    """Return the workers' figures of a change; the second after it counts too, as PS clean up then."""
    start, stop = each.decided_s, each.running_s + 1.0
    before = np.concatenate([s[(s >= start - seconds) & (s < start)] for s in all_stamps])
    during = np.concatenate([s[(s >= start) & (s < stop)] for s in all_stamps])
    rate = len(before) / seconds
    pause_s, pause_at_s = longest_gap(all_stamps, start - 0.1, stop + 1)
    usual_s, _ = longest_gap(all_stamps, start - seconds, start)
    return {
        "pause_ms": round(pause_s * 1e3, 1),
        "extra_pause_ms": round((pause_s - usual_s) * 1e3, 1),
        "pause_at_s": round(pause_at_s - start, 2),
        "pause_ms_master": round(each.master_pause_s * 1e3, 1),
        "switch_gap_ms": round(longest_gap(all_stamps, each.running_s - 1.5, stop)[0] * 1e3, 1),
        "longest_gap_before_ms": round(usual_s * 1e3, 1),
        "iter_per_s_before": round(rate, 1),
        "throughput_dip": round(lowest_second(during, start, stop) / rate, 3),
        "quiet_dip": round(lowest_second(before, start - seconds, start) / rate, 3),
        "throughput_mean": round(len(during) / (stop - start) / rate, 3),
        "move_s": round(each.running_s - each.decided_s, 2),
    }


def lowest_second(stamped: np.ndarray, start: float, stop: float) -> int:
    """Return the fewest iterations in any one second."""
    windows = np.arange(start, max(stop - 1.0, start + 0.05), 0.05)
    return min(int(((stamped >= at) & (stamped < at + 1)).sum()) for at in windows)


def longest_gap(all_stamps: list[np.ndarray], start: float, stop: float) -> tuple[float, float]:
    """Return the longest time between two iterations of one worker, and when it began."""
    found = [(0.0, start)]
    for each in all_stamps:
        inside = each[(each >= start) & (each < stop)]
        if len(inside) > 1:
            at = int(np.diff(inside).argmax())
            found.append((float(inside[at + 1] - inside[at]), float(inside[at])))
    return max(found)


def run(way: Migration, gib: float, seconds: float) -> dict[str, object]:
    """Train, add a PS, remove it again."""
    with tempfile.TemporaryDirectory(prefix="dlr") as name:
        folder = Path(name) / "run"
        os.environ[STAMPS] = name
        spec = JobSpec(
            "migration", plan=plan(1), mode=Mode.MANUAL, n_epoch=10_000, checkpoint_every_s=0.0, migration=way
        )
        features, n_row = wide_features(spec, gib)
        job = Job(folder, spec, features)
        try:
            job.fill(features.n_table_row - n_row, n_row)
            time.sleep(seconds)
            job.until(lambda _: job.parameter_gib() >= gib)
            held = job.parameter_gib()
            changes = {"1_to_2": change(job, 2, seconds), "2_to_1": change(job, 1, seconds)}
            found = stamps(Path(name))
        finally:
            job.driver.close()
    return {
        "parameter_gib": round(held, 3),
        **{key: measured(each, found, seconds) for key, each in changes.items()},
    }


def summary(moves: dict[str, dict[str, float]], suffix: str) -> dict[str, float]:
    """Return the worst of both moves."""
    both = [moves[key] for key in ("1_to_2", "2_to_1")]
    return {
        f"extra_pause_ms{suffix}": max(each["extra_pause_ms"] for each in both),
        f"lowest_second{suffix}": min(each["throughput_dip"] for each in both),
        f"lowest_quiet_second{suffix}": min(each["quiet_dip"] for each in both),
    }


def wide_features(spec: JobSpec, gib: float) -> tuple[FeatureSpec, int]:
    """Return features with room for rows that are hardly trained, and the number of these."""
    features = make_features(spec.data, spec.model)
    n_row = int(gib * (1 << 30) / (8 * spec.model.row_width)) + 1
    last = features.categorical[-1]
    wide = replace(last, hash_size=last.hash_size + n_row)
    return replace(features, categorical=(*features.categorical[:-1], wide)), n_row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=3.0, help="before and after each change")
    parser.add_argument("--whole", action="store_true", help="stop and restart, and 4 GiB, too: minutes")
    options = parsed(parser)
    stamp_iterations()
    ways = tuple(Migration) if options.whole else (Migration.SEAMLESS,)
    result: dict[str, object] = {str(way): run(way, options.gib, options.seconds) for way in ways}
    moved = result[str(Migration.SEAMLESS)]
    result |= summary(moved, "")  # type: ignore[arg-type]  # as `run` returned it
    if options.whole and psutil.virtual_memory().available > LARGE_NEEDS * LARGE_GIB * (1 << 30):
        result["large"] = large = run(Migration.SEAMLESS, LARGE_GIB, options.seconds)
        result |= summary(large, "_4gib")
    print_figures("migration", result)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        sys.exit(run_node(sys.argv[1]))
    main()
