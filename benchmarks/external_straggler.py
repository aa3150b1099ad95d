"""A slow member of somebody else's program: how much longer the job takes, by what its master does about it.

ring     three members of an elastic all-reduce job, which wait for each other at each step
async    three workers of a program in TensorFlow's style that take shards from the job's master, and one PS

In each, one member gets four times as slow after a quarter of the healthy job's time: its process is ill, not
its task, so one that replaces it is well. A step is a pause as long as its rows, so that other work on the
machine has little influence, and all jobs run at once. Jobs are real ones of the local cluster in mode
`auto`, whose plan is pinned: what remains to decide is the answer to the slow member. `jct_over_healthy` is
the time of the job with it over the time without it; `jct_unanswered`, with `--unanswered`, the same in mode
`manual`, without an answer.

The window in which times are compared (`--window`) is a sixth of the job's time by default, and a twelfth
with `--whole`, as the five minutes of the paper are of an hour: with these, a job of four minutes ends before
a slowdown is persistent.

    python benchmarks/external_straggler.py [--kinds ring async] [--seconds 60] [--window 10] [--unanswered]

What a restart takes weighs more on jobs of a minute: `--whole` takes four.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengths import parsed, print_figures

from dlrover_nb.core.commands.requests import Pin, SetMode
from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle

KINDS = {"ring": Framework.DDP, "async": Framework.TENSORFLOW}
N_MEMBER, BATCH, STEP_S = 3, 64, 0.05
SLOWDOWN = 4.0
ILL = "worker-1"
CORES, LIMIT_S = 8.0, 1800.0
PLAN = ResourcePlan(RolePlan(N_MEMBER, 1.0, 1024), RolePlan(1, 0.5, 512))


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=60.0, help="that the healthy job trains, about")
    parser.add_argument("--window", type=float, default=10.0, help="straggler_window_s of the jobs")
    parser.add_argument("--unanswered", action="store_true", help="measure that too; it takes longest")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--train", nargs=2, metavar=("KIND", "ROWS"), help=argparse.SUPPRESS)
    parser.add_argument("--ill", action="store_true", help=argparse.SUPPRESS)
    args = parsed(parser, seconds=240.0, window=20.0)
    if args.train:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a program of a user's ends as the job ends it
        train(args.train[0], int(args.train[1]), ill_after_s=args.seconds / 4 if args.ill else math.inf)
        return
    figures = measured(args)
    worst = max(each["jct_over_healthy"] for each in figures.values())
    print_figures("external_straggler", {"jct_over_healthy": worst, "kinds": figures})


@dataclass(slots=True)
class Run:
    """One job: what it is called, and when it began and ended to train."""

    handle: JobHandle
    began_s: float | None = None
    ended_s: float | None = None

    def look(self) -> bool:
        """Note where it is; whether it has ended."""
        now, at_s = self.handle.snapshot(), time.monotonic()
        if self.began_s is None and now.train.n_sample_done > 0:
            self.began_s = at_s
        if self.ended_s is None and now.phase.is_final:
            if now.phase is not JobPhase.SUCCEEDED:
                raise SystemExit(f"{self.handle.name} has {now.phase}: {now.message}")
            self.ended_s = at_s
            did = [f"{each.words}: {each.status}" for each in now.mitigations]
            sys.stderr.write(
                f"{self.handle.name}: {self.took_s:.0f} s; answers: {', '.join(did) or 'none'}\n"
            )
        return self.ended_s is not None

    @property
    def took_s(self) -> float:
        """Time from the first step to the end."""
        assert self.began_s is not None
        assert self.ended_s is not None
        return self.ended_s - self.began_s


def measured(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return ratios of the times of jobs by kind: medians of rounds."""
    ways: dict[str, tuple[Mode, *tuple[str, ...]]] = {
        "healthy": (Mode.AUTO,),
        "answered": (Mode.AUTO, "--ill"),
    }
    if args.unanswered:
        ways["unanswered"] = (Mode.MANUAL, "--ill")
    rounds = []
    with tempfile.TemporaryDirectory(prefix="dlb") as home:
        os.environ |= {"XDG_STATE_HOME": f"{home}/state", "XDG_DATA_HOME": f"{home}/data"}
        cluster = connect("local", cpus=2 * CORES)
        try:
            for i in range(args.rounds):
                jobs = {
                    (kind, way): Run(submit(cluster, f"{kind}-{i}-{way}", args, *ways[way]))
                    for kind in args.kinds
                    for way in ways
                }
                until(partial(has_ended, tuple(jobs.values())), "the jobs")
                rounds.append({key: job.took_s for key, job in jobs.items()})
        finally:
            cluster.shutdown(force=True)

    def ratio(kind: str, way: str) -> float:
        return round(statistics.median(each[kind, way] / each[kind, "healthy"] for each in rounds), 3)

    return {
        kind: {
            "jct_over_healthy": ratio(kind, "answered"),
            "jct_unanswered": ratio(kind, "unanswered") if args.unanswered else None,
            "healthy_s": round(statistics.median(each[kind, "healthy"] for each in rounds), 1),
        }
        for kind in args.kinds
    }


def has_ended(jobs: Iterable[Run]) -> bool:
    """Look at all jobs; whether each has ended."""
    return all([job.look() for job in jobs])  # noqa: C419 - looks at all, also behind one that goes on


def submit(cluster: Cluster, name: str, args: argparse.Namespace, mode: Mode, *ill: str) -> JobHandle:
    """Submit a job."""
    kind = name.partition("-")[0]
    n_row = int(args.seconds / STEP_S) * BATCH * N_MEMBER
    command = (sys.executable, str(Path(__file__).resolve()), "--train", kind, str(n_row), *ill)
    command += ("--seconds", str(args.seconds))
    store = ExternalRole() if KINDS[kind] is Framework.DDP else ExternalRole(("sleep", "100000"))
    program = ExternalSpec(
        ExternalRole(command),
        n_row,
        ps=store,
        framework=KINDS[kind],
        dynamic_workers=KINDS[kind] is Framework.TENSORFLOW,
    )
    spec = JobSpec(name, plan=PLAN, foreign=program, batch_size=BATCH, straggler_window_s=args.window)
    handle = cluster.submit(spec)
    handle.decide(Pin.to(PLAN))
    handle.decide(SetMode(mode))
    return handle


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that a job does."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end_s:
            raise SystemExit(f"{what} did nothing more for {LIMIT_S:.0f} s")
        time.sleep(0.5)


def train(kind: str, n_row: int, *, ill_after_s: float) -> None:
    """Be a member of a job, which gets slow after some seconds."""
    began_s = time.monotonic()

    def step(n_row: int) -> None:
        slow = os.environ["DLROVER_NB_NODE"] == ILL and time.monotonic() > began_s + ill_after_s
        time.sleep(STEP_S * n_row / BATCH * (SLOWDOWN if slow else 1.0))

    (train_ring if kind == "ring" else train_async)(n_row, step)


def train_ring(n_row: int, step: Callable[[int], None]) -> None:
    """Train with all-reduce: what is computed is little, and right."""
    import torch

    from dlrover_nb.client.elastic import Elastic

    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    job = Elastic(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        n_row=n_row,
        batch_size=BATCH,
        checkpoint_every_s=0,
    )
    for rows in job.batches():
        loss = (model(torch.ones(len(rows), 8)) ** 2).mean()
        step(len(rows))
        job.step(loss)


def train_async(n_row: int, step: Callable[[int], None]) -> None:
    """Train shard after shard, each worker for itself."""
    from dlrover_nb import client

    for shard in client.shards(n_row):
        for rows in shard.batches(BATCH):
            step(len(rows))
            shard.done(len(rows))
            client.report(len(rows))


if __name__ == "__main__":
    main()
