"""The ranges of a plot's axes, the same for both renderers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.widgets import ticks
from dlrover_nb.widgets.marks import Area, Band, Line, Orientation, Points, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.widgets.marks import Layer, Plot


def x_range(plot: Plot) -> tuple[float, float]:
    """Return the ends of the x axis; time is shown exactly, other values with room at both sides."""
    xs = [v for layer in plot.layers for v in _xs(layer) if math.isfinite(v)] or [0.0, 1.0]
    return ticks.padded(min(xs), max(xs), 0.0 if plot.x_is_time else 0.04)


def y_range(plot: Plot) -> tuple[float, float]:
    """Return the ends of the y axis."""
    ys = [v for layer in plot.layers for v in _ys(layer) if math.isfinite(v)] or [0.0, 1.0]
    low, high = ticks.padded(min(ys), max(ys), 0.06)
    if plot.y_from_zero and min(ys) >= 0:
        low = 0.0
    return low, plot.y_to if plot.y_to is not None else high


def _xs(layer: Layer) -> Sequence[float]:
    if isinstance(layer, Rule):
        return [layer.at] if layer.along is Orientation.VERTICAL else []
    return layer.x


def _ys(layer: Layer) -> Iterable[float]:
    match layer:
        case Rule():
            return [layer.at] if layer.along is Orientation.HORIZONTAL else []
        case Line():
            return layer.y
        case Area():
            return [*(layer.low or [0.0]), *layer.high] if len(layer.x) else []
        case Band():
            return [*layer.low, *layer.high]
        case Points():
            return [*layer.y, *layer.low, *layer.high]
        case _:
            assert_never(layer)
