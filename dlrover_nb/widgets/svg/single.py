"""Tells a plot that has a single value: it is a line of text, since one point shows no course."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.svg.marks import Area, Band, Line, Points, Rule

if TYPE_CHECKING:
    from dlrover_nb.widgets.svg.marks import Layer, Plot

_MOST_NAMED = 4


def single(plot: Plot) -> str:
    """Return the value of a plot that has one, or one of each line, as text; empty: there are more, or none.

    Guides, bands and rules are no values of their own.
    """
    rows = [(layer, x, y) for layer in plot.layers for x, y in _values(layer)]
    if len({x for _, x, _ in rows}) != 1 or _has_column(plot):
        return ""
    words = [f"{_name(layer)} {units.number(y)}".strip() for layer, _, y in rows]
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    x = rows[0][1]
    where = f"at {units.elapsed(x)}" if plot.x_is_time else f"at {x:g} {plot.x_label}"
    count = "one value" if len(words) == 1 else "one value each"
    return f"{count}, {', '.join(words[:_MOST_NAMED])}{more} {plot.y_label} {where}"


def sentence(words: str) -> str:
    """Return words as a sentence."""
    return f"{words[:1].upper()}{words[1:]}."


def _values(layer: Layer) -> list[tuple[float, float]]:
    match layer:
        case Line(is_guide=False) | Points():
            y = layer.y
        case Area():
            lows = layer.low or [0.0] * len(layer.x)
            y = [high - low for low, high in zip(lows, layer.high, strict=True)]
        case Line() | Band() | Rule():
            return []
    return [(a, b) for a, b in zip(layer.x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]


def _has_column(plot: Plot) -> bool:
    """Whether one layer of markers has several at the same x: plans of the same cost differ."""
    return any(isinstance(layer, Points) and len(set(layer.y)) > 1 for layer in plot.layers)


def _name(layer: Layer) -> str:
    return layer.name or layer.label if isinstance(layer, Area) else layer.label
