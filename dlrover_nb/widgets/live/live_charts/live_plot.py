"""One live plot: a Bokeh figure that is kept equal to a `Plot`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bokeh.models import FixedTicker, Range1d

from dlrover_nb.widgets.live.live_charts import kit
from dlrover_nb.widgets.live.live_charts.legend import Legend, entry
from dlrover_nb.widgets.live.live_charts.live_marks import ROW_SHARE, LivePoints, LiveRules
from dlrover_nb.widgets.live.live_charts.live_series import LiveSeries
from dlrover_nb.widgets.svg import extent
from dlrover_nb.widgets.svg.label_layout import Room
from dlrover_nb.widgets.svg.marks import Line, Points, Rule, has_rows
from dlrover_nb.widgets.svg.plot_labels import Axes, level, of_markers, upright

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from bokeh.models import DataRange1d

    from dlrover_nb.widgets.live.live_charts.legend import Entry
    from dlrover_nb.widgets.svg.marks import Plot

MOST_TICKS = 10  # up to here each value of an axis has its tick
_ROOM = 0.08  # of the height, above the data
# Sizes of a figure without its axes, title and legend: as narrow as its least width, as wide as a page. Only
# the browser knows the present one.
_BESIDE, _MOST_WIDTH, _HEIGHTS = 75, 1130, (110.0, 190.0)


class LivePlot:
    """One figure.

    Parameters
    ----------
    plot
        Defines the axes, whose kind is fixed; layers are set by `show`.
    on_tap
        Called with the value of a marker that was tapped.
    times
        The range of time that it shares with other figures; None: its own.
    """

    def __init__(
        self,
        plot: Plot,
        on_tap: Callable[[object], None] | None = None,
        *,
        times: DataRange1d | None = None,
    ) -> None:
        self.root = _figure(plot, tools="tap,reset" if on_tap else "reset", times=times)
        self.legend = Legend(self.root)
        self._on_tap = on_tap
        lines, self._words_hover = kit.line_hover(plot.y_label), kit.words_hover()
        self.root.add_tools(lines, self._words_hover)
        self._series, self._rules = LiveSeries(self.root, lines), LiveRules(self.root)
        self._points: dict[int, LivePoints] = {}  # by index among the layers of markers
        self._room = Room((float(_least_width(plot) - _BESIDE), _MOST_WIDTH), _HEIGHTS)
        self._plot, self._also = plot, Points((), ())
        self._usual_ticker, self._ticker = self.root.xaxis.ticker, FixedTicker(ticks=[])

    def show(self, plot: Plot) -> bool:
        """Show a plot; return whether its layers changed."""
        self._plot = plot
        axes = Axes(*self._ranges(plot))
        plot = extent.cut(plot)
        self._show_axes(plot)
        rows = upright(plot, axes.x, self._room.width)
        axes, top = self._show_range(plot, axes, rows.n_row)
        changed = [
            self._series.show([la for la in plot.layers if not isinstance(la, (Points, Rule))]),
            self._show_points([layer for layer in plot.layers if isinstance(layer, Points)], axes),
            self._rules.show(rows, level(plot, axes, self._room, top), axes),
        ]
        self._show_legend(plot)
        return any(changed)

    def reach(self, points: Points) -> None:
        """Have the axes reach to these points too, and near to their bars, which are drawn by another one."""
        if self._also != points:
            self._also = points
            self.show(self._plot)

    def _ranges(self, plot: Plot) -> tuple[tuple[float, float], tuple[float, float]]:
        reached = replace(plot, layers=(*plot.layers, self._also))
        return extent.x_range(reached), extent.y_range(reached)

    def _show_axes(self, plot: Plot) -> None:
        self.root.title.text = plot.title
        self.root.xaxis.axis_label, self.root.yaxis.axis_label = _x_label(plot), plot.y_label
        if not plot.x_is_time:
            self._ticker.ticks = [*plot.x_ticks]  # one ticker: a list of ticks would create another each time
            is_fixed = 0 < len(plot.x_ticks) <= MOST_TICKS
            self.root.xaxis.ticker = self._ticker if is_fixed else self._usual_ticker

    def _show_range(self, plot: Plot, axes: Axes, n_row: int) -> tuple[Axes, float]:
        """Return the axes with room for rows of names above the data, and that room as a share.

        A time axis is set by the browser, which follows what is appended until a user moves it.
        """
        low, high = axes.y
        top = n_row * ROW_SHARE
        if plot.x_is_time and (n_row or plot.y_to is None):
            high += (high - low) * (top / (1 - top) if top else _ROOM)
        self.root.y_range.update(start=low, end=high)
        self.root.yaxis.formatter.format = kit.number_format(low, high)
        if not plot.x_is_time:
            self.root.x_range.update(start=axes.x[0], end=axes.x[1])
            is_fixed = self.root.xaxis.ticker is self._ticker
            exact = kit.value_format(plot.x_ticks) if is_fixed else kit.number_format(*axes.x)
            self.root.xaxis.formatter.format = exact
        return Axes(axes.x, (low, high)), top

    def _show_points(self, layers: list[Points], axes: Axes) -> bool:
        changed = False
        for i, (layer, spots) in enumerate(zip(layers, of_markers(layers, axes, self._room), strict=True)):
            if i not in self._points and has_rows(layer):
                self._points[i] = LivePoints(self.root, self._words_hover, layer, self._on_tap)
                changed = True
            if i in self._points:
                changed |= self._points[i].show(layer, spots)
        for i in set(self._points) - set(range(len(layers))):
            changed |= self._points[i].show(Points((), ()))
        return changed

    def _show_legend(self, plot: Plot) -> None:
        """Name the lines of nodes in the legend where there is room, else on hover."""
        n_node = sum(isinstance(layer, Line) and layer.is_node for layer in plot.layers)
        if n_node <= plot.most_named:
            self.legend.show(_entries(plot))
        self.legend.model.visible = n_node <= plot.most_named


def _entries(plot: Plot) -> Iterable[Entry]:
    for layer in plot.layers:
        if not isinstance(layer, Rule) and layer.label and has_rows(layer):
            yield entry(layer)


def _x_label(plot: Plot) -> str:
    return f"{plot.x_label} (h:mm:ss)" if plot.x_is_time else plot.x_label


def _figure(plot: Plot, tools: str, times: DataRange1d | None) -> Any:  # noqa: ANN401 - bokeh has no types
    height = kit.LOW_HEIGHT if plot.height <= kit.LOW_HEIGHT else kit.HEIGHT
    if plot.x_is_time:
        fig = kit.time_figure(plot.title, plot.y_label, x_range=times or kit.time_range())
    else:
        ranges = {"x_range": Range1d(0, 1), "y_range": Range1d(0, 1)}
        fig = kit.plain_figure(plot.title, _x_label(plot), plot.y_label, tools=tools, **ranges)
        fig.xaxis.formatter = kit.numbers()
    fig.update(height=height, min_width=_least_width(plot))
    return fig


def _least_width(plot: Plot) -> int:
    return min(320, plot.width - 140)
