"""A live chart: the panels of its drawing as Bokeh figures, and the layout that holds them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from bokeh.layouts import column, row

from dlrover_nb.widgets.live.live_charts.live_plot import LivePlot
from dlrover_nb.widgets.live.live_charts.live_strips import LiveStrips
from dlrover_nb.widgets.svg.marks import Plot, Strips
from dlrover_nb.widgets.svg.single import single

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from bokeh.models import DataRange1d

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.charts.chart import Chart
    from dlrover_nb.widgets.svg.marks import Drawing, Panel


class LiveFigure:
    """One chart in one live view; `root` is its Bokeh model.

    Parameters
    ----------
    chart
        The chart.
    snapshot
        Any snapshot of the job, for the axes. `update` shows data.
    on_tap
        Called with the value of a marker that was tapped.
    times
        The range of time that it shares with other charts; None: its own.
    """

    def __init__(
        self,
        chart: Chart,
        snapshot: JobSnapshot,
        on_tap: Callable[[object], None] | None = None,
        *,
        times: DataRange1d | None = None,
    ) -> None:
        first = chart.drawing(snapshot, None)
        panels = first.panels[:1] if first.one_at_a_time else first.panels
        self._chart = chart
        self._throttle = Throttle() if chart.is_heavy else None
        self.chosen = panels[0].name if isinstance(panels[0], Plot) else ""  # of panels shown one at a time
        self.is_empty = bool(first.empty)  # there are no data yet; the title gives the reason
        self.shows_all = False  # of a chart that begins with a part, see `Chart.whole`
        self.panels = [_live(panel, on_tap, times) for panel in panels]
        self.root = _layout(self.panels, first.n_column)

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:
        """Show new data; return whether anything changed."""
        if self._throttle is not None and not self._throttle.is_due(series):
            return False
        draw = (self._chart.whole if self.shows_all else None) or self._chart.drawing
        panels = self._shown(draw(snapshot, series))
        changed = [_show(live, panel) for live, panel in zip(self.panels, panels, strict=False)]
        return any(changed)

    def _shown(self, drawing: Drawing) -> tuple[Panel, ...]:
        """Return the content of the figures; for a drawing without data, titles that give the reason."""
        panels, self.is_empty = drawing.panels, bool(drawing.empty)
        if drawing.one_at_a_time:
            panels = tuple(p for p in panels if isinstance(p, Plot) and p.name == self.chosen) or panels[:1]
        if not drawing.empty:
            return tuple(map(_of_several, panels))
        title = f"{drawing.title}: {drawing.empty[:1].lower()}{drawing.empty[1:].rstrip('.')}"
        return (_without_data(panels[0], title), *(_without_data(p, p.title) for p in panels[1:]))


def _of_several(panel: Panel) -> Panel:
    """Return a panel; of a plot of a single value the axes alone, with the value in the title."""
    words = single(panel) if isinstance(panel, Plot) else ""
    return _without_data(panel, f"{panel.title}: {words}") if words else panel


def _without_data(panel: Panel, title: str) -> Panel:
    match panel:
        case Plot():
            return replace(panel, title=title, layers=(), x_ticks=())
        case Strips():
            return replace(panel, title=title, rows=(), kinds=(), rules=())
        case _:
            assert_never(panel)


def _live(
    panel: Panel, on_tap: Callable[[object], None] | None, times: DataRange1d | None
) -> LivePlot | LiveStrips:
    return LivePlot(panel, on_tap, times=times) if isinstance(panel, Plot) else LiveStrips(panel, times=times)


def _show(live: LivePlot | LiveStrips, panel: Panel) -> bool:
    if isinstance(live, LivePlot):
        return isinstance(panel, Plot) and live.show(panel)
    return isinstance(panel, Strips) and live.show(panel)


def _layout(panels: list[LivePlot | LiveStrips], n_column: int) -> Any:  # noqa: ANN401 - bokeh has no types
    if len(panels) == 1:
        return panels[0].root
    layout = row if n_column > 1 else column
    return layout(*(panel.root for panel in panels), sizing_mode="stretch_width")


class Throttle:
    """Decides when a chart of telemetry is due: with few reports each second, with 100,000 less often.

    Sixty thousand reports take 50 ms to sort into buckets of half a minute, in which a second changes next to
    nothing. The newest reports are always drawn once no more arrive.
    """

    ROWS_PER_S = 5000  # rows for which a chart waits a second longer

    def __init__(self) -> None:
        self._seen = self._drawn = -1
        self._newest_s = -math.inf

    def is_due(self, series: SeriesChunk | None) -> bool:
        """Return whether to draw these rows now; the caller then draws them."""
        at_s = series.node.get("at_s", ()) if series else ()
        cursor = series.cursor if series else 0
        newest_s = float(at_s[-1]) if at_s else -math.inf
        rests, self._seen = cursor == self._seen and cursor != self._drawn, cursor
        waits = newest_s - self._newest_s < len(at_s) // self.ROWS_PER_S and newest_s >= self._newest_s
        if waits and not rests:
            return False
        self._drawn, self._newest_s = cursor, newest_s
        return True
