"""A slow PS and a slow worker in real jobs of this machine: completion times against doing nothing.

Three workers without a common step (ASP), two PS. From the moment at which all train, one node has a
quarter of its CPU. The methods: nothing; the whole job is stopped and begun again from its checkpoint once
the node is known to be slow; and ours, where the PS gives buckets away by what it can serve, or the worker is
replaced.

ps_jct_s_*, worker_jct_s_*     medians, interleaved
ps_over_none_percent, …        change of the completion time (the paper: -36.4 and -27.6 for a PS, -48.5 and
                               -37 for a worker, over none and over stop-and-restart)
is_exact, auc_difference       as in `antdt.py --real`

    python benchmarks/hot_ps.py [--times 3]
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from lengths import parsed, print_figures
from straggler_runs import RESTART, Case, interleaved, spec_of

from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.testing import faults

METHODS = ("none", RESTART, "antdt-nd")
SHARE = 0.25
N_EPOCH = 14


def measured(name: str, node: str, n: int) -> tuple[dict[str, Any], list[float], bool]:
    spec = spec_of(name, sync=Sync.ASP, n_worker=3, n_ps=2, n_epoch=N_EPOCH, batch_size=256)
    runs = list(interleaved(Case(spec, ((node, faults.CpuShare(SHARE)),)), METHODS, n))
    by_method = {method: [run for run in runs if run.method == method] for method in METHODS}
    jct_s = {method: statistics.median(run.jct_s for run in some) for method, some in by_method.items()}
    ours = jct_s["antdt-nd"]
    figures = {f"{name}_jct_s_{method.replace('-', '_')}": round(jct_s[method], 1) for method in METHODS}
    for method, word in (("none", "none"), (RESTART, "restart")):
        figures[f"{name}_over_{word}_percent"] = round(100 * (ours / jct_s[method] - 1), 1)
    aucs = [statistics.fmean(run.auc for run in some) for some in by_method.values()]
    return figures, aucs, all(run.is_exact for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1, help="jobs for each median")
    parser.add_argument("--real", action="store_true", help="as always: nothing here is simulated")
    options = parsed(parser, times=3)
    ps, ps_aucs, ps_exact = measured("ps", "ps-1", options.times)
    worker, worker_aucs, worker_exact = measured("worker", "worker-1", options.times)
    spread = max(max(ps_aucs) - min(ps_aucs), max(worker_aucs) - min(worker_aucs))
    told = {"auc_difference": round(spread, 4), "is_exact": ps_exact and worker_exact}
    print_figures("hot_ps", {**ps, **worker, **told})


if __name__ == "__main__":
    main()
