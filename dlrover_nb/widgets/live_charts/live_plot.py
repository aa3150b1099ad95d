"""One live plot: a Bokeh figure that is kept equal to a `Plot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bokeh.models import FixedTicker

from dlrover_nb.widgets import extent
from dlrover_nb.widgets.live_charts import kit
from dlrover_nb.widgets.live_charts.legend import Legend, entry
from dlrover_nb.widgets.live_charts.live_marks import LivePoints, LiveRules
from dlrover_nb.widgets.live_charts.live_series import LiveSeries
from dlrover_nb.widgets.marks import Line, Orientation, Points, Rule, has_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from dlrover_nb.widgets.live_charts.legend import Entry
    from dlrover_nb.widgets.marks import Plot

MOST_TICKS = 10  # up to here each value of an axis has its tick
_ROOM, _LABEL_ROOM = 0.08, 0.18  # of the height, above the data; with labels of rules


class LivePlot:
    """One figure.

    Parameters
    ----------
    plot
        Defines the axes, whose kind is fixed; layers are set by `show`.
    on_tap
        Called with the value of a marker that was tapped.
    """

    def __init__(self, plot: Plot, on_tap: Callable[[object], None] | None = None) -> None:
        self.root = _figure(plot, tools="tap,reset" if on_tap else "reset")
        self.legend = Legend(self.root)
        self._on_tap = on_tap
        lines, self._words_hover = kit.line_hover(plot.y_label), kit.words_hover()
        self.root.add_tools(lines, self._words_hover)
        self._series, self._rules = LiveSeries(self.root, lines), LiveRules(self.root)
        self._points: dict[int, LivePoints] = {}  # by index among the layers of markers
        self._usual_ticker, self._ticker = self.root.xaxis.ticker, FixedTicker(ticks=[])

    def show(self, plot: Plot) -> bool:
        """Show a plot; return whether its layers changed."""
        self._show_axes(plot)
        y = self._show_range(plot)
        rules = [layer for layer in plot.layers if isinstance(layer, Rule)]
        changed = [
            self._series.show([la for la in plot.layers if not isinstance(la, (Points, Rule))]),
            self._show_points([layer for layer in plot.layers if isinstance(layer, Points)]),
            self._rules.show(rules, extent.x_range(plot) if rules else (0.0, 1.0), y),
        ]
        self._show_legend(plot)
        return any(changed)

    def _show_axes(self, plot: Plot) -> None:
        self.root.title.text = plot.title
        self.root.xaxis.axis_label = _x_label(plot)
        if not plot.x_is_time:
            self._ticker.ticks = [*plot.x_ticks]  # one ticker: a list of ticks would create another each time
            is_fixed = 0 < len(plot.x_ticks) <= MOST_TICKS
            self.root.xaxis.ticker = self._ticker if is_fixed else self._usual_ticker

    def _show_range(self, plot: Plot) -> tuple[float, float]:
        """Return the ends of the y axis; set here where x is time, else by the browser."""
        low, high = extent.y_range(plot)
        if plot.x_is_time:
            if plot.y_to is None:
                room = _LABEL_ROOM if any(map(_is_labelled, plot.layers)) else _ROOM
                high += room * (high - low)
            self.root.y_range.update(start=low, end=high)
        return low, high

    def _show_points(self, layers: list[Points]) -> bool:
        changed = False
        for i, layer in enumerate(layers):
            if i not in self._points and has_rows(layer):
                self._points[i] = LivePoints(self.root, self._words_hover, layer, self._on_tap)
                changed = True
            if i in self._points:
                changed |= self._points[i].show(layer)
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


def _is_labelled(layer: object) -> bool:
    return isinstance(layer, Rule) and layer.along is Orientation.VERTICAL and bool(layer.label)


def _x_label(plot: Plot) -> str:
    return f"{plot.x_label} (h:mm:ss)" if plot.x_is_time else plot.x_label


def _figure(plot: Plot, tools: str) -> Any:  # noqa: ANN401 - bokeh has no types
    height = kit.LOW_HEIGHT if plot.height <= kit.LOW_HEIGHT else kit.HEIGHT
    if plot.x_is_time:
        fig = kit.time_figure(plot.title, plot.y_label)
    else:
        fig = kit.plain_figure(plot.title, _x_label(plot), plot.y_label, tools=tools)
        fig.xaxis.formatter = kit.numbers()
        fig.yaxis.formatter = kit.numbers(plot.y_digits)
        if plot.y_from_zero:
            fig.y_range.start = 0
    fig.update(height=height, min_width=min(320, plot.width - 140))
    return fig
