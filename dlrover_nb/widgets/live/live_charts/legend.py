"""The legend of a live figure: above the plot, where it covers no data.

Its entries refer to sample glyphs without data. Bokeh rebuilds all entries, a canvas each, when anything
changes that an entry refers to; with the real glyphs that is each second, and half of all painting. The new
canvases are moreover blank until something else paints the whole figure. The
legend exists from the start: if it were added and moved in the message of its first entry, a notebook's page
would read of the entry before it knows the legend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from bokeh.models import Legend as BokehLegend
from bokeh.models import LegendItem

from dlrover_nb.widgets.live.live_charts import kit
from dlrover_nb.widgets.svg.marks import Area, Band, Kind, Line, Points
from dlrover_nb.widgets.theme import LEGEND

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

BAND_ALPHA, HATCH_ALPHA = 0.18, 0.55
_SAMPLE_SIZE = {"circle": 9, "square": 10, "triangle": 11, "diamond": 14, "x": 11}
_NOWHERE = [math.nan]


@dataclass(frozen=True, slots=True)
class Entry:
    """A label with the look of its sample."""

    label: str
    shape: str  # "line", "area" or a marker's
    color: str
    pattern: str = ""  # the dash of a line, the hatch of an area
    alpha: float = 1.0
    hollow: bool = False


def entry(mark: Line | Band | Area | Points | Kind) -> Entry:
    """Return the entry of a mark."""
    match mark:
        case Line():
            return Entry(mark.label, "line", mark.color, mark.dash)
        case Band():
            return Entry(mark.label, "area", mark.color, alpha=BAND_ALPHA)
        case Area() | Kind():
            return Entry(mark.label, "area", mark.color, mark.hatch)
        case Points():
            return Entry(mark.label, mark.shape, mark.color, hollow=mark.hollow)
        case _:
            assert_never(mark)


class Legend:
    """The legend of one figure."""

    def __init__(self, figure: Any) -> None:  # noqa: ANN401 - bokeh has no types
        self._figure = figure
        self._items: dict[Entry, LegendItem] = {}
        self._shown: list[Entry] = []
        self._also: list[Entry] = []
        self.model = BokehLegend(
            items=[], orientation="horizontal", ncols="auto", location="left", border_line_color=None,
            stylesheets=[LEGEND], label_text_font_size="11px", margin=0, padding=0, spacing=10,
        )  # fmt: skip
        figure.add_layout(self.model, "above")

    def show(self, entries: Iterable[Entry]) -> None:
        """Show these entries, in this order, before those of `show_also`."""
        self._place(list(dict.fromkeys(entries)), self._also)

    def show_also(self, entries: Iterable[Entry]) -> None:
        """Show these entries too: of what another one draws on the figure."""
        self._place(self._shown, list(entries))

    def _place(self, shown: list[Entry], also: list[Entry]) -> None:
        if (shown, also) != (self._shown, self._also):
            self._shown, self._also = shown, also
            self.model.items = [self._item(each) for each in (*shown, *also)]

    def _item(self, shown: Entry) -> LegendItem:
        if shown not in self._items:
            self._items[shown] = LegendItem(label=shown.label, renderers=[self._sample(shown)])
        return self._items[shown]

    def _sample(self, shown: Entry) -> object:
        if shown.shape == "line":
            look = {"line_color": shown.color, "line_dash": kit.dashes(shown.pattern), "line_width": 2}
            return self._figure.line(_NOWHERE, _NOWHERE, **look)
        if shown.shape == "area":
            hatch = {"hatch_pattern": shown.pattern, "hatch_color": "#ffffff", "hatch_alpha": HATCH_ALPHA}
            return self._figure.varea(
                _NOWHERE, _NOWHERE, _NOWHERE, fill_color=shown.color, fill_alpha=shown.alpha,
                **(hatch if shown.pattern else {}),
            )  # fmt: skip
        fill = None if shown.hollow else shown.color
        size = _SAMPLE_SIZE[shown.shape]
        return self._figure.scatter(
            _NOWHERE, _NOWHERE, marker=shown.shape, size=size, line_color=shown.color, fill_color=fill,
            line_width=3 if shown.shape == "x" else 1,
        )  # fmt: skip
