"""Global batches without waiting (`sync: gba`) beside `asp` and `bsp`: real jobs of this machine, in turns.

Two workers and a parameter server train Wide & Deep on the Census rows; with a slow worker, one has a quarter
of its CPU from the moment at which all train.

gba_over_asp            rows per second over those of asp, medians of as many jobs, no worker slow
gba_over_bsp_slow       the same over bsp, with a slow worker
cpu_ms_asp, cpu_ms_gba  CPU time of all processes for each batch: on a busy machine this alone counts
auc_asp, auc_gba, …     means; a step of gba and of bsp has the batches of two workers
is_exact                whether each job has trained each row of each pass once

    python benchmarks/gathering.py [--times 1] [--epochs 2]
"""

from __future__ import annotations

import argparse
import statistics

from lengths import parsed, print_figures
from straggler_runs import Case, Outcome, run, spec_of

from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.testing import faults

SYNCS = (Sync.ASP, Sync.GBA, Sync.BSP)
BATCH, SHARE = 256, 0.25
Key = tuple[Sync, bool]


def outcomes(n: int, n_epoch: int) -> dict[Key, list[Outcome]]:
    """Return what became of `n` jobs of each kind, without a slow worker and with one."""
    runs: dict[Key, list[Outcome]] = {(sync, slow): [] for slow in (False, True) for sync in SYNCS}
    for number in range(n):
        for (sync, slow), some in runs.items():
            name = f"gather-{sync}-{'slow' if slow else 'even'}"
            spec = spec_of(
                name, sync=sync, n_worker=2, n_ps=1, n_epoch=n_epoch, batch_size=BATCH, seed=number
            )
            case = Case(spec, (("worker-0", faults.CpuShare(SHARE)),) if slow else ())
            some.append(run(case, SolutionName.NONE, number))
    return runs


def figures(n: int, n_epoch: int) -> dict[str, float | bool]:
    """Run the jobs, and return what the module says."""
    runs = outcomes(n, n_epoch)
    jct_s = {key: statistics.median(each.jct_s for each in some) for key, some in runs.items()}
    n_batch = runs[Sync.ASP, False][0].n_expected / BATCH
    line: dict[str, float | bool] = {
        "gba_over_asp": round(jct_s[Sync.ASP, False] / jct_s[Sync.GBA, False], 3),
        "gba_over_bsp_slow": round(jct_s[Sync.BSP, True] / jct_s[Sync.GBA, True], 3),
    }
    for sync in SYNCS:
        even = runs[sync, False]
        line[f"cpu_ms_{sync}"] = round(1e3 * statistics.median(each.cpu_s for each in even) / n_batch, 2)
        line[f"auc_{sync}"] = round(statistics.fmean(each.auc for each in even), 5)
    line["is_exact"] = all(each.is_exact for some in runs.values() for each in some)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1, help="jobs for each median")
    parser.add_argument("--epochs", type=int, default=2, help="passes of each job")
    options = parsed(parser, times=3)
    print_figures("gathering", figures(options.times, options.epochs))


if __name__ == "__main__":
    main()
