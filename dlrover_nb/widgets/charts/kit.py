"""The only module that draws with Bokeh: figures of one look, and sources that send as little as possible.

A live chart is a handful of `Source`s. `show` compares the new columns with those the browser has and sends
the least that makes them equal: nothing, the rows appended (`stream` with rollover), a corrected last row
(`patch`), or everything. Canvas drawing, never webgl: without a GPU webgl is 50 times slower to pan.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bokeh.core.property.vectorization import Field
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    FactorRange,
    FixedTicker,
    HoverTool,
    Legend,
    Line,
    NumeralTickFormatter,
    Range1d,
    Scatter,
    VArea,
)
from bokeh.plotting import figure

from dlrover_nb.widgets import svg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from dlrover_nb.core.structs.snapshot import SeriesChunk

DASH = [6, 3]
HEIGHT = 260
_SAMPLE = "sample of a legend"


def plain_figure(
    title: str, x_label: str, y_label: str, *, tools: str = "xpan,xwheel_zoom,reset", **ranges: object
) -> Any:  # noqa: ANN401 - bokeh has no types
    """Return an empty figure in the house's look; `ranges` are its `x_range` and `y_range`."""
    fig = figure(
        title=title,
        height=HEIGHT,
        sizing_mode="stretch_width",
        min_width=320,
        tools=tools,
        active_drag=None,
        active_scroll=None,
        toolbar_location="above",
        x_axis_label=x_label,
        y_axis_label=y_label,
        output_backend="canvas",
        background_fill_color="#ffffff",
        border_fill_color="#ffffff",
        **ranges,
    )
    fig.toolbar.logo = None
    fig.toolbar.autohide = True
    if not isinstance(ranges.get("y_range"), FactorRange):
        fig.yaxis.formatter = numbers()
    fig.axis.axis_label_text_font_style = "normal"
    fig.axis.axis_label_text_color = svg.INK
    fig.grid.grid_line_color = svg.GRID
    return fig


def time_figure(title: str, y_label: str, **ranges: object) -> Any:  # noqa: ANN401 - bokeh has no types
    """Return an empty figure over seconds since the job's start; y is set by its owner, from zero."""
    fig = plain_figure(title, "time since start (h:mm:ss)", y_label, **{"y_range": Range1d(0, 1), **ranges})
    fig.xaxis.formatter = NumeralTickFormatter(format="00:00:00")
    fig.xaxis.ticker = AdaptiveTicker(
        base=60, mantissas=[1, 2, 5, 10, 15, 30], min_interval=1, desired_num_ticks=5
    )
    return fig


def place_legend(fig: Any) -> None:  # noqa: ANN401 - bokeh has no types
    """Move the legend above the plot, where it covers no data; call it whenever glyphs with labels came.

    Its entries show samples of the glyphs. Bokeh makes all entries anew, a canvas each, when anything changes
    that an entry refers to; with the glyphs themselves that is each second, and half of all the painting.
    Figures whose labels come later call it before as well: a legend that comes with its first entry, and is
    moved in the same message, is one that a notebook's page has not heard of when it reads of the entry.
    """
    if not fig.legend:
        fig.add_layout(Legend(items=[]), "above")
    legend = fig.legend[0]
    for item in legend.items:
        if not isinstance(item.label, Field):
            item.renderers = [_sample(fig, renderer) for renderer in item.renderers]
    if legend not in fig.above:
        fig.center = [item for item in fig.center if item is not legend]
        fig.add_layout(legend, "above")
    legend.orientation = "horizontal"
    legend.ncols = "auto"
    legend.location = "left"
    legend.border_line_color = None
    legend.label_text_font_size = "11px"
    legend.margin = legend.padding = 0
    legend.spacing = 12


def _sample(fig: Any, renderer: Any) -> Any:  # noqa: ANN401 - bokeh has no types
    """Return a line, area or marker of the same look that is nowhere; other glyphs are their own sample."""
    glyph, columns = renderer.glyph, renderer.data_source.data
    is_sample = renderer.data_source.tags == [_SAMPLE]
    is_marker = isinstance(glyph, Scatter) and "color" not in columns
    if is_sample or not (is_marker or isinstance(glyph, (Line, VArea))):
        return renderer
    nowhere = ColumnDataSource({name: [math.nan] for name in columns}, tags=[_SAMPLE])
    return fig.add_glyph(nowhere, glyph.clone())


def numbers() -> Any:  # noqa: ANN401 - bokeh has no types
    """Return the formatter of an axis of numbers."""
    return NumeralTickFormatter(format="0,0[.]00")


def fixed_ticker() -> Any:  # noqa: ANN401 - bokeh has no types
    """Return the ticker of an axis whose ticks are set; a list of ticks would make another each time."""
    return FixedTicker(ticks=[])


def words_hover(*renderers: object) -> Any:  # noqa: ANN401 - bokeh has no types
    """Return a hover tool that shows the column `words` of some glyphs as a line of text."""
    return HoverTool(tooltips="@words", renderers=list(renderers), visible=False)


def line_hover(unit: str) -> Any:  # noqa: ANN401 - bokeh has no types
    """Return a hover tool for lines that are named after their column; give it the lines as `renderers`."""
    return HoverTool(tooltips=[("node", "$name"), (unit, "@$name{0,0}")], renderers=[], visible=False)


class Throttle:
    """When a chart of telemetry alone is due: of a few reports always, of a hundred thousand not each second.

    Sixty thousand reports take 50 ms to sort into buckets of half a minute, in which a second changes next to
    nothing. What has come is drawn at the latest once no more comes.
    """

    ROWS_PER_S = 5000  # rows for which a chart waits a second longer

    def __init__(self) -> None:
        self._seen = self._drawn = -1
        self._newest_s = -math.inf

    def is_due(self, series: SeriesChunk | None) -> bool:
        """Whether to draw these rows now; a chart that was told so draws them."""
        at_s = series.node.get("at_s", ()) if series else ()
        cursor = series.cursor if series else 0
        newest_s = float(at_s[-1]) if at_s else -math.inf
        rests, self._seen = cursor == self._seen and cursor != self._drawn, cursor
        waits = newest_s - self._newest_s < len(at_s) // self.ROWS_PER_S and newest_s >= self._newest_s
        if waits and not rests:
            return False
        self._drawn, self._newest_s = cursor, newest_s
        return True


class Source:
    """Columns in the browser, changed by the least message."""

    def __init__(self, **columns: list[object]) -> None:
        self.model = ColumnDataSource(columns)

    def show(self, new: Mapping[str, Sequence[object]]) -> bool:
        """Make the browser's columns equal to `new`; return whether anything was sent."""
        old = self.model.data
        if set(old) != set(new):
            self.model.data = {name: list(column) for name, column in new.items()}
            return True
        n_old, n_new = _length(old), _length(new)
        at = _first_difference(old, new, min(n_old, n_new))
        if at == n_old == n_new:
            return False
        if n_old and n_new >= n_old and at >= n_old - 1:
            self._append(new, at, n_old)
        else:
            self.model.data = {name: list(column) for name, column in new.items()}
        return True

    def _append(self, new: Mapping[str, Sequence[object]], at: int, n_old: int) -> None:
        if at < n_old:
            self.model.patch({name: [(at, column[at])] for name, column in new.items()})
        tail = {name: list(column[n_old:]) for name, column in new.items()}
        if _length(tail):
            self.model.stream(tail, rollover=_length(new))


def with_gaps(
    t_s: Sequence[float],
    areas: Mapping[str, Sequence[float]],
    lines: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, list[object]]:
    """Return columns in which areas end at a gap: Bokeh's areas go straight over NaN, where lines break.

    Each run of rows without `areas` becomes two rows of height zero, at the ends of what is known.
    """
    lines = lines or {}
    rows: list[tuple[float, list[float], list[float]]] = []
    known = [all(math.isfinite(column[i]) for column in areas.values()) for i in range(len(t_s))]
    for i, t in enumerate(t_s):
        if known[i]:
            if rows and not known[i - 1]:
                rows.append((t, [0.0] * len(areas), [math.nan] * len(lines)))
            rows.append((t, [c[i] for c in areas.values()], [c[i] for c in lines.values()]))
        elif rows and known[i - 1]:
            rows.append((rows[-1][0], [0.0] * len(areas), [math.nan] * len(lines)))
    columns: dict[str, list[object]] = {"t": [t for t, _, _ in rows]}
    columns |= {name: [row[1][i] for row in rows] for i, name in enumerate(areas)}
    return columns | {name: [row[2][i] for row in rows] for i, name in enumerate(lines)}


def _length(columns: Mapping[str, Sequence[object]]) -> int:
    return len(next(iter(columns.values()), ()))


def _first_difference(a: Mapping[str, Sequence[object]], b: Mapping[str, Sequence[object]], n: int) -> int:
    differences = (next((i for i in range(n) if not _same(a[name][i], b[name][i])), n) for name in a)
    return min(differences, default=n)


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return bool(a == b)
