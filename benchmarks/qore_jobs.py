"""Jobs with deadlines on one cluster: Qore-DL's scheduler and adjuster against FCFS, Optimus and SLAQ.

A stream of 24 jobs arrives on 4 machines of 32 cores, at three loads (cores that the jobs would keep busy on
usual plans, over those of the cluster) and with three seeds; every policy runs the same streams
(`qore_stream`). A job's deadline is 1.2 to 2.5 times its length on a usual plan. Its user's request has each
number of that plan wrong by a factor of about two. No node fails; speeds have 2 % of noise.

- ``qore``: the product: queue order `qore`, brain method `qore` with leave to shrink, job policy `qore`,
  speeds of waiting jobs known from two runs of each family of jobs.
- ``fcfs``: the product's queue in order of arrival, each job on its whole request to its end.
- ``optimus``, ``slaq``: see `qore_baselines`; a job starts in order of arrival on at least half its request.
  Each adds one or two nodes at once: the number that meets most deadlines over all streams counts
  (`variant_of`), which is in their favour.

`deadline_satisfaction` is the share of jobs that end in time under `qore`; `over_fcfs`, `over_optimus` and
`over_slaq` are its difference from theirs. `mean_timeout` is the time over the deadline as a share of the
time until it, 0 for a job in time; `utilisation` is U of Qore-DL's Eq. 1 over time, `cores` the share of the
cores that nodes hold, both from the first arrival to the last.

    python benchmarks/qore_jobs.py [--seeds 3 --jobs 24 --loads 0.7 1.1 1.5 --processes 2 --default]

--default adds the product with its defaults, the brain's method `weighted` and the policy by the throughput
model, with the same queue.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from lengths import parsed, print_figures
from qore_baselines import Optimus, Slaq
from qore_stream import Outcome, Setting, Steering, run_stream, stream_of

from dlrover_nb.core.brain.cluster_plan import BrainSettings
from dlrover_nb.core.structs.job.spec_choices import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Figures = dict[str, float]
LOADS = (0.7, 1.1, 1.5)
BASELINES = ("fcfs", "optimus", "slaq")


def ways(seed: int, *, with_default: bool) -> dict[str, tuple[Setting, Steering]]:
    """Return all ways to plan; variants of a baseline are named after it."""
    queue = BrainSettings(order="qore", shrink=True)
    auto: dict[str, Any] = {"mode": Mode.AUTO, "knows_past": True}
    found: dict[str, tuple[Setting, Steering]] = {
        "qore": (
            Setting(BrainSettings(method="qore", order="qore", shrink=True), policy="qore", **auto),
            Steering(),
        ),
        "fcfs": (Setting(BrainSettings(start_share=1.0)), Steering()),
        "optimus, 1 node": (Setting(BrainSettings()), Optimus(1)),
        "optimus, 2 nodes": (Setting(BrainSettings()), Optimus(2)),
        "slaq, 1 node": (Setting(BrainSettings()), Slaq(1, seed)),
        "slaq, 2 nodes": (Setting(BrainSettings()), Slaq(2, seed)),
    }
    if with_default:
        found["default"] = (Setting(queue, policy="throughput-model", **auto), Steering())
    return found


def run_ways(cell: tuple[int, float], n_job: int, *, with_default: bool) -> dict[str, Outcome]:
    """Return what comes of the stream of a seed and a load, by the way to plan."""
    seed, load = cell
    stream = stream_of(load, n_job, seed)
    return {
        name: run_stream(stream, setting, steering, seed)
        for name, (setting, steering) in ways(seed, with_default=with_default).items()
    }


# pure parts


def figures(outcomes: list[Outcome]) -> Figures:
    """Return the figures of some streams under one way to plan."""
    timeouts = [each for outcome in outcomes for each in outcome.timeouts]
    return {
        "deadline_satisfaction": sum(each <= 0 for each in timeouts) / len(timeouts),
        "mean_timeout": statistics.fmean(outcome.mean_timeout for outcome in outcomes),
        "utilisation": statistics.fmean(statistics.fmean(outcome.used) for outcome in outcomes),
        "cores": statistics.fmean(statistics.fmean(outcome.cores) for outcome in outcomes),
        "core_h": sum(outcome.core_h for outcome in outcomes),
    }


def variant_of(name: str, whole: dict[str, Figures]) -> str:
    """Return the variant of a policy that meets most deadlines; of equal ones the least late."""
    own = [each for each in whole if each.split(",")[0] == name]
    return max(own, key=lambda each: (whole[each]["deadline_satisfaction"], -whole[each]["mean_timeout"]))


def rounded(row: Figures) -> Figures:
    return {key: round(value, 1 if key == "core_h" else 4) for key, value in row.items()}


def line_of(
    outcomes: Mapping[tuple[int, float], Mapping[str, Outcome]], loads: Sequence[float]
) -> dict[str, object]:
    """Return the figures of all policies, each baseline by its best variant.

    Parameters
    ----------
    outcomes
        By seed and load, then by the way to plan.
    """
    names = list(next(iter(outcomes.values())))
    whole = {name: figures([ways[name] for ways in outcomes.values()]) for name in names}
    chosen = {name: variant_of(name, whole) for name in dict.fromkeys(each.split(",")[0] for each in names)}
    ours = whole["qore"]["deadline_satisfaction"]
    line: dict[str, object] = {"deadline_satisfaction": round(ours, 4)}
    for name in BASELINES:
        line[f"over_{name}"] = round(ours - whole[chosen[name]]["deadline_satisfaction"], 4)
    line["policies"] = {name: rounded(whole[own]) for name, own in chosen.items()}
    line["variant_of"] = {name: own for name, own in chosen.items() if own != name}
    line["by_load"] = {
        f"{load:g}": {
            name: rounded(figures([ways[own] for (_, at), ways in outcomes.items() if at == load]))
            for name, own in chosen.items()
        }
        for load in loads
    }
    return line | {"variants": {n: round(row["deadline_satisfaction"], 4) for n, row in whole.items()}}


def show(line: dict[str, Any]) -> None:
    """Print a table of the policies at each load."""
    tables = {"all loads": line["policies"], **line["by_load"]}
    for load, rows in tables.items():
        print(f"\nload {load}\n{'':10}{'in time':>9}{'time-out':>10}{'U':>7}{'cores':>7}{'core h':>8}")
        for name, row in rows.items():
            cells = [f"{row[k]:.1%}" for k in ("deadline_satisfaction", "mean_timeout")]
            use = [f"{row[k]:.2f}" for k in ("utilisation", "cores")]
            print(f"{name:10}{cells[0]:>9}{cells[1]:>10}{use[0]:>7}{use[1]:>7}{row['core_h']:>8.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=24, help="of a stream")
    parser.add_argument("--loads", type=float, nargs="+", default=[LOADS[1]])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--default", action="store_true", help="the product with its defaults too")
    options = parsed(parser, seeds=3, loads=list(LOADS))
    seeds, loads, from_s = range(options.seeds), tuple(options.loads), time.monotonic()
    cells = list(product(seeds, loads))
    run = partial(run_ways, n_job=options.jobs, with_default=options.default)
    with ProcessPoolExecutor(options.processes) as pool:
        outcomes = dict(zip(cells, pool.map(run, cells), strict=True))
    line = line_of(outcomes, loads)
    show(line)
    line |= {"n_job": options.jobs, "n_seed": options.seeds, "wall_s": round(time.monotonic() - from_s, 1)}
    print_figures("qore_jobs", line)


if __name__ == "__main__":
    main()
