"""A slow PS and a slow worker in real jobs of this machine: completion times against doing nothing.

Three workers without a common step (ASP), two PS. From the moment at which all train, one node has a
quarter of its CPU. The methods: nothing; the whole job is stopped and begun again from its checkpoint once
the node is known to be slow; and ours, where the PS gives buckets away by what it can serve, or the worker is
replaced.

ps_jct_s_*, worker_jct_s_*     medians, interleaved
ps_over_none_percent, …        change of the completion time (the paper: -36.4 and -27.6 for a PS, -48.5 and
                               -37 for a worker, over none and over stop-and-restart)
is_exact, auc_difference       as in `antdt.py --real`

    python benchmarks/hot_ps.py [--times 1 --roles ps --beside none] [--whole]
"""

from __future__ import annotations

import argparse
import statistics
from typing import TYPE_CHECKING, Any

from lengths import parsed, print_figures
from straggler_runs import RESTART, Case, interleaved, spec_of

from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.testing import faults

if TYPE_CHECKING:
    from collections.abc import Sequence

BESIDE, OURS = ("none", RESTART), "antdt-nd"
SLOW = {"ps": "ps-1", "worker": "worker-1"}
SHARE = 0.25
N_EPOCH = 14


def measured(role: str, methods: Sequence[str], n: int) -> tuple[dict[str, Any], list[float], bool]:
    """Return times by method and what ours changes, mean AUCs by method, and whether rows are exact."""
    spec = spec_of(role, sync=Sync.ASP, n_worker=3, n_ps=2, n_epoch=N_EPOCH, batch_size=256)
    runs = list(interleaved(Case(spec, ((SLOW[role], faults.CpuShare(SHARE)),)), methods, n))
    by_method = {method: [run for run in runs if run.method == method] for method in methods}
    jct_s = {method: statistics.median(run.jct_s for run in some) for method, some in by_method.items()}
    figures = {f"{role}_jct_s_{method.replace('-', '_')}": round(jct_s[method], 1) for method in methods}
    for method in methods[:-1]:
        word = method.rpartition("-")[2]
        figures[f"{role}_over_{word}_percent"] = round(100 * (jct_s[OURS] / jct_s[method] - 1), 1)
    aucs = [statistics.fmean(run.auc for run in some) for some in by_method.values()]
    return figures, aucs, all(run.is_exact for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1, help="jobs for each median")
    parser.add_argument("--roles", nargs="+", default=["ps"], choices=tuple(SLOW), help="of the slow node")
    parser.add_argument("--beside", nargs="+", default=["none"], choices=BESIDE, help="methods beside ours")
    parser.add_argument("--real", action="store_true", help="as always: nothing here is simulated")
    options = parsed(parser, times=3, roles=list(SLOW), beside=list(BESIDE))
    figures: dict[str, Any] = {}
    spreads, exact = [], []
    for role in options.roles:
        of_role, aucs, is_exact = measured(role, (*options.beside, OURS), options.times)
        figures |= of_role
        spreads.append(max(aucs) - min(aucs))
        exact.append(is_exact)
    print_figures("hot_ps", {**figures, "auc_difference": round(max(spreads), 4), "is_exact": all(exact)})


if __name__ == "__main__":
    main()
