"""The labels of a plot with their spots, the same for both renderers; see `label_layout`.

Names of upright rules (a plan that began, a node that is full) are in rows above the data, those of level
rules (a limit) at an end of their line, those of markers (a named pick) around their marker. Of rules the
newest is placed first, in the lowest row: the lines of older ones then pass to the left of its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets.svg.label_layout import (
    ROW_PX,
    Box,
    Label,
    Room,
    Spot,
    around,
    at_ends,
    in_rows,
    marker_box,
    place,
    row_of,
    text_box,
)
from dlrover_nb.widgets.svg.marks import Orientation, Points, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.widgets.svg.marks import Plot

MOST_ROWS = 3
_FAR_PX = 1e6
_STEPS = 12  # along the interval of a marker


@dataclass(frozen=True, slots=True)
class Axes:
    """The values at the ends of both axes."""

    x: tuple[float, float]
    y: tuple[float, float]

    def share_x(self, value: float) -> float:
        """Return the place of a value as a share of the width, from the left."""
        return (value - self.x[0]) / (self.x[1] - self.x[0])

    def share_y(self, value: float) -> float:
        """Return the place of a value as a share of the height, from above."""
        return (self.y[1] - value) / (self.y[1] - self.y[0])


@dataclass(frozen=True, slots=True)
class Rows:
    """Names of upright rules: the spot of each rule (None: no name, or no room), and the number of rows."""

    rules: tuple[Rule, ...]
    spots: tuple[Spot | None, ...]

    @property
    def n_row(self) -> int:
        """The number of rows in use."""
        return 1 + max((row_of(spot) for spot in self.spots if spot), default=-1)


def upright(plot: Plot, x: tuple[float, float], width_px: tuple[float, float]) -> Rows:
    """Return the names of upright rules in as few rows as hold them all; `x` are the axis' ends."""
    rules = tuple(r for r in plot.layers if isinstance(r, Rule) and r.along is Orientation.VERTICAL)
    named = sorted((i for i, r in enumerate(rules) if r.label), key=lambda i: rules[i].at, reverse=True)
    axes = Axes(x, (0.0, 1.0))
    spots: list[Spot | None] = []
    for n_row in range(1, MOST_ROWS + 1):
        room = Room(width_px, (n_row * ROW_PX,) * 2)
        labels = [Label(rules[i].label, axes.share_x(rules[i].at), 1.0, in_rows(n_row)) for i in named]
        spots = place(labels, room)
        if None not in spots:
            break
    by_rule = dict(zip(named, spots, strict=True))
    return Rows(rules, tuple(by_rule.get(i) for i in range(len(rules))))


def level(plot: Plot, axes: Axes, room: Room, top: float = 0.0) -> list[tuple[Rule, Spot | None]]:
    """Return the level rules within the plot with the spots of their names.

    Parameters
    ----------
    top
        Share of the height, from above, that rows of names take.
    """
    rules = [r for r in plot.layers if isinstance(r, Rule) and r.along is Orientation.HORIZONTAL]
    rules = [r for r in rules if axes.y[0] <= r.at <= axes.y[1]]
    labels = [Label(r.label, 0.0, axes.share_y(r.at), at_ends() if r.label else ()) for r in rules]
    lines = [
        Box(axes.share_x(r.at), 0.0, -1.0, 1.0, 0.0, _FAR_PX)
        for r in plot.layers
        if isinstance(r, Rule) and r.along is Orientation.VERTICAL
    ]
    rows = Box(0.0, top, 0.0, _FAR_PX, -_FAR_PX, 0.0)
    covered = (*lines, *_marked(plot, axes))
    return list(zip(rules, place(labels, room, covered, fixed=(rows,) if top else ()), strict=True))


def _marked(plot: Plot, axes: Axes) -> Iterator[Box]:
    """Give the boxes of all markers, and of steps along the interval of each."""
    for layer in plot.layers:
        if not isinstance(layer, Points):
            continue
        has_ends = bool(len(layer.low) and len(layer.high))
        ends = zip(layer.low, layer.high, strict=True) if has_ends else zip(layer.y, layer.y, strict=True)
        for x, y, (low, high) in zip(layer.x, layer.y, ends, strict=True):
            for at in (y, *(low + (high - low) * i / _STEPS for i in range(_STEPS + 1) if high > low)):
                yield marker_box(axes.share_x(x), axes.share_y(at), layer.size)


def of_markers(layers: Sequence[Points], axes: Axes, room: Room) -> list[list[Spot | None]]:
    """Return the spots of the names of markers, layer by layer; no name covers a marker if it need not."""
    markers = [
        marker_box(axes.share_x(x), axes.share_y(y), layer.size)
        for layer in layers
        for x, y in zip(layer.x, layer.y, strict=True)
    ]
    boxes: list[Box] = []
    spots: list[list[Spot | None]] = []
    for layer in layers:
        labels = [
            Label(name, axes.share_x(x), axes.share_y(y), around(layer.size) if name else ())
            for name, x, y in zip(layer.labels, layer.x, layer.y, strict=False)
        ]
        placed = place(labels, room, markers, fixed=boxes)
        boxes += [text_box(label, spot) for label, spot in zip(labels, placed, strict=True) if spot]
        spots.append(placed)
    return spots
