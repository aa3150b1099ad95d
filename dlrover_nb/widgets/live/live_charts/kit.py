"""Bokeh figures in a common style; their colors are those of the page (`theme`).

Canvas drawing, never webgl: without a GPU webgl is 50 times slower to pan.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bokeh.models import (
    AdaptiveTicker,
    DataRange1d,
    FactorRange,
    HoverTool,
    NoOverlap,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from dlrover_nb.widgets.theme import FIGURE, TITLE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

HEIGHT, LOW_HEIGHT = 260, 200
_MOST_TICKS = 9  # that Bokeh draws on an axis where six are wanted
_APART = 24  # px between times: the last is moved inward by half its width, after the choice of those shown
_TIP = (
    '<div style="max-width:260px;white-space:normal">@words</div>'  # a line would reach over the page's edge
)


def plain_figure(
    title: str, x_label: str, y_label: str, *, tools: str = "xpan,xwheel_zoom,reset", **ranges: object
) -> Any:  # noqa: ANN401 - bokeh has no types
    """Return an empty figure in the common style; `ranges` are its `x_range` and `y_range`."""
    fig = figure(
        title=title,
        height=HEIGHT,
        sizing_mode="stretch_width",
        styles=FIGURE,
        tools=tools,
        active_drag=None,
        active_scroll=None,
        toolbar_location="above",
        x_axis_label=x_label,
        y_axis_label=y_label,
        output_backend="canvas",
        **ranges,
    )
    fig.title.stylesheets = [TITLE]
    fig.add_layout(Span(visible=False))  # else Bokeh warns of each figure that has no data yet
    fig.xaxis.major_label_policy = NoOverlap()
    fig.toolbar.logo = None
    fig.toolbar.autohide = True
    if not isinstance(ranges.get("y_range"), FactorRange):
        fig.yaxis.formatter = numbers()
    fig.axis.axis_label_text_font_style = "normal"
    return fig


def time_figure(title: str, y_label: str, **ranges: object) -> Any:  # noqa: ANN401 - bokeh has no types
    """Return an empty figure over seconds since the job's start; the owner sets the range of y."""
    fig = plain_figure(title, "time since start (h:mm:ss)", y_label, **{"y_range": Range1d(0, 1), **ranges})
    fig.xaxis.formatter = NumeralTickFormatter(format="00:00:00")
    fig.xaxis.major_label_policy = NoOverlap(min_distance=_APART)
    fig.xaxis.ticker = AdaptiveTicker(
        base=60, mantissas=[1, 2, 5, 10, 15, 30], min_interval=1, desired_num_ticks=5
    )
    return fig


def time_range() -> DataRange1d:
    """Return a range of time for several figures: it follows what is appended until a user moves it."""
    return DataRange1d(range_padding=0)


def numbers() -> Any:  # noqa: ANN401 - bokeh has no types
    """Return the formatter of an axis of numbers."""
    return NumeralTickFormatter(format=_with_digits(2))


def number_format(low: float, high: float) -> str:
    """Return the format of an axis with these ends: with as many digits as tell its ticks apart.

    Bokeh's steps are 1, 2 or 5 times a power of ten.
    """
    least_step = (high - low) / _MOST_TICKS
    return _with_digits(math.ceil(-math.log10(least_step)) if least_step > 0 else 0)


def value_format(values: Iterable[float]) -> str:
    """Return the format of an axis whose ticks are at values: it tells them exactly, up to a millionth."""
    return _with_digits(max((len(f"{v:.6f}".rstrip("0").partition(".")[2]) for v in values), default=0))


def _with_digits(n: int) -> str:
    return "0,0" + ("[.]" + "0" * n if n > 0 else "")


def dashes(dash: str) -> list[int]:
    """Return a dash pattern in Bokeh's form."""
    return [int(part) for part in dash.split()]


def words_hover() -> Any:  # noqa: ANN401 - bokeh has no types
    """Return a hover tool that shows the column `words` as a line of text; `renderers` are added later."""
    return HoverTool(tooltips=_TIP, renderers=[], visible=False)


def line_hover(unit: str) -> Any:  # noqa: ANN401 - bokeh has no types
    """Return a hover tool for lines that are named after their column; `renderers` are added later."""
    return HoverTool(tooltips=[("node", "$name"), (unit, "@$name{0,0}")], renderers=[], visible=False)
