"""Precision, recall and delay of the straggler rules on measured times of nodes.

The monitor reads each trace as a job would report it, one report of each node in each iteration, on a clock
that counts iterations (Alibaba: recorded every tenth). Both rules are asked after each. Successive findings
of a node are one alarm. It is true where the node was slow between the alarm's begin and its end, or up to a
short window before; a slow stretch is found where a true alarm lies in it. Precision is the share of true
alarms (null: no alarm), recall that of found stretches (null: none is there), delay the mean iterations from
the begin of a stretch to its alarm. What is slow:

- Alibaba, two jobs of ten workers: the README names worker 6 of job 1 as straggler, from somewhere in the run
  on, and calls job 2 heterogeneous but stable. When worker 6 is slow is derived from the whole run: the
  stretches of at least 3 records in which the centered median of 5 of its time over the others' median is at
  least 1.15; stretches that lie within 5 records are one. The same derivation finds short stretches of
  other workers, which the README does not name: `alibaba_derived` is scored against all of them.
- ByteDance: `result-AR.json` says how much faster the job would be without each rank of data parallelism
  and without each stage of the pipeline; where both gain more than a tenth, their common rank is slow, from
  the first step to the last.
- LeMethod, 22 runs of 10 to 60 workers, push and pull of each: an oracle over the whole run, as above with a
  centered median of 15 iterations. Where it finds none, all alarms are false. So for `sleeps`, times of
  computing that were imitated by sleeping 0 to 10 s at random, alike for all workers.

Since these traces hold few slow nodes, every third worker of Alibaba and of three runs of LeMethod is also
slowed, one after the other, by a known factor from the middle of the run on: `injected_recall` by factor,
within two short windows.

    python benchmarks/detector.py [--shared ../shared]
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from lengths import parsed, print_figures

from dlrover_nb.core.straggler import Monitor, MonitorSettings
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RULES = {"": "robust", "_ratio": "ratio"}  # by the suffix of their figures
LEAST = 1.15
FACTORS = (1.2, 1.3, 1.5, 2.0, 3.0)
SHORT = {
    "alibaba": 20,
    "alibaba_derived": 20,
    "bytedance": 10,
    "lemethod": 10,
    "sleeps": 10,
}  # records; about 300 s but for Alibaba


@dataclass(frozen=True)
class Trace:
    """Times of one job, `table[node, record]`; slow stretches by node as (first, last) record."""

    name: str
    table: Floats
    slow: dict[int, list[tuple[int, int]]]
    per_record: int = 1  # iterations


@dataclass(frozen=True)
class Score:
    n_alarm: int
    n_true: int
    n_slow: int
    delays: list[int]
    n_asked: int

    def plus(self, other: Score) -> Score:
        return Score(
            self.n_alarm + other.n_alarm,
            self.n_true + other.n_true,
            self.n_slow + other.n_slow,
            self.delays + other.delays,
            self.n_asked + other.n_asked,
        )


def stretches(table: Floats, width: int, least: int = 3, gap: int = 5) -> dict[int, list[tuple[int, int]]]:
    """Return when each node was slow, as seen from the end of the run."""
    found = {}
    for node, times in enumerate(table):
        others = (
            pd.DataFrame(np.delete(table, node, axis=0)).median().to_numpy()
        )  # NaN of records without any
        ratio = pd.Series(times / others).rolling(width, center=True, min_periods=width // 2).median()
        spans: list[tuple[int, int]] = []
        for record in np.flatnonzero(ratio >= LEAST).tolist():
            if spans and record - spans[-1][1] <= gap:
                spans[-1] = spans[-1][0], record
            else:
                spans.append((record, record))
        if spans := [(first, last) for first, last in spans if last - first + 1 >= least]:
            found[node] = spans
    return found


def alibaba(data: Path) -> list[Trace]:
    rows = pd.read_csv(data / "alibaba" / "minibatch_time_jobs.csv.xz")
    traces = []
    for job, part in rows.groupby("job"):
        table = part.pivot_table(index="worker", columns="time", values="batch_time_norm").to_numpy() / 1e6
        traces.append(Trace(f"alibaba job {job}", table, stretches(table, 5), per_record=10))
    return traces


def named(traces: list[Trace]) -> list[Trace]:
    """Return the jobs of Alibaba with the slow stretches of the worker that the README names."""
    straggler = {"alibaba job 1": {6}}
    return [
        replace(t, slow={node: s for node, s in t.slow.items() if node in straggler.get(t.name, ())})
        for t in traces
    ]


def bytedance(data: Path) -> list[Trace]:
    folder = data / "bytedance_straggler"
    rows = pd.read_parquet(folder / "trace-AR.parquet")
    truth = json.loads((folder / "result-AR.json").read_text())
    ranks, stages = (
        {int(each) for each, gain in truth[f"blocking_decompose_by_{by}"].items() if gain > 1.1}
        for by in ("dp_rank", "stage")
    )
    table = rows.pivot_table(index="rank", columns="step", values="duration", aggfunc="sum")
    places = rows.groupby("rank")[["dp_rank", "stage"]].first()
    is_slow = places["dp_rank"].isin(ranks) & places["stage"].isin(stages)
    whole = (0, table.shape[1] - 1)
    slow = {i: [whole] for i, rank in enumerate(table.index) if is_slow[rank]}
    return [Trace("bytedance AR", table.to_numpy(dtype=float) / 1e3, slow)]


def lemethod(data: Path) -> tuple[list[Trace], list[Trace]]:
    rows = pd.read_parquet(data / "lemethod_ps_sync" / "default_ps_workers.parquet")
    rows["push_pull"] = rows["pull_end"] - rows["push_start"]
    exchanges, sleeps = [], []
    for (n_worker, is_dynamic), part in rows.groupby(["num_worker", "dynamic"]):
        ordered = part.sort_values(["worker", "iter"])
        table = ordered.pivot_table(index="worker", columns="iter", values="push_pull").to_numpy(dtype=float)
        name = f"lemethod {n_worker} workers{', sleeping' * is_dynamic}"
        exchanges.append(Trace(name, table / 1e3, stretches(table, 15)))
        if is_dynamic:
            ordered["slept"] = ordered.groupby("worker")["push_start"].shift(-1) - ordered["pull_end"]
            slept = ordered.pivot_table(index="worker", columns="iter", values="slept").to_numpy(dtype=float)
            sleeps.append(Trace(f"sleeps {n_worker}", np.where(slept > 0.5, slept, np.nan) / 1e3, {}))
    return exchanges, sleeps


def ask(table: Floats, rule: str, short: int) -> list[set[int]]:
    """Return the nodes that the monitor finds after each record."""
    monitor = Monitor(MonitorSettings(float(short), 2.0 * short, rule))
    found = []
    for record, column in enumerate(table.T, 1):
        for node, iter_s in enumerate(column):
            if np.isfinite(iter_s):
                monitor.observe(report(node, float(iter_s)), float(record))
        found.append({int(each.node) for each in monitor.findings(float(record))})
    return found


def report(node: int, iter_s: float) -> NodeSample:
    return NodeSample(
        node=str(node),
        role=Role.WORKER,
        at_s=0.0,
        window_s=1.0,
        n_iter=1,
        n_sample=1,
        iter_s=iter_s,
        split=TimeSplit(compute_s=iter_s),
        cpu_cores=1.0,
        memory_mib=1.0,
    )


def alarms(found: list[set[int]], node: int) -> list[tuple[int, int]]:
    """Return the first and last record of each run of findings of a node."""
    spans: list[tuple[int, int]] = []
    for record, nodes in enumerate(found):
        if node not in nodes:
            continue
        if spans and spans[-1][1] == record - 1:
            spans[-1] = spans[-1][0], record
        else:
            spans.append((record, record))
    return spans


def score(trace: Trace, found: list[set[int]], short: int) -> Score:
    n_alarm = n_true = n_slow = 0
    delays = []
    for node in range(len(trace.table)):
        raised, slow = alarms(found, node), trace.slow.get(node, [])
        n_alarm, n_slow = n_alarm + len(raised), n_slow + len(slow)
        n_true += sum(any(a <= end + short and b >= begin for begin, end in slow) for a, b in raised)
        for begin, end in slow:
            first = [max(a, begin) - begin for a, b in raised if a <= end + short and b >= begin]
            delays += [(min(first) + 1) * trace.per_record] if first else []
    return Score(n_alarm, n_true, n_slow, delays, trace.table.size)


def figures(name: str, suffix: str, total: Score) -> dict[str, float | int | None]:
    unit = "steps" if name == "bytedance" else "iter"
    return {
        f"{name}_precision{suffix}": round(total.n_true / total.n_alarm, 3) if total.n_alarm else None,
        f"{name}_recall{suffix}": round(len(total.delays) / total.n_slow, 3) if total.n_slow else None,
        f"{name}_delay_{unit}{suffix}": round(statistics.fmean(total.delays), 1) if total.delays else None,
        f"{name}_false_alarms{suffix}": total.n_alarm - total.n_true,
    }


def injected(traces: list[Trace], rule: str) -> dict[str, float]:
    """Return the share of slowed workers that are found within two short windows, by factor."""
    recalls = {}
    for factor in FACTORS:
        hits = []
        for trace in traces:
            short = SHORT[trace.name.split()[0]]
            n_node, n_record = trace.table.shape
            for node in range(0, n_node, 3):
                begin = n_record // 2
                table = trace.table[:, begin - 2 * short : begin + 2 * short].copy()
                table[node, 2 * short :] *= factor
                hits.append(any(node in nodes for nodes in ask(table, rule, short)[2 * short :]))
        recalls[f"{factor:g}"] = round(statistics.fmean(hits), 3)
    return recalls


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    data = parsed(parser).shared / "data"
    exchanges, sleeps = lemethod(data)
    derived = alibaba(data)
    groups = {
        "alibaba": named(derived),
        "alibaba_derived": derived,
        "bytedance": bytedance(data),
        "lemethod": exchanges,
        "sleeps": sleeps,
    }
    result: dict[str, object] = {"benchmark": "detector"}
    print(f"{'trace':<34}{'slow':>22}   rule    alarms  true  delay (iterations)")
    for name, traces in groups.items():
        for suffix, rule in RULES.items():
            total = Score(0, 0, 0, [], 0)
            for trace in traces:
                one = score(trace, ask(trace.table, rule, SHORT[name]), SHORT[name])
                told = "; ".join(f"{node}: {spans}" for node, spans in trace.slow.items()) or "none"
                print(f"{trace.name:<34}{told:>22}   {rule:<7}{one.n_alarm:>7}{one.n_true:>6}  {one.delays}")
                total = total.plus(one)
            result |= figures(name, suffix, total)
    for suffix, rule in RULES.items():
        few = groups["alibaba"] + exchanges[:3]
        result[f"injected_recall{suffix}"] = injected(few, rule)
        print(f"found when slowed by a factor, {rule}: {result[f'injected_recall{suffix}']}")
    print_figures("detector", result)


if __name__ == "__main__":
    main()
