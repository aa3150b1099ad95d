"""The same bits whatever happens (`deterministic`) beside plain `bsp`: real jobs of this machine, in turns.

Workers and a parameter server train Wide & Deep on the Census rows; a step has a batch of each worker.

cpu_over_bsp            CPU time of all processes over that of bsp, medians of as many jobs
time_over_bsp           the same of the time of training: only where nothing else runs
cpu_ms_bsp, cpu_ms_det  CPU time of all processes for each batch
auc_bsp, auc_det        means
is_exact                whether each job has trained each row of each pass once

    python benchmarks/deterministic.py [--times 1] [--epochs 2] [--workers 2]
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace

from lengths import parsed, print_figures
from straggler_runs import Case, Outcome, run, spec_of

from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync

BATCH = 512


def outcomes(n: int, n_epoch: int, n_worker: int) -> dict[str, list[Outcome]]:
    """Return what became of `n` jobs of each kind."""
    runs: dict[str, list[Outcome]] = {"bsp": [], "det": []}
    for number in range(n):
        for kind, some in runs.items():
            spec = spec_of(
                f"bits-{kind}",
                sync=Sync.BSP,
                n_worker=n_worker,
                n_ps=1,
                n_epoch=n_epoch,
                batch_size=BATCH,
                seed=number,
            )
            if kind == "det":
                spec = replace(spec, deterministic=True, global_batch=n_worker * BATCH)
            some.append(run(Case(spec), SolutionName.NONE, number))
    return runs


def figures(n: int, n_epoch: int, n_worker: int) -> dict[str, float | bool]:
    """Run the jobs, and return what the module says."""
    runs = outcomes(n, n_epoch, n_worker)
    cpu_s = {kind: statistics.median(each.cpu_s for each in some) for kind, some in runs.items()}
    jct_s = {kind: statistics.median(each.jct_s for each in some) for kind, some in runs.items()}
    n_batch = runs["bsp"][0].n_expected / BATCH
    line: dict[str, float | bool] = {
        "cpu_over_bsp": round(cpu_s["det"] / cpu_s["bsp"], 3),
        "time_over_bsp": round(jct_s["det"] / jct_s["bsp"], 3),
    }
    for kind, some in runs.items():
        line[f"cpu_ms_{kind}"] = round(1e3 * cpu_s[kind] / n_batch, 2)
        line[f"auc_{kind}"] = round(statistics.fmean(each.auc for each in some), 5)
    line["is_exact"] = all(each.is_exact for some in runs.values() for each in some)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1, help="jobs for each median")
    parser.add_argument("--epochs", type=int, default=2, help="passes of each job")
    parser.add_argument("--workers", type=int, default=2, help="workers of each job")
    options = parsed(parser)
    line = figures(options.times, options.epochs, options.workers)
    print_figures("deterministic", line)


if __name__ == "__main__":
    main()
