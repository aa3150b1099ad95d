"""How old gradients are when they are applied: their distribution by worker, and over time.

An age is the number of updates by other workers between the rows that a gradient was computed from and the
gradient itself. The curve of a slow worker lies to the right of the others: its gradients miss more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.gradient_ages import AgeUnit
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.per_worker.age_rows import NO_AGES, NONE, AgeRows, Ages, age_rows
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.series import MOST_LINES, MOST_ROWS, N_STATIC, bucket_s
from dlrover_nb.widgets.svg.marks import Band, Drawing, Layer, Line, Plot, Rule, node_line
from dlrover_nb.widgets.svg.palette import BLUE, INK

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

    Times = tuple[float, ...]

TITLE = "Age of gradients"
NO_TIMES = "Parameter servers of this release did not count how old gradients are in seconds."
NO_ROWS = "No gradients of single rows were counted."
_LOW, _HALF, _HIGH = 0.05, 0.5, 0.95
_WINDOW_S = 5.0  # of the reports
_X_LABEL = "updates by other workers that it missed"


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart: ages of all and by worker, and over time their 5 %, 50 % and 95 % quantiles."""

    whole: Ages
    workers: tuple[tuple[str, Ages], ...]
    t_s: tuple[float, ...]
    low: tuple[float, ...]
    mid: tuple[float, ...]
    high: tuple[float, ...]
    is_bsp: bool = False
    is_gathered: bool = False  # into global batches
    plans: tuple[Rule, ...] = ()
    milliseconds: tuple[tuple[str, Ages], ...] = ()
    rows: tuple[tuple[str, Ages], ...] = ()
    all_ms: Ages = NONE
    all_rows: Ages = NONE

    @property
    def words(self) -> str:
        """Say what the chart shows."""
        if not self.whole.n:
            return NO_AGES
        if self.is_bsp:
            return (
                f"Workers train in rounds, so none of {self.whole.n:,} gradients missed an update of others."
            )
        half, most = self.whole.quantile(_HALF), self.whole.quantile(_HIGH)
        missed = "global batches with gradients" if self.is_gathered else "updates"
        return (
            f"Of {self.whole.n:,} gradients, half missed at most {half:,} {missed} of other workers, and "
            f"95 % at most {most:,}."
        )

    @property
    def words_of_times(self) -> str:
        """Say how old gradients are in seconds."""
        half_ms, most_ms = self.all_ms.quantile(_HALF), self.all_ms.quantile(_HIGH)
        if half_ms is None or most_ms is None:
            return NO_TIMES
        return (
            f"Half of the gradients were applied within {units.duration(half_ms / 1000)} of reading their "
            f"parameters, 95 % within {units.duration(most_ms / 1000)}."
        )

    @property
    def words_of_rows(self) -> str:
        """Say how old gradients of single rows are."""
        if not self.all_rows.n:
            return NO_ROWS
        fresh = dict(zip(self.all_rows.at_most, self.all_rows.shares, strict=True)).get(0, 0.0)
        return (
            f"{percent(fresh)} of the gradients of single rows found their row as it was read; the others "
            f"missed updates of the row by other workers ({self.all_rows.n:,} gradients of a sample of rows)."
        )


def columns(snapshot: JobSnapshot, series: SeriesChunk | None) -> Columns:
    """Return the chart's data."""
    rows = age_rows(series, snapshot.spec.name, snapshot.started_at_s)
    workers = _by_worker(rows)
    sync = snapshot.spec.sync
    t_s, low, mid, high = _over_time(rows)
    plans = plan_starts(snapshot) if workers else ()
    times, of_rows = (
        age_rows(series, snapshot.spec.name, snapshot.started_at_s, unit)
        for unit in (AgeUnit.MILLISECONDS, AgeUnit.ROW_UPDATES)
    )
    of_times, of_each_row = _by_worker(times), _by_worker(of_rows)
    more = of_times, of_each_row, times.of(), of_rows.of()
    return Columns(rows.of(), workers, t_s, low, mid, high, sync is Sync.BSP, sync is Sync.GBA, plans, *more)


def _by_worker(rows: AgeRows) -> tuple[tuple[str, Ages], ...]:
    return tuple((name, rows.of(rows.node == name)) for name in rows.workers)


def _over_time(rows: AgeRows) -> tuple[Times, Times, Times, Times]:
    """Return times and the low, middle and high ages of the gradients until then."""
    if not len(rows.t_s):
        return (), (), (), ()
    span_s = float(np.ptp(rows.t_s))
    bucket = np.floor(rows.t_s / bucket_s(span_s, N_STATIC, _WINDOW_S)).astype(int)
    out: list[tuple[float, float, float, float]] = []
    for each in np.unique(bucket):
        keep = bucket == each
        ages = rows.of(keep)
        low, mid, high = (float(ages.quantile(share) or 0) for share in (_LOW, _HALF, _HIGH))
        out.append((float(rows.t_s[keep].max()), low, mid, high))
    t_s, *edges = (tuple(column) for column in zip(*out, strict=True))
    return (t_s, edges[0], edges[1], edges[2])


def marks(data: Columns) -> Drawing:
    """Describe the chart: the distribution, and the ages over time."""
    layers: tuple[Layer, ...] = (
        Band(data.t_s, data.low, data.high, BLUE, "5 % to 95 %"),
        Line(data.t_s, data.mid, BLUE, "half are at most so old"),
        *data.plans,
    )
    over_time = Plot(
        f"{TITLE} over time", data.words, "time since start", "updates missed", layers,
        x_is_time=True, height=220,
    )  # fmt: skip
    spread = Plot(
        _title(data), data.words, _X_LABEL, "% of gradients", _curves(data.whole, data.workers),
        y_to=100.0, height=250,
    )  # fmt: skip
    plots = (spread, *_more(data), over_time)
    return Drawing(TITLE, data.words, plots, "" if data.whole.n else data.words)


def _more(data: Columns) -> tuple[Plot, ...]:
    """Return the distributions in time and by row."""
    of_times = Plot(
        f"{TITLE} in time", data.words_of_times, "milliseconds since their parameters were read",
        "% of gradients", _curves(data.all_ms, data.milliseconds), y_to=100.0, height=220,
    )  # fmt: skip
    of_rows = Plot(
        f"{TITLE} of single rows", data.words_of_rows, "updates of the same row by other workers",
        "% of gradients", _curves(data.all_rows, data.rows), y_to=100.0, height=220,
    )  # fmt: skip
    return of_times, of_rows


def _title(data: Columns) -> str:
    n = len(data.workers)
    return f"{TITLE}: all of {n} workers" if n > MOST_LINES else TITLE


def _curves(whole: Ages, workers: tuple[tuple[str, Ages], ...]) -> tuple[Line, ...]:
    """Return a curve for each worker, or of many workers the one of all gradients."""
    end = max(whole.at_most, default=0) + 1.0
    if len(workers) > MOST_LINES:
        return (Line(*_curve(whole, end), INK, "all gradients", step=True),)
    return tuple(
        Line(*_curve(ages, end), look.color, name, look.dash, step=True, is_node=True)
        for name, ages in workers
        for look in (node_line((), (), name),)
    )


def _curve(ages: Ages, end: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the share in percent of gradients that are at most so old, from age 0 to `end`."""
    x, y = [*map(float, ages.at_most)], [100 * share for share in ages.shares]
    if not x or x[0] > 0:
        x, y = [0.0, *x], [0.0, *y]
    return (*x, end), (*y, y[-1])


def data_table(data: Columns) -> Table:
    """Return the ages by worker as a table; of many workers, those with the oldest gradients."""
    workers = data.workers
    if len(workers) > MOST_ROWS:
        workers = tuple(sorted(workers, key=lambda each: each[1].quantile(_HALF) or 0))[-MOST_ROWS:]
    whole = (("all", data.whole),) if len(data.workers) > 1 else ()
    times = {**dict(data.milliseconds), "all": data.all_ms}
    of_rows = {**dict(data.rows), "all": data.all_rows}
    rows = tuple(
        _row(name, ages, times.get(name, NONE), of_rows.get(name, NONE)) for name, ages in (*workers, *whole)
    )
    head = ("worker", "gradients", "half at most", "95 % at most", "oldest", "in time, 95 %", "rows, 95 %")
    return Table(f"{TITLE} (updates by other workers)", head, rows, data.words)


def _row(name: str, ages: Ages, times: Ages, rows: Ages) -> tuple[str, ...]:
    quantiles = (ages.quantile(share) for share in (_HALF, _HIGH, 1.0))
    most_ms = times.quantile(_HIGH)
    return (
        name,
        f"{ages.n:,}",
        *map(_number, quantiles),
        units.duration(None if most_ms is None else most_ms / 1000),
        _number(rows.quantile(_HIGH)),
    )


def _number(age: int | None) -> str:
    return units.number(math.nan if age is None else age)


CHART = chart("staleness", TITLE, columns=columns, marks=marks, data_table=data_table, is_heavy=True)
