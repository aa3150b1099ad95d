"""AntDT on real small jobs of this machine, with injected sleeps: the part ``--real`` of `antdt.py`.

Four workers in step (BSP) and one PS. From the moment at which all train, worker-1 sleeps in each iteration
(the persistent straggler), and worker-2 in some periods (a transient one): AntDT's patterns, a minute as a
second.
Each method trains the same rows; `jct_s` are medians of completion times, interleaved.

jct_s_*            none, stop-and-restart, antdt-nd, backup-workers, lb-bsp
speedup_over_*     how much longer the other method takes than antdt-nd, percent
auc_difference     between the highest and the lowest mean AUC of the methods
is_exact           whether each row was counted exactly once for each pass, in every run
overhead_percent   CPU time of the monitor, the solution and the arbiter in a job without stragglers, over
                   that of all its processes: median of jobs
overhead_cpu_percent, overhead_jct_percent   CPU time and completion time with the solution over those
                   without: medians of interleaved pairs, which vary by several percent here
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from straggler_runs import RESTART, Case, interleaved, spec_of

from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.testing import faults

METHODS = ("none", RESTART, "antdt-nd", "backup-workers", "lb-bsp")
N_EPOCH = 10
SLEEP_S, TRANSIENT_S = 0.06, 0.03  # an iteration takes some 30 ms here, as it takes 2.5 s in the paper


def stragglers(n_epoch: int = N_EPOCH) -> Case:
    spec = spec_of("antdt", sync=Sync.BSP, n_worker=4, n_ps=1, n_epoch=n_epoch, batch_size=256)
    transient = faults.Transient(TRANSIENT_S, 1.0, probability=0.5, lasts_s=15.0, every_s=30.0, seed=2)
    return Case(spec, (("worker-1", faults.Persistent(SLEEP_S)), ("worker-2", transient)))


def measured(n: int) -> dict[str, Any]:
    """Return the figures of all methods and of the overhead."""
    runs = list(interleaved(stragglers(), METHODS, n))
    by_method = {method: [run for run in runs if run.method == method] for method in METHODS}
    jct_s = {method: statistics.median(run.jct_s for run in some) for method, some in by_method.items()}
    aucs = [statistics.fmean(run.auc for run in some) for some in by_method.values()]
    over = {m: round(100 * (jct_s[m] / jct_s["antdt-nd"] - 1), 1) for m in METHODS if m != "antdt-nd"}
    return {
        **{f"jct_s_{method.replace('-', '_')}": round(seconds, 1) for method, seconds in jct_s.items()},
        **{f"speedup_over_{method.replace('-', '_')}": percent for method, percent in over.items()},
        "auc_difference": round(max(aucs) - min(aucs), 4),
        "is_exact": all(run.is_exact for run in runs),
        **overhead(n),
    }


def overhead(n: int) -> dict[str, Any]:
    """Return what watching costs where nothing is slow, with the windows that a job has by default.

    Windows of seconds hold so few iterations that noise of a small machine looks like slowness.
    """
    calm = Case(replace(stragglers().spec, straggler_window_s=300.0))
    runs = list(interleaved(calm, ("none", "antdt-nd"), n))
    pairs = list(zip(runs[::2], runs[1::2], strict=True))

    def percent(of: str) -> float:
        ratios = [float(getattr(b, of) / getattr(a, of)) for a, b in pairs]
        return 100 * (statistics.median(ratios) - 1)

    watched = statistics.median(100 * run.watch_s / run.cpu_s for run in runs if run.method == "antdt-nd")
    return {
        "overhead_percent": round(watched, 3),
        "overhead_cpu_percent": round(percent("cpu_s"), 2),
        "overhead_jct_percent": round(percent("jct_s"), 2),
        "overhead_actions": sum(len(run.actions) for run in runs),
    }
