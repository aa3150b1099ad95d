"""Throughput of each worker over time; of many workers, the slowest, the median and the fastest.

Fifty lines cannot be told apart by any color or dash, so above a few workers the chart shows the band
that they fill, and the table names those at its edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from dlrover_nb.widgets import svg, units
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.charts.chart import Chart
from dlrover_nb.widgets.series import (
    MOST_ROWS,
    N_BUCKET,
    N_STATIC,
    Merge,
    Spread,
    WideTable,
    is_many,
    node_rows,
    spread,
    widen,
)

if TYPE_CHECKING:
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk

TITLE = "Throughput per worker"


@dataclass(frozen=True, slots=True)
class Columns:
    """What the chart shows, times in seconds since the job's start."""

    workers: WideTable

    @property
    def is_many(self) -> bool:
        """Whether there are too many for a line each."""
        return is_many(self.workers)

    @property
    def title(self) -> str:
        """The title, with how many there are where they are not shown one by one."""
        n = len(self.workers.values)
        return f"{TITLE}: slowest, median and fastest of {n}" if self.is_many else TITLE


def columns(snapshot: JobSnapshot, series: SeriesChunk | None, *, n_bucket: int = N_BUCKET) -> Columns:
    """Return the chart's data; a report of several seconds counts as its mean."""
    rows = node_rows(series, snapshot.spec.name)
    told = ~rows.is_ps
    t_s = rows.at_s[told] - snapshot.started_at_s
    speed = rows.column("samples_per_s")[told]
    return Columns(widen(t_s, rows.kept(told), speed, n_bucket=n_bucket, merge=Merge.MEAN))


def static(data: Columns) -> str:
    """Return the chart as SVG."""
    if not data.workers.t_s:
        return svg.nothing(TITLE, "No worker has reported yet.")
    layers = _many(spread(data.workers)) if data.is_many else _few(data.workers)
    return svg.draw(
        svg.Plot(
            data.title, _words(data), "time since start", "samples/s", layers, x_is_time=True, height=250
        )
    )


def _few(wide: WideTable) -> tuple[svg.Layer, ...]:
    lines = enumerate(wide.values.items())
    return tuple(svg.node_line(i, wide.t_s, y, name) for i, (name, y) in lines)


def _many(all_of: Spread) -> tuple[svg.Layer, ...]:
    return (
        svg.Band(all_of.t_s, all_of.low, all_of.high, svg.BLUE, "slowest to fastest"),
        svg.Line(all_of.t_s, all_of.mid, svg.BLUE, "median worker"),
    )


def _words(data: Columns) -> str:
    last = [v for v in (_last(y) for y in data.workers.values.values()) if v is not None]
    total = f"together {units.rate(sum(last))}" if last else "nothing measured yet"
    return f"Training throughput of {len(data.workers.values)} workers over time; last reports {total}."


def _last(y: tuple[float, ...]) -> float | None:
    return next((v for v in reversed(y) if math.isfinite(v)), None)


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table; of many workers, the slowest ones."""
    by_mean = {name: told for name, y in data.workers.values.items() if (told := [*filter(math.isfinite, y)])}
    names = list(by_mean)
    if len(names) > MOST_ROWS:
        names = sorted(names, key=lambda name: fmean(by_mean[name]))[:MOST_ROWS]
    rows = tuple(_row(name, by_mean[name]) for name in names)
    n_more = len(by_mean) - len(rows)
    note = f"The {len(rows)} slowest; {n_more} more workers are not shown." if n_more else ""
    return Table(TITLE, ("worker", "last samples/s", "mean", "least", "greatest"), rows, note)


def _row(name: str, y: list[float]) -> tuple[str, ...]:
    return (name, *(units.number(v) for v in (y[-1], fmean(y), min(y), max(y))))


class Figure:
    """Live drawing: one wide source; lines for a few workers, a band for many."""

    def __init__(self) -> None:
        from dlrover_nb.widgets.charts import kit  # noqa: PLC0415 - bokeh only when drawn live

        self.root = kit.time_figure(TITLE, "samples/s")
        self._source = kit.Source(t=[], low=[], mid=[], high=[])
        self._drawn: set[str] = set()
        self._place_legend = kit.place_legend
        source = self._source.model
        self.root.varea("t", "low", "high", source=source, fill_color=svg.BLUE, fill_alpha=0.18)
        self.root.line("t", "mid", source=source, color=svg.BLUE, width=2)
        self._hover = kit.line_hover("samples/s")
        self.root.add_tools(self._hover)
        self._place_legend(self.root)
        self._band = self.root.renderers[:]
        self._with_gaps, self._pace = kit.with_gaps, kit.Throttle()

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:
        """Show new data; a worker that joins gets a line, one that leaves keeps it."""
        if not self._pace.is_due(series):
            return False
        data = columns(snapshot, series)
        changed = self._source.show(self._columns_of(data))
        self._add_lines(data)
        self.root.title.text = data.title
        top = max((v for y in data.workers.values.values() for v in y if math.isfinite(v)), default=1.0)
        self.root.y_range.update(start=0, end=1.15 * top)
        return changed

    def _columns_of(self, data: Columns) -> dict[str, list[object]]:
        """Return the band of many, or the lines of a few; what is drawn once stays a column."""
        wide = data.workers
        if data.is_many:
            all_of = spread(wide)
            columns = self._with_gaps(
                all_of.t_s, {"low": all_of.low, "high": all_of.high}, {"mid": all_of.mid}
            )
        else:
            columns = {"t": [*wide.t_s], **{name: [*y] for name, y in wide.values.items()}}
        blank: list[object] = [math.nan] * len(columns["t"])
        return dict.fromkeys(("low", "mid", "high", *self._drawn), blank) | columns

    def _add_lines(self, data: Columns) -> None:
        for line in self.root.renderers[len(self._band) :]:
            line.visible = not data.is_many
        if self._drawn:
            self.root.legend[0].visible = not data.is_many
        for name in () if data.is_many else data.workers.values:
            if name not in self._drawn:
                line = self._add_line(len(self._drawn), name)
                self._drawn.add(name)
                self._hover.renderers = [*self._hover.renderers, line]
                self._place_legend(self.root)

    def _add_line(self, i: int, name: str) -> object:
        color, dash = svg.line_look(i)
        return self.root.line(
            "t", name, name=name, source=self._source.model, width=2, color=color,
            line_dash=[int(d) for d in dash.split()], legend_label=name,
        )  # fmt: skip


def picture(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:
    """Return the static chart with its table."""
    data = columns(snapshot, series, n_bucket=N_STATIC)
    return StaticChart(static(data), data_table(data))


CHART = Chart("workers", TITLE, picture, Figure)
