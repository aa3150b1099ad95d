"""The ranges of a plot's axes, and what is cut at their ends; the same for both renderers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.widgets.svg import ticks
from dlrover_nb.widgets.svg.marks import Area, Band, Line, Orientation, Points, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.widgets.svg.marks import Layer, Plot

FAR_BAND = 0.5  # of the height of lines and markers: so far beyond them a band is shown
CUT = "bars extend beyond the chart"


def x_range(plot: Plot) -> tuple[float, float]:
    """Return the ends of the x axis; time is shown exactly, other values with room at both sides."""
    xs = [v for layer in plot.layers for v in _xs(layer) if math.isfinite(v)] or [0.0, 1.0]
    return ticks.padded(min(xs), max(xs), 0.0 if plot.x_is_time else 0.04)


def y_range(plot: Plot) -> tuple[float, float]:
    """Return the ends of the y axis: set by what is drawn as a line or marker, and by what lies near it.

    A wide band would otherwise press the measured line flat against the axis.
    """
    guides = [layer for layer in plot.layers if isinstance(layer, Line) and layer.is_guide]
    main = _finite(_main(plot.layers)) or _finite(v for layer in guides for v in layer.y)
    main = main or _finite(_wide(plot.layers))
    low, high = min(main, default=0.0), max(main, default=1.0)
    span = high - (min(low, 0.0) if plot.y_from_zero else low) or abs(high) or 1.0
    near = [*main, *(v for g in guides for v in _within(g.y, low - g.far * span, high + g.far * span))]
    low, high = min(near, default=0.0), max(near, default=1.0)
    ys = [low, high, *_within(_wide(plot.layers), low - FAR_BAND * span, high + FAR_BAND * span)]
    bottom, top = ticks.padded(min(ys), max(ys), 0.06)
    if plot.y_from_zero and min(ys) >= 0:
        bottom = 0.0
    return bottom, plot.y_to if plot.y_to is not None else top


def cut(plot: Plot) -> Plot:
    """Return a plot whose bands end at the axis' ends, and say so."""
    low, high = y_range(plot)
    return replace(plot, layers=tuple(_cut(layer, low, high) for layer in plot.layers))


def _cut(layer: Layer, low: float, high: float) -> Layer:
    """Return a layer within an axis: bands and error bars end there, a guide beyond it is left out."""
    match layer:
        case Band() | Points():
            if not _beyond([*layer.low, *layer.high], low, high):
                return layer
            lows, highs = ([min(max(v, low), high) for v in edge] for edge in (layer.low, layer.high))
            return replace(layer, low=lows, high=highs, label=_told(layer.label))
        case Line(is_guide=True):
            if not _beyond(layer.y, low, high):
                return layer
            y = [v if low <= v <= high else math.nan for v in layer.y]
            return replace(layer, y=y, label=_told(layer.label))
        case _:
            return layer


def _told(label: str) -> str:
    return f"{label} ({CUT})" if label else ""


def _beyond(values: Iterable[float], low: float, high: float) -> bool:
    return any(v < low or v > high for v in values)


def _within(values: Iterable[float], low: float, high: float) -> list[float]:
    """Return values, those outside of a range moved to its ends."""
    return [min(max(v, low), high) for v in _finite(values)]


def _finite(values: Iterable[float]) -> list[float]:
    return [v for v in values if math.isfinite(v)]


def _xs(layer: Layer) -> Sequence[float]:
    if isinstance(layer, Rule):
        return [layer.at] if layer.along is Orientation.VERTICAL else []
    return layer.x


def _main(layers: Iterable[Layer]) -> Iterable[float]:
    """Return the values that set the y axis."""
    for layer in layers:
        match layer:
            case Rule():
                yield from (layer.at,) * (layer.along is Orientation.HORIZONTAL)
            case Line():
                yield from () if layer.is_guide else layer.y
            case Area():
                yield from [*(layer.low or [0.0]), *layer.high] if len(layer.x) else ()
            case Points():
                yield from layer.y
            case Band():
                pass
            case _:
                assert_never(layer)


def _wide(layers: Iterable[Layer]) -> Iterable[float]:
    """Return the edges of bands and error bars."""
    return (v for layer in layers if isinstance(layer, (Band, Points)) for v in (*layer.low, *layer.high))
