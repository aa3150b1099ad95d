"""The queue of shards over time: done, assigned, to do; its rate, and when it will be empty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.series import bucket_s, trace
from dlrover_nb.widgets.svg.marks import Area, Drawing, Plot, Rule
from dlrover_nb.widgets.svg.palette import GREEN, ORANGE, PALE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.training.shards import ShardCounts
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Shards to train"
RATE_S = 60.0  # the rate is that of the last minute
N_TWIN_ROW = 8
_N_BUCKET = 96
_KINDS = (("done", GREEN, ""), ("doing", ORANGE, "right_diagonal_line"), ("to do", PALE, "dot"))


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart; the three columns are numbers of shards, with gaps where reports are missing."""

    t_s: tuple[float, ...]
    done: tuple[float, ...]
    doing: tuple[float, ...]
    todo: tuple[float, ...]
    counts: ShardCounts
    per_min: float | None  # shards done in a minute; None: too few reports
    left_s: float | None  # to the end; None: no rate, or an endless stream
    plans: tuple[Rule, ...] = ()

    @property
    def title(self) -> str:
        """The title, with the share done and the time left."""
        c = self.counts
        parts = [f"{c.done:,} of {c.total:,} done"]
        if c.finished:
            parts = [f"all {c.done:,} done" if not c.skipped else f"{c.done:,} done, {c.skipped:,} skipped"]
        elif self.left_s is not None:
            parts.append(f"about {units.duration(self.left_s)} to go")
        parts += [f"{c.quarantined:,} in quarantine"] * (c.quarantined > 0)
        return f"{TITLE}: {', '.join(parts)}"


def columns(snapshot: JobSnapshot, series: SeriesChunk | None, *, n_bucket: int = _N_BUCKET) -> Columns:
    """Return the chart's data."""
    job = series.job if series else {}
    t_s = [at_s - snapshot.started_at_s for at_s in job.get("at_s", ())]
    counts = [job.get(name, [math.nan] * len(t_s)) for name in ("done", "doing", "todo")]
    rows = [row for row in zip(t_s, *counts, strict=True) if all(map(math.isfinite, row))]
    per_min = _per_min(rows)
    latest = _latest_of_each_bucket(rows, n_bucket)
    lines = [trace([r[0] for r in latest], [r[i] for r in latest]) for i in (1, 2, 3)]
    done, doing, todo = (line.y for line in lines)
    left_s, plans = _left_s(snapshot.train, per_min), plan_starts(snapshot) if rows else ()
    return Columns(lines[0].t_s, done, doing, todo, snapshot.train, per_min, left_s, plans)


def _latest_of_each_bucket(rows: Sequence[tuple[float, ...]], n_bucket: int) -> list[tuple[float, ...]]:
    if not rows:
        return []
    width = bucket_s(rows[-1][0] - rows[0][0], n_bucket)
    return list({math.floor(row[0] / width): row for row in rows}.values())


def _per_min(rows: Sequence[tuple[float, ...]]) -> float | None:
    """Return the shards done in a minute, over the last one."""
    recent = [row for row in rows if row[0] >= rows[-1][0] - RATE_S]
    span_s = recent[-1][0] - recent[0][0] if recent else 0.0
    return 60 * (recent[-1][1] - recent[0][1]) / span_s if span_s > 0 else None


def _left_s(counts: ShardCounts, per_min: float | None) -> float | None:
    if counts.is_open or not per_min or per_min < 0:
        return None
    return 60 * (counts.todo + counts.doing) / per_min


def marks(data: Columns) -> Drawing:
    """Describe the chart: three layers of a stack."""
    first = data.done
    second = tuple(a + b for a, b in zip(first, data.doing, strict=True))
    third = tuple(a + b for a, b in zip(second, data.todo, strict=True))
    lows: tuple[tuple[float, ...], ...] = ((), first, second)
    areas = tuple(
        Area(data.t_s, low, high, color, name, name, hatch)
        for low, high, (name, color, hatch) in zip(lows, (first, second, third), _KINDS, strict=True)
    )
    plot = Plot(
        data.title, words(data), "time since start", "shards", (*areas, *data.plans), x_is_time=True,
        height=220,
        y_to=max((v for v in third if math.isfinite(v)), default=1.0) or 1.0,
    )  # fmt: skip
    return Drawing(data.title, plot.desc, (plot,), "" if data.t_s else "No counts over time yet.")


def words(data: Columns) -> str:
    """Describe the queue's content and rate."""
    c = data.counts
    rate = f"{units.number(data.per_min)} a minute" if data.per_min is not None else "rate not known yet"
    end = f"the rest in about {units.duration(data.left_s)}" if data.left_s is not None else "end not known"
    if c.finished:
        end = "nothing left to do"
    return (
        f"{c.done:,} done, {c.doing:,} handed out, {c.todo:,} to do; {rate}, {end}. "
        f"{c.returned:,} came back from lost workers, {c.quarantined:,} in quarantine, "
        f"{c.skipped:,} skipped."
    )


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table."""
    finite = [i for i, v in enumerate(data.done) if math.isfinite(v)]
    step = max(1, math.ceil(len(finite) / N_TWIN_ROW))
    at = finite[::-1][::step][::-1]  # the last one always
    rows = tuple(
        (
            units.elapsed(data.t_s[i]),
            *(f"{column[i]:,.0f}" for column in (data.done, data.doing, data.todo)),
        )
        for i in at
    )
    return Table("Shards over time", ("at (m:ss)", "done", "doing", "to do"), rows, words(data))


CHART = chart("shards", TITLE, columns=columns, marks=marks, data_table=data_table)
