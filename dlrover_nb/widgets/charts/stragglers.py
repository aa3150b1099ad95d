"""Stragglers: a strip of time for each worker, marked where it was slower than the others by the threshold.

The rule is `core.straggler.detect`'s: a worker's mean step over that of the other workers, without the
time it waits for its peers. Cells over the threshold have a cross, so that the chart is readable without
color.

Where the job's controller has findings, these are the mark: it watches all the time, over
longer windows and by a rule that noise does not mislead. Two rules in one chart would tell two stories; the
ratio then only tints a cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.straggler.detect import Heat, heat
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.mitigations import worst
from dlrover_nb.widgets.series import MOST_ROWS, node_rows, short_name
from dlrover_nb.widgets.svg.marks import Drawing, Kind, Piece, Rule, Strips
from dlrover_nb.widgets.svg.palette import PALE, RED, SKY

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.stragglers import Straggler
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Stragglers"
N_WORST = 8
_WINDOWS_S = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_MOST_WINDOW = 48
_SLOWER = 1.15  # from here on a cell is tinted


@dataclass(frozen=True, slots=True)
class Cell:
    """One worker in one window, times in seconds since the job's start."""

    node: str
    from_s: float
    to_s: float
    ratio: float
    iter_s: float
    is_over: bool


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart: comparable cells by worker, and the number of workers."""

    rows: tuple[tuple[str, tuple[Cell, ...]], ...]  # of many workers, the slowest
    cells: tuple[Cell, ...]  # of all workers
    n_worker: int
    window_s: float
    threshold: float
    now: tuple[str, ...]  # stragglers of the last window, or those that the controller has found
    rule: str = ""  # of the controller, where it has findings
    plans: tuple[Rule, ...] = ()

    @property
    def title(self) -> str:
        """The title, with the present stragglers."""
        return f"{TITLE}: {', '.join(self.now[:4])}{' …' * (len(self.now) > 4)}" if self.now else TITLE

    @property
    def state(self) -> str:
        """Describe the chart."""
        if self.n_worker < 2:
            return "One worker alone has no others to be slower than."
        if not self.cells:
            return "No two workers have reported at the same time yet."
        if self.rule:
            return (
                f"Mean step over that of the other workers, in windows of "
                f"{units.duration(self.window_s)}; found slow by the job's controller ({self.rule}): "
                f"{and_list(self.now)}."
            )
        now = f"in the last window {and_list(self.now)}" if self.now else "none in the last window"
        n_over = sum(cell.is_over for cell in self.cells)
        return (
            f"Mean step over that of the other workers, in windows of {units.duration(self.window_s)}; "
            f"from {self.threshold:g} times on a worker is a straggler: {now}, {n_over} cells in all."
        )


def columns(snapshot: JobSnapshot, series: SeriesChunk | None) -> Columns:
    """Return the chart's data."""
    rows = node_rows(series, snapshot.spec.name)
    is_worker = ~rows.is_ps
    own_s = rows.column("iter_s") - np.nan_to_num(rows.column("peers_s"))
    at_s = rows.at_s[is_worker]
    window_s = _window_s(float(np.ptp(at_s)) if len(at_s) else 0.0)
    cells = zip(at_s.tolist(), rows.kept(is_worker), own_s[is_worker].tolist(), strict=True)
    heatmap = heat(cells, window_s, snapshot.spec.tuning.antdt.slowness_ratio)
    start_s = snapshot.started_at_s
    findings = _found_by_controller(snapshot)
    by_node = {
        name: _cells(
            heatmap, i, start_s, findings.get(name) if findings else None, by_controller=bool(findings)
        )
        for i, name in enumerate(heatmap.nodes)
    }
    return Columns(
        rows=tuple((name, by_node[name]) for name in _shown(by_node)),
        cells=tuple(cell for cells in by_node.values() for cell in cells),
        n_worker=len(heatmap.nodes),
        window_s=window_s,
        threshold=heatmap.threshold,
        now=tuple(findings) or heatmap.stragglers,
        rule="; ".join(dict.fromkeys(each.rule for each in findings.values())),
        plans=plan_starts(snapshot),
    )


def _found_by_controller(snapshot: JobSnapshot) -> dict[str, Straggler]:
    """Return the workers that the controller has found slow, by their names within the job."""
    workers = tuple(each for each in snapshot.stragglers if each.role is Role.WORKER)
    return {short_name(each.node, snapshot.spec.name): each for each in worst(workers)}


def _window_s(span_s: float) -> float:
    return next((w for w in _WINDOWS_S if span_s / w <= _MOST_WINDOW), _WINDOWS_S[-1])


def _cells(
    heatmap: Heat, i: int, start_s: float, finding: Straggler | None, *, by_controller: bool
) -> tuple[Cell, ...]:
    """Return the cells of one worker; `finding` marks them from where the controller found it slow."""
    columns_of = zip(heatmap.starts_s, heatmap.ratios[i], heatmap.iter_s[i], heatmap.is_over[i], strict=True)
    return tuple(
        Cell(
            heatmap.nodes[i],
            max(0.0, at_s - start_s),
            at_s - start_s + heatmap.window_s,
            ratio,
            iter_s,
            (finding is not None and at_s + heatmap.window_s > finding.since_s) if by_controller else over,
        )
        for at_s, ratio, iter_s, over in columns_of
        if math.isfinite(ratio)
    )


def _shown(by_node: dict[str, tuple[Cell, ...]]) -> list[str]:
    if len(by_node) <= MOST_ROWS:
        return list(by_node)
    slowest = sorted(by_node, key=lambda n: max((c.ratio for c in by_node[n]), default=0.0), reverse=True)
    names = set(slowest[:MOST_ROWS])
    return [name for name in by_node if name in names]


def marks(data: Columns) -> Drawing:
    """Return the chart's marks: one piece for each worker and window."""
    kinds = (
        Kind("like the others", PALE),
        Kind(f"{_SLOWER:g} times or more", SKY),
        Kind(over_words(data), RED, is_marked=True),
    )
    more = data.n_worker - len(data.rows)
    of = f" (the {len(data.rows)} slowest of {data.n_worker})" if more else ""
    strips = Strips(
        title=f"{data.title}{of}",
        desc=data.state,
        x_label="time since start",
        rows=tuple((name, tuple(_piece(c, kinds) for c in cells)) for name, cells in data.rows),
        kinds=kinds,
        x0=min((c.from_s for c in data.cells), default=0.0),
        x1=max((c.to_s for c in data.cells), default=1.0),
        x_is_time=True,
        rules=data.plans,
    )
    return Drawing(TITLE, data.state, (strips,), "" if data.cells else data.state)


def over_words(data: Columns) -> str:
    """Return what a marked cell means."""
    if data.rule:
        return "straggler: found slow by the controller"
    return f"straggler: {data.threshold:g} times the others or more"


def _piece(cell: Cell, kinds: tuple[Kind, Kind, Kind]) -> Piece:
    even, slower, over = kinds
    kind = over if cell.is_over else slower if cell.ratio >= _SLOWER else even
    tip = f"{cell.node}: {cell.ratio:.2f} times the others, {units.duration(cell.iter_s)}"
    return Piece(cell.from_s, cell.to_s, kind, tip=tip)


def data_table(data: Columns) -> Table:
    """Return the worst windows as a table, and the state as text."""
    worst = sorted(data.cells, key=lambda c: c.ratio, reverse=True)[:N_WORST]
    rows = tuple(
        (
            cell.node,
            f"{units.elapsed(cell.from_s)} to {units.elapsed(cell.to_s)}",
            units.duration(cell.iter_s),
            f"{cell.ratio:.2f}",
            "straggler" if cell.is_over else "no",
        )
        for cell in worst
    )
    head = (
        "worker",
        "when (m:ss)",
        "own step",
        "times the others",
        "found slow" if data.rule else f"over {data.threshold:g}",
    )
    return Table("Slowest windows", head, rows, data.state)


CHART = chart("stragglers", TITLE, columns=columns, marks=marks, data_table=data_table, is_heavy=True)
