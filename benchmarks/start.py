"""How long a job takes from submit to its first step, to grow by one worker, and to get its master back.

A small job (2 workers, 1 PS, the built-in data) is submitted to this user's local Ray and to processes of
this machine, in turns. One worker is added while it trains; then its master is killed with kill -9, and only
its supervisor, or Ray, starts another. A shard is one batch here, so the first shard done is the first step.
The clusters are connected and warm: Ray's head runs, and files are cached.

ray_first_step_s  from the call of `submit` to the first step, median of the rounds; also `local_first_step_s`
growth_s          on Ray, from the request of a worker until it trains beside others; also `local_growth_s`
bare_growth_s     the same on Ray just after that, while no spare process waits
master_back_s     of a local job, from the kill until the next master answers; also `ray_master_back_s`

`parts` says where each goes, in the order in which it happens, and `_cpu_s` how much CPU time all processes
of the job took meanwhile, of a master that comes back the new process alone. That depends less on what else
the machine does; `load_range` is the least and the highest load average. Jobs grow into their spare process,
which is waited for first: that takes 12 s, so it is measured once on local processes.

    python benchmarks/start.py [--seconds 45 --rounds 5]

Another checkout is measured by the same program with ``PYTHONPATH=CHECKOUT``; take turns with it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from lengths import end_cleanly, parsed, print_figures

from dlrover_nb.core.backends.local.record import read_master, read_supervisor
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

PLAN = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(1, 0.5, 512))
MORE, MOST = (replace(PLAN, worker=replace(PLAN.worker, count=PLAN.worker.count + n)) for n in (1, 2))
LOOK_S = 0.01
LIMIT_S = 300.0
CPUS = 4.0  # offered, whatever the machine has: three workers and a PS must fit
STILL_S = 0.5  # a spare that sleeps for so long has imported all
RAY_STILL_S = 1.0  # one on Ray imports in a thread, so only its CPU time says that it does

Figures = dict[str, list[float]]


class Measured:
    """Seconds and CPU seconds of one figure and of its parts, from now on."""

    def __init__(self, figures: Figures, name: str, root: str) -> None:
        self._figures, self._name, self._root = figures, name, root
        self._cpu_s = cpu_of_all_s(root)
        self._began_s = self._last_s = time.monotonic()

    def part(self, what: str) -> None:
        """Note what has come about just now."""
        now_s = time.monotonic()
        self._figures[f"{self._name}/{what}_s"].append(now_s - self._last_s)
        self._last_s = now_s

    def end(self, what: str, pid: int | None = None) -> None:
        """Note the last part, and all of it; the CPU time is that of one process, or of all."""
        self.part(what)
        self._figures[f"{self._name}_s"].append(self._last_s - self._began_s)
        cpu_s = cpu_of_all_s(self._root) - self._cpu_s if pid is None else cpu_of_s(pid)
        self._figures[f"{self._name}_cpu_s"].append(cpu_s)


def cpu_of_all_s(root: str) -> float:
    """Return the CPU seconds of the processes that have the folder `root` in their environment."""
    total = 0.0
    for process in psutil.process_iter():
        try:
            if process.environ().get("XDG_STATE_HOME", "").startswith(root):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        except psutil.Error:
            continue
    return total


def cpu_of_s(pid: int) -> float:
    """Return the CPU seconds of one process."""
    return sum(psutil.Process(pid).cpu_times()[:2])


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > end_s:
            raise SystemExit(f"it did not come to that: {what}")
        time.sleep(LOOK_S)  # far below what is measured


def has(handle: JobHandle, holds: Callable[[JobSnapshot], object]) -> Callable[[], object]:
    """Return whether the state of a job fulfils a condition, as a function."""

    def look() -> object:
        now = handle.snapshot()
        if now.phase.is_final:
            raise SystemExit(f"the job ended: {now.phase}, {now.message}")
        return holds(now)

    return look


def n_ready(now: JobSnapshot, role: str) -> int:
    """Return how many nodes of a role are up."""
    return sum(str(node.role) == role and bool(node.pid) for node in now.nodes)


def first_step(cluster: Cluster, name: str, measured: Measured) -> JobHandle:
    """Submit a job, and wait for its first step."""
    handle = cluster.submit(JobSpec(name, plan=PLAN, mode=Mode.MANUAL, n_epoch=10_000, shard_batches=1))
    measured.part("submit_returns")
    until(has(handle, lambda now: now.nodes), "a master with nodes")
    measured.part("master_answers")
    until(has(handle, lambda now: n_ready(now, "worker")), "a worker that is up")
    measured.part("a_worker_is_up")
    until(has(handle, lambda now: now.train.done > 0), "the first step")
    measured.end("first_step")
    until(has(handle, lambda now: now.running == PLAN), "training on all nodes")
    return handle


def growth(handle: JobHandle, measured: Measured, plan: ResourcePlan = MORE) -> None:
    """Add a worker, and wait until it trains."""
    handle.decide(Scale.to(plan))
    measured.part("is_decided")
    until(has(handle, lambda now: n_ready(now, "worker") == plan.worker.count), "a worker more")
    measured.part("it_is_up")
    until(has(handle, lambda now: now.running == plan), "training beside the others")
    measured.end("it_trains")


def local_spare(folder: Path) -> int:
    """Return the spare process of a local job."""
    note = (folder / "nodes" / "spare.pid").read_text(errors="replace")
    words = "".join(c if c.isdigit() else " " for c in note)
    return next(n for n in map(int, words.split()) if n > 1 and "--spare" in psutil.Process(n).cmdline())


def ray_spare(job: str) -> int:
    """Return the spare process of a job on Ray, which has the name of its next worker."""
    import ray
    from ray._private import state

    from dlrover_nb.core.backends.ray.reach import NAMESPACE

    actor = ray.get_actor(f"{job}/worker-{PLAN.worker.count}", namespace=NAMESPACE)
    return int(state.actors(actor._actor_id.hex())["Pid"])  # noqa: SLF001 - the one way to an actor's row


def spare_waits(spare: Callable[[], int], still_s: float = STILL_S) -> Callable[[], bool]:
    """Return whether a job's spare process, by its id, has imported all, as a function."""
    last = (0.0, time.monotonic())

    def look() -> bool:
        nonlocal last
        with contextlib.suppress(OSError, ValueError, StopIteration, psutil.Error):
            pid = spare()
            cpu_s, sleeps = cpu_of_s(pid), psutil.Process(pid).status() == psutil.STATUS_SLEEPING
            if cpu_s != last[0] or not sleeps:  # on a busy machine it may wait for a core meanwhile
                last = cpu_s, time.monotonic()
            return cpu_s > STILL_S and time.monotonic() > last[1] + still_s
        return False

    return look


def local_master_back(handle: JobHandle, measured: Measured) -> None:
    """Kill the master of a local job; no client asks until its supervisor has started another."""
    folder = handle.link.folder  # type: ignore[attr-defined]  # of a local job
    killed, supervisor = read_master(folder), read_supervisor(folder)
    assert killed is not None
    assert supervisor is not None
    os.kill(killed.pid, signal.SIGKILL)
    others = psutil.Process(supervisor.pid).children
    until(lambda: any(each.pid != killed.pid for each in others()), "another process")
    measured.part("another_process")
    until(lambda: (now := read_master(folder)) and now.pid != killed.pid, "a master that has read all back")
    measured.part("all_is_read_back")
    handle.snapshot()
    measured.end("an_answer", read_master(folder).pid)  # type: ignore[union-attr]  # it has just answered


def ray_master_back(handle: JobHandle, measured: Measured) -> None:
    """Kill the master of a job on Ray, which starts another."""
    import ray

    from dlrover_nb.core.backends.ray.reach import NAMESPACE

    actor = ray.get_actor(handle.name, namespace=NAMESPACE)
    killed = ray.get(actor.pid.remote())
    os.kill(killed, signal.SIGKILL)

    def is_back() -> bool:
        with contextlib.suppress(ray.exceptions.RayError):
            return bool(ray.get(actor.pid.remote()) != killed)
        return False

    until(is_back, "another master")
    measured.part("all_is_read_back")
    with contextlib.suppress(DlroverError):
        handle.snapshot()
    measured.end("an_answer", ray.get(actor.pid.remote()))


class Clusters:
    """Both kinds of clusters, and what was measured on them."""

    def __init__(self, root: str) -> None:
        self._root, self.figures = root, defaultdict[str, list[float]](list)
        self._local, self._ray = connect("local", cpus=CPUS), connect("ray", cpus=CPUS)
        end_cleanly()  # Ray has put its own handler in place

    def warm(self) -> None:
        """Let files be read and compiled, as on a machine in use."""
        for name, cluster in {"warm-local": self._local, "warm-ray": self._ray}.items():
            first_step(cluster, name, Measured(defaultdict(list), "", self._root)).stop()

    def local(self, name: str, *, grows: bool) -> None:
        """Take a job on local processes through all of it."""
        handle = first_step(self._local, name, self._of("local_first_step"))
        if grows:
            folder = handle.link.folder  # type: ignore[attr-defined]  # of a local job
            until(spare_waits(lambda: local_spare(folder)), "a spare")
            growth(handle, self._of("local_growth"))
        local_master_back(handle, self._of("master_back"))
        handle.stop()

    def ray(self, name: str) -> None:
        """Take a job on Ray through all of it."""
        handle = first_step(self._ray, name, self._of("ray_first_step"))
        until(spare_waits(lambda: ray_spare(name), RAY_STILL_S), "a spare")
        growth(handle, self._of("growth"))
        growth(handle, self._of("bare_growth"), MOST)
        ray_master_back(handle, self._of("ray_master_back"))
        handle.stop()

    def _of(self, name: str) -> Measured:
        return Measured(self.figures, name, self._root)

    def close(self) -> None:
        """End both, with their jobs."""
        self._local.shutdown(force=True)
        self._ray.shutdown(force=True)


def medians(figures: Figures) -> dict[str, object]:
    """Return the median of each figure, and below `parts` those of its parts."""
    values: dict[str, object] = {}
    parts: dict[str, dict[str, float]] = defaultdict(dict)
    for name, seconds in figures.items():
        whole, slash, part = name.partition("/")
        median = round(statistics.median(seconds), 2)
        if slash:
            parts[f"{whole}_s"][part] = median
        else:
            values[name] = median
    return {**values, "parts": dict(parts)}


def measure(rounds: int, seconds: float, root: str) -> dict[str, object]:
    """Return all figures of as many rounds as there is time for, of one at least."""
    began_s, clusters = time.monotonic(), Clusters(root)
    loads = [os.getloadavg()[0]]
    try:
        clusters.warm()
        clusters.local("grows", grows=True)
        for n_round in range(1, rounds + 1):
            round_s = time.monotonic()
            clusters.ray(f"ray-{n_round}")
            clusters.local(f"local-{n_round}", grows=False)
            loads.append(os.getloadavg()[0])
            now_s = time.monotonic()
            if now_s + (now_s - round_s) > began_s + seconds:
                break
    finally:
        clusters.close()
    every = {
        name: [round(s, 2) for s in all_s] for name, all_s in clusters.figures.items() if "/" not in name
    }
    load_range = [round(min(loads), 1), round(max(loads), 1)]
    return {"rounds": n_round, "load_range": load_range, **medians(clusters.figures), "every": every}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="at most")
    parser.add_argument("--seconds", type=float, default=45.0, help="in which another round may begin")
    options = parsed(parser)
    began_s = time.monotonic()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # images set it; what is installed is compiled once
    with tempfile.TemporaryDirectory(prefix="dlr") as root:
        os.environ |= {f"XDG_{kind}_HOME": str(Path(root) / kind.lower()) for kind in ("STATE", "DATA")}
        figures = measure(options.rounds, options.seconds, root)
    took = {"seconds": round(time.monotonic() - began_s, 1)}
    print_figures("start", {**figures, **took})


if __name__ == "__main__":
    main()
