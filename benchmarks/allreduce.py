"""Elastic all-reduce beside torch's own DDP: speed, pauses of changes, recovery, rows and quality.

speed      samples/s of 2 processes of an elastic job (its master, shards and reports included) and of torch
           DDP (gloo), the same model and batches, in turn; `over_ddp` is the median of the rounds' ratios
pause      2 -> 3 -> 2 members: longest time between two steps of a process that stays, less its usual step
recovery   kill -9 of one of 3 members until the others have trained a step, and until a successor has
           joined; beside torchrun, which restarts all processes (`--max-restarts`), until their first step;
           null: they have not found each other within a minute; only with `--whole`
rows       trained by the job with all these changes, as its ledger counts them, against rows times passes
quality    loss on held-out rows of that job, and with `--whole` of torch DDP with 2 members all the time

    python benchmarks/allreduce.py [--rounds 5] [--seconds 6]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
from lengths import parsed, print_figures

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle

SCRIPT = Path(__file__).with_name("allreduce_train.py")
BATCH, N_ROW, N_EPOCH = 512, 400_000, 6
CORES = 8.0  # offered, so that no process is held back by its plan
T = TypeVar("T")
N_FIELD = 5  # of a step's line
STEADY_S = 2.0  # of training around what is done to a job
WARM_STEPS, LIMIT_S, TORCHRUN_LIMIT_S = 50, 240.0, 60.0


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parsed(parser, rounds=5, seconds=6.0)
    with tempfile.TemporaryDirectory(prefix="allreduce-") as name:
        home = Path(name)
        os.environ["HOME"], os.environ["XDG_STATE_HOME"] = name, str(home / "state")
        cluster = connect("local", cpus=CORES)
        try:
            figures = speeds(cluster, home, args.rounds, args.seconds)
            parts: tuple[Callable[[Path], dict[str, object]], ...]
            parts = (partial(changes, cluster),)
            parts += (fixed_quality, torchrun_recovery) if args.whole else ()
            for part in parts:
                sys.stderr.write(f"{figures}\n")
                figures |= part(home)
        finally:
            cluster.shutdown(force=True)
    print_figures("allreduce", figures)


# speed


def speeds(cluster: Cluster, home: Path, n_round: int, seconds: float) -> dict[str, object]:
    """Return samples/s of both kinds, and the ratio."""
    found: dict[str, list[float]] = {"elastic": [], "ddp": []}
    cpu: dict[str, list[float]] = {"elastic": [], "ddp": []}
    for number in range(n_round):
        order = ("elastic", "ddp") if number % 2 else ("ddp", "elastic")
        for kind in order:
            folder = home / f"{kind}-{number}"
            folder.mkdir()
            run = elastic_speed if kind == "elastic" else ddp_speed
            run(cluster, folder, seconds)
            found[kind].append(rate(folder))
            cpu[kind].append(cpu_ms(folder))
    ratios = [a / b for a, b in zip(found["elastic"], found["ddp"], strict=True)]
    return {
        "over_ddp": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "samples_per_s": {kind: round(statistics.median(rates)) for kind, rates in found.items()},
        "cpu_ms_per_step": {kind: round(statistics.median(each), 2) for kind, each in cpu.items()},
    }


def elastic_speed(cluster: Cluster, folder: Path, seconds: float) -> None:
    """Let two members train for some seconds."""
    handle = submit(cluster, folder, 2, "--seconds", str(seconds), n_epoch=1000)
    until(lambda: len(read_steps(folder)) == 2, "both members", every_s=0.2)
    time.sleep(seconds)  # nothing looks at the processes while they are measured
    until(lambda: len(ended(folder, seconds)) == 2, "the end of both members", every_s=0.5)
    cluster.delete(handle.name, force=True)


def ddp_speed(_cluster: Cluster, folder: Path, seconds: float) -> None:
    """Let two processes of torch DDP train for some seconds."""
    with started(folder, 2, "--seconds", str(seconds)) as processes:
        for process in processes:
            process.wait(LIMIT_S)


def rate(folder: Path) -> float:
    """Return the samples/s of all processes together, after the first steps."""
    total = 0.0
    for steps in read_steps(folder).values():
        warm = steps[WARM_STEPS:]
        total += sum(step[1] for step in warm[1:]) / (warm[-1][0] - warm[0][0])
    return total


def cpu_ms(folder: Path) -> float:
    """Return the CPU time of a step of one process, after the first steps."""
    warm = [steps[WARM_STEPS:] for steps in read_steps(folder).values()]
    return 1000 * statistics.fmean((w[-1][4] - w[0][4]) / (len(w) - 1) for w in warm)


def ended(folder: Path, seconds: float) -> list[int]:
    """Return the processes that have trained for so long, and beyond the first steps."""
    steps = read_steps(folder).items()
    return [pid for pid, s in steps if len(s) > WARM_STEPS + 1 and s[-1][0] - s[0][0] > seconds]


# changes


def changes(cluster: Cluster, home: Path) -> dict[str, object]:
    """Change the members of one job, kill one, and let it finish."""
    folder = home / "changes"
    folder.mkdir()
    handle = submit(cluster, folder, 2, n_epoch=N_EPOCH)
    trains(handle, folder, 2)
    grown_s = change(handle, folder, 3)
    shrunk_s = change(handle, folder, 2)
    change(handle, folder, 3)
    killed_s, others_s, joined_s = kill_one(folder)
    until(lambda: handle.snapshot().phase.is_final, "the end of the job", LIMIT_S)
    now = handle.snapshot()
    n_row = sum(step[1] for steps in read_steps(folder).values() for step in steps)
    return {
        "pause_ms": {"2->3": round(1000 * grown_s, 1), "3->2": round(1000 * shrunk_s, 1)},
        "recovery_s": {"others": round(others_s - killed_s, 2), "successor": round(joined_s - killed_s, 2)},
        "phase": str(now.phase),
        "rows_exact": now.train.n_sample_done == N_ROW * N_EPOCH,
        "n_row_in_steps": n_row,  # of the programs' own count: steps that were given up count twice there
        "n_step": max(len(steps) for steps in read_steps(folder).values()),
        "loss": float((folder / "quality").read_text()),
    }


def change(handle: JobHandle, folder: Path, n_member: int) -> float:
    """Change the number of members; return the pause of those that stay."""
    time.sleep(STEADY_S)  # the usual step before it
    begun_s = time.monotonic()
    handle.decide(Scale.to(plan(n_member)))
    trains(handle, folder, n_member)
    time.sleep(STEADY_S)  # and after it
    pauses = []
    for steps in read_steps(folder).values():
        if steps[0][0] < begun_s < steps[-1][0] - 1.0:
            times = [step[0] for step in steps if step[0] > begun_s - STEADY_S]
            gaps = [after - before for before, after in itertools.pairwise(times)]
            pauses.append(max(gaps) - statistics.median(gaps))
    return max(pauses)


def kill_one(folder: Path) -> tuple[float, float, float]:
    """Kill a member; return when, when the others trained again, and when there were three again."""
    before = set(read_steps(folder))
    living = [pid for pid in before if psutil.pid_exists(pid)]
    time.sleep(STEADY_S)  # all of them train
    os.kill(living[-1], signal.SIGKILL)
    killed_s = time.monotonic()
    others = living[:-1]

    def joined() -> float | None:
        """Return when a successor trained first."""
        return min((s[0][0] for pid, s in read_steps(folder).items() if pid not in before), default=None)

    def again() -> float | None:
        """Return when the others trained first, alone or with a successor that was as quick."""
        steps = read_steps(folder)
        with_it_s = joined() or math.inf
        late = [step for pid in others for step in steps[pid] if step[0] > killed_s + 0.05]
        return min((step[0] for step in late if step[3] == len(others) or step[0] >= with_it_s), default=None)

    others_s = until(again, "the others")
    joined_s = until(joined, "a successor")
    return killed_s, others_s, joined_s


def torchrun_recovery(home: Path) -> dict[str, object]:
    """Return how long torchrun takes from a kill to the first step of the restarted processes."""
    folder = home / "torchrun"
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    command += ["--local-addr", "127.0.0.1"]
    run = subprocess.Popen([*command, *arguments("ddp", folder)], start_new_session=True, env=environment())
    try:
        until(lambda: len(read_steps(folder)) == 2, "torchrun's processes")
        time.sleep(STEADY_S)  # both train
        before = set(read_steps(folder))
        os.kill(max(before), signal.SIGKILL)
        killed_s = time.monotonic()

        def restarted() -> float | None:
            new = [steps[0][0] for pid, steps in read_steps(folder).items() if pid not in before]
            return min(new) if new else None

        try:
            first_s = until(restarted, "torchrun's restart", TORCHRUN_LIMIT_S)
        except SystemExit as error:  # gloo's addresses of the processes before are in torchrun's store
            sys.stderr.write(f"{error}\n")
            return {"torchrun_recovery_s": None}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        for pid in read_steps(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return {"torchrun_recovery_s": round(first_s - killed_s, 2)}


def fixed_quality(home: Path) -> dict[str, object]:
    """Return the loss of torch DDP with 2 members that never change, after as many rows."""
    folder = home / "fixed"
    folder.mkdir()
    n_pair = N_ROW * N_EPOCH // (2 * BATCH)
    with started(folder, 2, "--steps", str(n_pair)) as processes:
        for process in processes:
            process.wait(LIMIT_S)
    return {"loss_of_ddp": float((folder / "quality").read_text())}


# processes


def submit(
    cluster: Cluster, folder: Path, n_member: int, *more: str, n_epoch: int, **settings: Any
) -> JobHandle:
    """Submit an elastic job, with settings of `JobSpec`."""
    worker = ExternalRole((sys.executable, *arguments("elastic", folder), *more))
    foreign = ExternalSpec(worker, N_ROW * n_epoch, framework=Framework.DDP)
    spec = JobSpec(
        folder.name,
        plan=plan(n_member),
        foreign=foreign,
        n_epoch=n_epoch,
        batch_size=BATCH,
        mode=Mode.MANUAL,
        **settings,
    )
    return cluster.submit(spec)


def plan(n_member: int) -> ResourcePlan:
    """Return a plan whose limits hold nobody back."""
    return ResourcePlan(RolePlan(n_member, 2.0, 2048), RolePlan(1, 0.5, 512))


def arguments(kind: str, folder: Path) -> list[str]:
    """Return the program and what all kinds are told."""
    return [str(SCRIPT), kind, str(folder), "--rows", str(N_ROW), "--batch", str(BATCH)]


@contextlib.contextmanager
def started(folder: Path, n: int, *more: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start processes of torch DDP; kill those that are left."""
    port = str(free_port())
    processes = [
        subprocess.Popen(
            [sys.executable, *arguments("ddp", folder), *more],
            env=environment()
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(n), "RANK": str(rank)},
        )
        for rank in range(n)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def environment() -> dict[str, str]:
    """Return the variables of a program: one thread, which does not spin, as those of a job have."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def free_port() -> int:
    """Return a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_steps(folder: Path) -> dict[int, list[tuple[float, int, int, int, float]]]:
    """Return the steps of each process that has begun: time, rows, rank, members, CPU seconds so far."""
    found = {}
    for path in folder.glob("steps-*"):
        lines = [line.split() for line in path.read_text().splitlines()]
        whole = (line for line in lines if len(line) == N_FIELD)
        steps = [(float(a), int(b), int(c), int(d), float(e)) for a, b, c, d, e in whole]
        if steps:
            found[int(path.name.partition("-")[2])] = steps
    return dict(sorted(found.items(), key=lambda each: each[1][0][0]))


def trains(handle: JobHandle, folder: Path, n_member: int) -> None:
    """Wait until so many members train."""

    def reached() -> bool:
        now = handle.snapshot()
        if now.phase.is_final:
            raise SystemExit(f"the job ended too early: {now.phase} {now.message}")
        last = [steps[-1] for pid, steps in read_steps(folder).items() if psutil.pid_exists(pid)]
        return now.running == plan(n_member) and sum(step[3] == n_member for step in last) == n_member

    until(reached, f"{n_member} members")


def until(
    condition: Callable[[], T | None], what: str, limit_s: float = LIMIT_S, *, every_s: float = 0.02
) -> T:
    """Wait for a first true value; looking is work, which a measured speed must not suffer from."""
    end_s = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > end_s:
            raise SystemExit(f"{what} did not come about within {limit_s:g} s")
        time.sleep(every_s)
    return value


if __name__ == "__main__":
    main()
