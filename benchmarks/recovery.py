"""Recovery from kill -9 of workers, parameter servers and the job master: its time, and lost data.

Two real jobs train on this machine. In the first each role is killed several times: a recovery is the time
from the kill to the first window in which the job trains at 90 % of its former throughput. A master is
restarted at once, as Ray does. In the second job a seeded killer kills nodes at random times, whatever they
do at that moment; its shards are counted, and its AUC is compared with that of the same job without kills.

    python benchmarks/recovery.py [--times 5 --kills 50 --seed 0 --ray]
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from lengths import end_cleanly, parsed, print_figures

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.data import make_features
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.snapshot import JobSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLAN = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(2, 0.25, 512))
MASTER = "master"
VICTIMS = (*map(str, Role), MASTER)
LIMIT_S = 900.0
WINDOW_S = 4.0  # of the throughput; nodes report once a second
BEFORE_S = 8.0
BACK = 0.9  # of the throughput before
LOOK_S = 0.05
SHORTEST_S, LONGEST_S = 0.5, 6.0  # between two kills


class ProcessJob:
    """Master and nodes are processes of this machine."""

    def __init__(self, spec: JobSpec, folder: Path) -> None:
        self._folder, self._seen = folder, folder.with_suffix(".seen")
        folder.with_suffix(".spec").write_bytes(to_json(spec))
        self._start()

    def _start(self) -> None:
        self._master = subprocess.Popen([sys.executable, __file__, "--master", str(self._folder)])

    def look(self) -> JobSnapshot | None:
        try:
            return from_json(self._seen.read_bytes(), JobSnapshot)
        except OSError:
            return None

    def kill_master(self) -> None:
        self._master.kill()
        self._master.wait()
        self._seen.unlink(missing_ok=True)
        self._start()

    def close(self) -> None:
        self._master.terminate()
        self._master.wait()
        if (self._folder / JOB).exists():
            backend = LocalBackend(self._folder, outlive=True)
            backend.adopt(())
            backend.close()


class RayJob:
    """The job runs on this user's local Ray."""

    def __init__(self, spec: JobSpec) -> None:
        import ray

        from dlrover_nb.core.backends.ray.backend import NAMESPACE
        from dlrover_nb.core.connect import connect

        self._cluster = connect("ray", cpus=4)
        end_cleanly()  # Ray has put its own handler in place
        self._handle = self._cluster.submit(spec)
        self._actor = ray.get_actor(spec.name, namespace=NAMESPACE)
        self._pid: Callable[[], int] = lambda: int(ray.get(self._actor.pid.remote()))

    def look(self) -> JobSnapshot | None:
        try:
            return self._handle.snapshot()
        except DlroverError:
            return None

    def kill_master(self) -> None:
        psutil.Process(self._pid()).kill()

    def close(self) -> None:
        self._cluster.shutdown(force=True)


def run_master(folder: Path) -> None:
    """Begin or resume the job of a folder, and write its snapshots to a file."""
    setup = own_job.RunSetup(
        LocalBackend(folder, cpus=4.0, outlive=True),
        folder,
        history_url=f"sqlite:///{folder.with_suffix('.db')}",
        clock=SystemClock(),
    )
    if (folder / JOB).exists():
        driver = own_job.resume(setup)
    else:
        spec = from_json(folder.with_suffix(".spec").read_bytes(), JobSpec)
        features = make_features(spec.data, spec.model)
        driver = own_job.begin(spec, features, setup)
    driver.start()
    seen, is_over = folder.with_suffix(".new"), False
    while not is_over:
        is_over = driver.join(LOOK_S)
        seen.write_bytes(to_json(driver.snapshot()))
        seen.replace(folder.with_suffix(".seen"))


class Watch:
    """Tracks the number of samples that a job has trained."""

    def __init__(self, job: ProcessJob | RayJob) -> None:
        self.job = job
        self._seen: list[tuple[float, int]] = []

    def look(self) -> JobSnapshot | None:
        """Read the count once; restart when it went back (to a checkpoint)."""
        now = self.job.look()
        if now is not None:
            n_done = now.train.n_sample_done
            if self._seen and n_done < self._seen[-1][1]:
                self._seen.clear()
            self._seen.append((time.monotonic(), n_done))
        time.sleep(LOOK_S)
        return now

    def forget(self) -> None:
        """Restart."""
        self._seen.clear()

    def samples_per_s(self, window_s: float) -> float:
        """Return the throughput of the last window; 0 until it is full."""
        end_s = time.monotonic()
        inside = [(at_s, n) for at_s, n in self._seen if at_s >= end_s - window_s]
        if not inside or self._seen[0][0] > end_s - window_s:
            return 0.0
        return (inside[-1][1] - inside[0][1]) / window_s

    def until(self, condition: Callable[[JobSnapshot], object]) -> JobSnapshot:
        """Poll until a condition holds."""
        end_s = time.monotonic() + LIMIT_S
        while (now := self.look()) is None or not condition(now):
            if time.monotonic() > end_s or (now is not None and now.phase.is_final):
                raise SystemExit(f"it did not come to that: {now and now.message}")
        return now


def kill(job: ProcessJob | RayJob, victim: str, rng: random.Random) -> int | None:
    """End one process; return its id, if it is a node's."""
    if victim == MASTER:
        job.kill_master()
        return None
    now = job.look()
    pids = [n.pid for n in now.nodes if n.pid and str(n.role) == victim] if now else []
    if pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid := rng.choice(pids)).kill()
            return pid
    return None


def recoveries(job: ProcessJob | RayJob, n_time: int, rng: random.Random) -> dict[str, list[float]]:
    """Return the seconds from each kill until the job's former throughput."""
    watch, found = Watch(job), {victim: list[float]() for victim in VICTIMS}
    for victim in VICTIMS * n_time:
        watch.until(lambda now: now.running)
        watch.forget()
        watch.until(lambda now: watch.samples_per_s(BEFORE_S) > 0 and now.running)
        before = watch.samples_per_s(BEFORE_S)
        began_s = time.monotonic()
        kill(job, victim, rng)
        watch.forget()
        watch.until(lambda _, goal=BACK * before: watch.samples_per_s(WINDOW_S) >= goal)  # type: ignore[misc]
        found[victim].append(time.monotonic() - WINDOW_S - began_s)
    return found


def rain(
    job: ProcessJob | RayJob, n_kill: int, rng: random.Random
) -> tuple[JobSnapshot, dict[str, int], set[int]]:
    """Kill at random until the number is reached, then let the job end."""
    watch, killed, pids = Watch(job), dict.fromkeys(VICTIMS, 0), set[int]()
    watch.until(lambda now: now.running)
    while sum(killed.values()) < n_kill and not ((now := job.look()) and now.phase.is_final):
        time.sleep(rng.uniform(SHORTEST_S, LONGEST_S))
        victim = rng.choice(VICTIMS)
        pid = kill(job, victim, rng)
        if pid is not None or victim == MASTER:
            killed[victim] += 1
            pids |= {pid} if pid else set()
    return until_end(job), killed, pids


def until_end(job: ProcessJob | RayJob) -> JobSnapshot:
    """Wait for the end."""
    end_s = time.monotonic() + LIMIT_S
    while (now := job.look()) is None or not now.phase.is_final:
        if time.monotonic() > end_s:
            raise SystemExit(f"the job did not end: {now and now.message}")
        time.sleep(LOOK_S)
    return now


@contextlib.contextmanager
def running(spec: JobSpec, home: Path, *, on_ray: bool) -> Iterator[ProcessJob | RayJob]:
    """Run a job in a folder of its own."""
    job = RayJob(spec) if on_ray else ProcessJob(spec, home / spec.name)
    try:
        yield job
    finally:
        job.close()


def measure(options: argparse.Namespace, home: Path) -> dict[str, object]:
    """Return all figures."""
    rng = random.Random(options.seed)
    spec = JobSpec("rain", plan=PLAN, mode=Mode.MANUAL, n_epoch=options.epochs, checkpoint_every_s=2.0)
    endless = replace(spec, name="recovery", n_epoch=10_000)
    with running(endless, home, on_ray=options.ray) as job:
        found = recoveries(job, options.times, rng)
    with running(replace(spec, name="calm"), home, on_ray=options.ray) as job:
        calm = until_end(job)
    with running(spec, home, on_ray=options.ray) as job:
        end, killed, pids = rain(job, options.kills, rng)
    n_train = end.train.n_sample_total // spec.n_epoch
    n_shard = math.ceil(n_train / (spec.batch_size * spec.shard_batches)) * spec.n_epoch
    medians = {f"{victim}_s_median": round(statistics.median(s), 2) for victim, s in found.items() if s}
    every = {f"{victim}_s": [round(s, 2) for s in seconds] for victim, seconds in found.items()}
    return {
        "benchmark": "recovery",
        "backend": "ray" if options.ray else "process",
        "seed": options.seed,
        **medians,
        **every,
        "n_kill": sum(killed.values()),
        **{f"n_kill_{victim}": n for victim, n in killed.items()},
        "phase": str(end.phase),
        "message": end.message,
        "shards": n_shard,
        "lost_shards": n_shard - end.train.total,
        "unfinished": end.train.total - end.train.done,
        "samples_done": end.train.n_sample_done,
        "samples": end.train.n_sample_total,
        "returned": end.train.returned,
        "refused": end.train.refused,
        "auc": end.evaluation and round(end.evaluation.auc, 5),
        "auc_undisturbed": calm.evaluation and round(calm.evaluation.auc, 5),
        "left_processes": sum(map(psutil.pid_exists, pids)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1, help="kills of each role that are timed")
    parser.add_argument("--kills", type=int, default=3, help="kills in the rain")
    parser.add_argument("--epochs", type=int, default=6, help="of the job in the rain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ray", action="store_true", help="by Ray instead of processes")
    parser.add_argument("--master", type=Path, help=argparse.SUPPRESS)
    options = parsed(parser, times=5, kills=50, epochs=60)
    if options.master is not None:
        run_master(options.master)
        return
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dlr") as name:
        os.environ |= {f"XDG_{kind}_HOME": f"{name}/{kind.lower()}" for kind in ("STATE", "DATA")}
        result = measure(options, Path(name)) | {"seconds": round(time.monotonic() - began_s, 1)}
    print_figures("recovery", result)
    if result["phase"] != JobPhase.SUCCEEDED or result["unfinished"] or result["lost_shards"]:
        raise SystemExit(f"the job in the rain did not end well: {result['message']}")


if __name__ == "__main__":
    main()
