"""AntDT-DD beside LB-BSP and even batches, on workers of two kinds, as real processes.

in turn     two workers with quotas of .6 and .2 cores, whose memory holds one even batch: shares by measured
            costs, in turn within one job with a parameter server, and one by all-reduce (`dd_in_turn.py`,
            half a minute each)
auto        the same two workers with a parameter server, a job for each method, which the job's own
            controller finds and applies (`dd_auto.py`, 3 minutes a round)
programs    of users (`client.elastic`), one of two at half speed, where only speeds are known, beside torch's
            own DDP: samples/s of the last seconds of each run, when shares have settled; `over_ddp` and
            `over_lb_bsp` are medians of the ratios within a round (2 minutes a round)

AntDT has +12 to +48 % over DDP and LB-BSP, on GPUs of two series.

The figures are `dd_over_lb_ps`, `dd_over_even_ps`, `dd_over_lb_allreduce` and `dd_over_even_allreduce`; `ps`
and `allreduce` have all that they rest on.

    python benchmarks/dd.py [--rounds 1] [--auto-rounds 0] [--program-rounds 0] [--seconds 24]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import dd_auto
import dd_in_turn
from allreduce import BATCH, CORES, LIMIT_S, ended, read_steps, started, submit, until
from lengths import parsed, print_figures

from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync

if TYPE_CHECKING:
    from dlrover_nb.core.client.cluster import Cluster

LAST_S = 8.0
KINDS = {
    "ddp": None,
    "even": SolutionName.NONE,
    "lb_bsp": SolutionName.LB_BSP,
    "dd": SolutionName.ANTDT_DD,
}


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--auto-rounds", type=int, default=0)
    parser.add_argument("--program-rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=24.0, help="of each run of a user's program")
    args = parsed(parser, rounds=3, auto_rounds=3, program_rounds=3)
    with tempfile.TemporaryDirectory(prefix="dd-") as name:
        os.environ["HOME"], os.environ["XDG_STATE_HOME"] = name, f"{name}/state"
        measured = in_turn(args.rounds, Path(name)) if args.rounds else {}
        measured |= dd_auto.measured(args.auto_rounds) if args.auto_rounds else {}
        measured |= programs(Path(name), args.program_rounds, args.seconds) if args.program_rounds else {}
    print_figures("dd", measured)


def in_turn(n_round: int, home: Path) -> dict[str, object]:
    """Let workers of ours train in step, with a parameter server and by all-reduce."""
    figures: dict[str, object] = {}
    for name, sync in (("ps", Sync.BSP), ("allreduce", Sync.ALLREDUCE)):
        ratios = dd_in_turn.measured(n_round, home / name, sync)
        figures |= {f"dd_over_lb_{name}": ratios["over_lb_bsp"], f"dd_over_even_{name}": ratios["over_even"]}
        figures[name] = ratios
    return figures


def programs(home: Path, n_round: int, seconds: float) -> dict[str, object]:
    """Let programs of users train, with one slow member."""
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cluster = connect("local", cpus=CORES)
    try:
        for number in range(n_round):
            for kind in KINDS if number % 2 else reversed(KINDS):
                folder = home / f"{kind.replace('_', '-')}-{number}"
                folder.mkdir()
                run(cluster, folder, KINDS[kind], seconds)
                rates[kind].append(last_rate(folder))
    finally:
        cluster.shutdown(force=True)
    return figures(rates)


def run(cluster: Cluster, folder: Path, solution: SolutionName | None, seconds: float) -> None:
    """Train for some seconds with one slow member."""
    if solution is None:
        with started(folder, 2, "--seconds", str(seconds), "--slow", "1") as processes:
            for process in processes:
                process.wait(LIMIT_S)
        return
    more = ("--seconds", str(seconds), "--slow", "worker-1")
    handle = submit(cluster, folder, 2, *more, n_epoch=1000, global_batch=2 * BATCH, stragglers=solution)
    until(lambda: len(read_steps(folder)) == 2, "both members", every_s=0.2)
    time.sleep(seconds)  # as in allreduce.py
    until(lambda: len(ended(folder, seconds)) == 2, "the end of both members", every_s=0.5)
    cluster.delete(handle.name, force=True)


def last_rate(folder: Path) -> float:
    """Return samples/s of all processes together in the last seconds."""
    runs = read_steps(folder).values()
    stop_s = min(steps[-1][0] for steps in runs)
    n_row = sum(step[1] for steps in runs for step in steps if stop_s - LAST_S < step[0] <= stop_s)
    return n_row / LAST_S


def figures(found: dict[str, list[float]]) -> dict[str, object]:
    """Return the medians, and the ratios of DD."""
    ratios = {
        f"over_{kind}": statistics.median(a / b for a, b in zip(found["dd"], rates, strict=True))
        for kind, rates in found.items()
        if kind != "dd"
    }
    rates = {kind: round(statistics.median(each)) for kind, each in found.items()}
    return {**{name: round(ratio, 3) for name, ratio in ratios.items()}, "samples_per_s": rates}


if __name__ == "__main__":
    main()
