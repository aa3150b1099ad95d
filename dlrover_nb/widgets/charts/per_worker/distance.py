"""How far workers are apart: the updates of each beyond those of the slowest, over time.

Counted at the first parameter server, which applies gradients of all workers: reports of workers come at
times of their own, and their difference would be larger than what SSP allows. A worker that joins begins
where the slowest is, as in the rounds of SSP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.per_worker.age_rows import NO_AGES, AgeRows, age_rows
from dlrover_nb.widgets.charts.per_worker.worker_lines import worker_lines
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.series import MOST_ROWS, Merge, WideTable, widen
from dlrover_nb.widgets.svg.marks import Drawing, Plot, Rule

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Workers apart"


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart: updates ahead of the slowest by worker; the updates of each, and its last lead."""

    ahead: WideTable
    n_update: dict[str, int]
    last: dict[str, float]
    rule: str = ""  # of the job's kind of synchronization
    plans: tuple[Rule, ...] = ()

    @property
    def words(self) -> str:
        """Say what the chart shows."""
        if not self.last:
            return NO_AGES
        if len(self.last) < 2:
            return "One worker alone is ahead of no other."
        first = max(self.last, key=lambda name: self.last[name])
        return f"{first} is {units.number(self.last[first])} updates ahead of the slowest worker. {self.rule}"


def columns(snapshot: JobSnapshot, series: SeriesChunk | None) -> Columns:
    """Return the chart's data."""
    rows = age_rows(series, snapshot.spec.name, snapshot.started_at_s)
    leads, last = _leads(rows)
    t_s, node, ahead = zip(*leads, strict=True) if leads else ((), (), ())
    wide = widen(np.asarray(t_s, float), list(node), np.asarray(ahead, float), merge=Merge.GREATEST)
    n_update = {name: rows.of(rows.node == name).n for name in rows.workers}
    return Columns(wide, n_update, last, _rule(snapshot), plan_starts(snapshot) if leads else ())


def _leads(rows: AgeRows) -> tuple[list[tuple[float, str, float]], dict[str, float]]:
    """Return (time, worker, updates ahead of the slowest) of each report, and the last leads."""
    total: dict[str, float] = {}
    leads: list[tuple[float, str, float]] = []
    last: dict[str, float] = {}
    for at_s in np.unique(rows.t_s):
        now = rows.t_s == at_s
        counts: dict[str, float] = {}
        for name, n in zip(rows.node[now].tolist(), rows.n_update[now].tolist(), strict=True):
            counts[name] = counts.get(name, 0.0) + n
        base = min((total[name] for name in counts if name in total), default=0.0)
        total = {name: total.get(name, base) + n for name, n in counts.items()}
        slowest = min(total.values())
        last = {name: n - slowest for name, n in total.items()}
        leads += [(float(at_s), name, lead) for name, lead in last.items()]
    return leads, last


def _rule(snapshot: JobSnapshot) -> str:
    match snapshot.spec.sync:
        case Sync.BSP:
            return "They train in rounds, so they stay together."
        case Sync.SSP:
            rounds = units.counted(snapshot.spec.staleness, "round")
            return f"The job lets a worker be {rounds} ahead of the slowest at most."
        case _:
            return "They do not wait for each other."


def marks(data: Columns) -> Drawing:
    """Describe the chart."""
    layers = (*worker_lines(data.ahead), *data.plans)
    plot = Plot(
        TITLE, data.words, "time since start", "updates ahead of the slowest", layers,
        x_is_time=True, height=250,
    )  # fmt: skip
    return Drawing(TITLE, data.words, (plot,), "" if data.last else data.words)


def data_table(data: Columns) -> Table:
    """Return the updates and the last lead of each worker; of many, those that are furthest ahead."""
    names = sorted(data.last, key=lambda name: data.last[name], reverse=True)[:MOST_ROWS]
    rows = tuple((name, f"{data.n_update[name]:,}", f"{data.last[name]:,.0f}") for name in names)
    return Table(TITLE, ("worker", "updates", "ahead of the slowest"), rows, data.words)


CHART = chart("distance", TITLE, columns=columns, marks=marks, data_table=data_table, is_heavy=True)
