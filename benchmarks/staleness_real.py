"""Jobs of processes for `staleness.py`: speed of gathered global batches beside one step a batch, and BSP.

Each comparison is of pairs of runs one after the other, and the median of their ratios counts: other load of
the machine then hits both. CPU time of the processes stands beside that of the clock: on a busy machine it is
the better measure of what a way costs itself. Waiting for a slow worker shows in the clock alone. All of it
takes some fifteen minutes.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from straggler_runs import Case, run, spec_of

from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.testing import faults

if TYPE_CHECKING:
    from straggler_runs import Outcome

N_WORKER, N_EPOCH, N_PAIR = 3, 10, 3  # shorter jobs end before all nodes have been seen to train
SLEEP_S = 0.4  # more for each step of the slow worker: some ten times a step
GATHER = "gba"


def real(n_pair: int = N_PAIR) -> dict[str, object]:
    """Return `gba_over_asp` and `gba_over_bsp_slow`: throughput, above 1 where gathering is faster."""
    if GATHER not in {*map(str, Sync)}:
        return {"gba_over_asp": None, "gba_over_bsp_slow": None, "real_note": "this release has no sync gba"}
    slow = (("worker-1", faults.Persistent(sleep_s=SLEEP_S)),)
    quiet = [(_run(Sync.ASP, i), _run(Sync(GATHER), i)) for i in range(n_pair)]
    slowed = [(_run(Sync.BSP, i, slow), _run(Sync(GATHER), i, slow)) for i in range(n_pair)]
    return {
        "gba_over_asp": _ratio(quiet, "jct_s"),
        "gba_over_asp_cpu": _ratio(quiet, "cpu_s"),
        "gba_over_bsp_slow": _ratio(slowed, "jct_s"),
        "is_exact": all(each.is_exact for pair in (*quiet, *slowed) for each in pair),
    }


def _run(sync: Sync, number: int, slow: tuple[tuple[str, object], ...] = ()) -> Outcome:
    spec = spec_of(f"staleness-{sync}", sync=sync, n_worker=N_WORKER, n_ps=1, n_epoch=N_EPOCH)
    outcome = run(Case(spec, slow), SolutionName.NONE, number)
    print(f"{sync}{' with a slow worker' * bool(slow)}: {outcome.jct_s:.1f} s, {outcome.cpu_s:.1f} s of CPU")
    return outcome


def _ratio(pairs: list[tuple[Outcome, Outcome]], measure: str) -> float:
    """Return the median ratio of the first run's time to the second's."""
    return round(median(getattr(a, measure) / getattr(b, measure) for a, b in pairs), 3)
