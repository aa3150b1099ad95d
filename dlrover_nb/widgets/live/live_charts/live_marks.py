"""Markers and rules of a live plot."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.widgets.live.live_charts.sources import Source
from dlrover_nb.widgets.svg.label_layout import Spot, row_of
from dlrover_nb.widgets.svg.palette import INK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from dlrover_nb.widgets.svg.marks import Points, Rule
    from dlrover_nb.widgets.svg.plot_labels import Axes, Rows

_SCALE = {"circle": 2.25, "square": 2.75, "triangle": 3.0, "diamond": 3.0}  # Bokeh's size for our radius
_FONT = {"text_font_size": "10px", "text_baseline": "bottom", "text_align": "align"}
_PLACE = {"x_offset": "dx", "y_offset": "dy"}  # columns of the spot of a label
_BLANK = {  # of a layer that has no bars, titles or names any more
    "low": math.nan, "high": math.nan, "words": "", "name": "", "align": "left", "dx": 0.0, "dy": 0.0,
}  # fmt: skip
_UNDER = 3.0  # px from the base line of a text down to its lower edge, which Bokeh places
_HANG = 10.0  # px from the end of a line down to the base line of its name
ROW_SHARE = 0.11  # of the height: a row of names of rules


class LivePoints:
    """One layer of markers with its own source, since markers are few and change together."""

    def __init__(
        self,
        figure: Any,  # noqa: ANN401 - bokeh has no types
        hover: Any,  # noqa: ANN401 - as above
        layer: Points,
        on_tap: Callable[[object], None] | None,
    ) -> None:
        self._source = Source(**_columns(layer))
        self._values: Sequence[object] = ()
        self._on_tap = on_tap
        self._draw(figure, hover, layer)
        self._source.model.selected.on_change("indices", self._tapped)

    def _draw(self, figure: Any, hover: Any, layer: Points) -> None:  # noqa: ANN401 - bokeh has no types
        source = {"source": self._source.model, "level": "annotation"}
        columns = self._source.model.data
        if "low" in columns:
            figure.segment(
                "x", "low", "x", "high", **source, line_color=layer.color, line_alpha=0.5,
                nonselection_alpha=0.3,
            )  # fmt: skip
        markers = figure.scatter(
            "x", "y", **source, marker=layer.shape, size=_SCALE[layer.shape] * layer.size,
            line_color=layer.color, fill_color=None if layer.hollow else layer.color,
            line_width=2 if layer.hollow else 1, nonselection_alpha=0.7,
        )  # fmt: skip
        if "words" in columns:
            hover.renderers = [*hover.renderers, markers]
        if "name" in columns:
            figure.text("x", "y", "name", **source, **_FONT, **_PLACE, text_color=INK, nonselection_alpha=1.0)

    def show(self, layer: Points, spots: Sequence[Spot | None] = ()) -> bool:
        """Show the markers, with their names at these spots."""
        self._values = layer.values
        columns: dict[str, list[object]] = {name: [value] * len(layer.x) for name, value in _BLANK.items()}
        columns |= _columns(layer, spots)
        return self._source.show({name: columns[name] for name in self._source.model.data})

    def _tapped(self, attr: str, old: list[int], new: list[int]) -> None:  # noqa: ARG002 - bokeh's signature
        if new and self._on_tap and new[0] < len(self._values):
            self._on_tap(self._values[new[0]])


def _columns(layer: Points, spots: Sequence[Spot | None] = ()) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {"x": [*layer.x], "y": [*layer.y]}
    if layer.low:
        columns |= {"low": [*layer.low], "high": [*layer.high]}
    if layer.titles:
        columns["words"] = [*layer.titles]
    if layer.labels:
        columns |= _names(layer.labels, spots or (None,) * len(layer.labels), "name")
    return columns


def _names(names: Sequence[str], spots: Sequence[Spot | None], column: str) -> dict[str, list[object]]:
    """Return the columns of names: one without a spot is empty."""
    return {
        column: [name if spot else "" for name, spot in zip(names, spots, strict=True)],
        "align": [spot.side.value if spot else "left" for spot in spots],
        "dx": [spot.dx if spot else 0.0 for spot in spots],
        "dy": [spot.dy + _UNDER if spot else 0.0 for spot in spots],
    }


class LiveRules:
    """The rules of one figure: one source for those across, one for those along."""

    def __init__(self, figure: Any) -> None:  # noqa: ANN401 - bokeh has no types
        self._figure = figure
        self._upright: Source | None = None  # None: there was no rule yet
        self._level: Source | None = None

    def show(self, rows: Rows, level: Sequence[tuple[Rule, Spot | None]], axes: Axes) -> bool:
        """Show these rules and no others."""
        if rows.rules and self._upright is None:
            self._upright = self._draw_upright(Source(**_upright(rows, axes)))
        if level and self._level is None:
            self._level = self._draw_level(Source(**_level(level, axes)))
        changed = [
            self._upright is not None and self._upright.show(_upright(rows, axes)),
            self._level is not None and self._level.show(_level(level, axes)),
        ]
        return any(changed)

    def _draw_upright(self, source: Source) -> Source:
        model = {"source": source.model}
        self._figure.segment(
            "x", "low", "x", "high", **model, line_color="color", line_dash="dash", line_width=1.5
        )
        self._figure.text("x", "high", "label", **model, **_FONT, **_PLACE, text_color=INK)
        return source

    def _draw_level(self, source: Source) -> Source:
        model = {"source": source.model}
        self._figure.hspan("y", **model, line_color="color", line_dash="dash", line_width=1.5)
        self._figure.text("x", "y", "label", **model, **_FONT, **_PLACE, text_color="color")
        return source


def _upright(rows: Rows, axes: Axes) -> dict[str, list[object]]:
    """Return the columns of upright rules: each ends at its name, one without a name below all rows."""
    low, high = axes.y
    ends = [rows.n_row - 1 - row_of(spot) if spot else rows.n_row for spot in rows.spots]
    return {
        "x": [r.at for r in rows.rules],
        "low": [low for _ in rows.rules],
        "high": [high - ROW_SHARE * row * (high - low) for row in ends],
        **_names([r.label for r in rows.rules], [_below(spot) for spot in rows.spots], "label"),
        "color": [r.color for r in rows.rules],
        "dash": [r.dash for r in rows.rules],
    }


def _below(spot: Spot | None) -> Spot | None:
    """Return the spot of a name that hangs from the end of its line."""
    return replace(spot, dy=_HANG) if spot else None


def _at(axes: Axes, share: float) -> float:
    """Return the value at a share of the width."""
    return axes.x[0] + share * (axes.x[1] - axes.x[0])


def _level(rules: Sequence[tuple[Rule, Spot | None]], axes: Axes) -> dict[str, list[object]]:
    return {
        "x": [_at(axes, (spot and spot.x) or 0.0) for _, spot in rules],
        "y": [r.at for r, _ in rules],
        **_names([r.label for r, _ in rules], [spot for _, spot in rules], "label"),
        "color": [r.color for r, _ in rules],
        "dash": [r.dash for r, _ in rules],
    }
