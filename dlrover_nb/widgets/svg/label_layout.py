"""Places labels on a plot so that no two of them overlap, at any size that the plot may have. Pure.

A saved drawing has one size. A live figure is as wide as its page allows, and the kernel is not told how
wide: Bokeh keeps that to the browser. So a layout is made for a range of sizes. Every edge of a box is linear
in the plot's size (a share of it plus px of the label's own), so two boxes in the same order at the least and
at the greatest size are in that order at all sizes between.

Labels are placed one after the other, the most important first, each at the first of its spots that is free.
A label without a free spot is left out: its marker's tool tip and the chart's table hold the same words.
Rejected: labels that push each other away by iteration, since they move when one value changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CHAR = 5.6  # mean width of a character at 10 px, in px: wide enough for every common sans-serif
_ASCENT, _DESCENT = 9.0, 3.0  # of a line at 10 px
ROW_PX = 14.0  # of the rows of names above the data
_APART = 2.0  # px between two labels
_END = 1e6  # px: beyond the end of any plot


class Side(StrEnum):
    """The side of a label that is at its spot."""

    LEFT = "left"
    MIDDLE = "center"
    RIGHT = "right"


_SHIFT = {Side.LEFT: 0.0, Side.MIDDLE: -0.5, Side.RIGHT: -1.0}  # of the text, in its widths


@dataclass(frozen=True, slots=True)
class Spot:
    """A possible place of a label, relative to its anchor.

    Parameters
    ----------
    dx, dy
        Px to the right, and down to the base line.
    x
        Share of the width instead of the anchor's own: 0 is the plot's left edge.
    has_stem
        Whether its line goes on below it, down to the end of the room; no label may cover that.
    """

    dx: float
    dy: float
    side: Side = Side.LEFT
    x: float | None = None
    has_stem: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """A text with its anchor, in shares of the plot's width and height, and its spots, the best first."""

    text: str
    x: float
    y: float
    spots: tuple[Spot, ...]

    @property
    def width_px(self) -> float:
        """Width of the text."""
        return len(self.text) * CHAR


@dataclass(frozen=True, slots=True)
class Room:
    """The least and the greatest size of a plot in px, without its axes."""

    width: tuple[float, float]
    height: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle: its edges are px from an anchor, which is given in shares of the plot."""

    x: float
    y: float
    left: float
    right: float
    top: float
    bottom: float

    def is_inside(self, room: Room) -> bool:
        """Whether it is within the plot at every size."""
        return all(
            at * size + low >= 0 and at * size + high <= size
            for at, low, high, sizes in (
                (self.x, self.left, self.right, room.width),
                (self.y, self.top, self.bottom, room.height),
            )
            for size in sizes
        )

    def is_clear_of(self, other: Box, room: Room) -> bool:
        """Whether both are apart at every size: in one order along one of the axes."""
        return any(
            _is_before(self, other, room) or _is_before(other, self, room)
            for _is_before in (_is_left_of, _is_above)
        )


def _is_left_of(a: Box, b: Box, room: Room) -> bool:
    return all(a.x * w + a.right + _APART <= b.x * w + b.left for w in room.width)


def _is_above(a: Box, b: Box, room: Room) -> bool:
    return all(a.y * h + a.bottom <= b.y * h + b.top for h in room.height)


def marker_box(x: float, y: float, radius_px: float) -> Box:
    """Return the box of a marker, which labels should not cover."""
    return Box(x, y, -radius_px, radius_px, -radius_px, radius_px)


def text_box(label: Label, spot: Spot) -> Box:
    """Return the box of a label's text at a spot."""
    start = _SHIFT[spot.side] * label.width_px + spot.dx
    x = label.x if spot.x is None else spot.x
    return Box(x, label.y, start, start + label.width_px, spot.dy - _ASCENT, spot.dy + _DESCENT)


def _boxes(label: Label, spot: Spot) -> tuple[Box, ...]:
    """Return the boxes of the text and of its stem."""
    text = text_box(label, spot)
    if not spot.has_stem:
        return (text,)
    return text, Box(label.x, label.y, 0.0, 0.0, text.top, _END)


def place(
    labels: Sequence[Label], room: Room, markers: Iterable[Box] = (), *, fixed: Iterable[Box] = ()
) -> list[Spot | None]:
    """Return the spot of each label; None: it has no room.

    Parameters
    ----------
    labels
        The most important first.
    markers
        Covered only where there is no other room.
    fixed
        Never covered.
    """
    markers, obstacles = tuple(markers), [*fixed]
    chosen: list[Spot | None] = []
    for label in labels:
        spot = _best(label, room, obstacles, markers)
        chosen.append(spot)
        obstacles += _boxes(label, spot) if spot else ()
    return chosen


def _best(label: Label, room: Room, obstacles: Sequence[Box], markers: Sequence[Box]) -> Spot | None:
    """Return the first free spot that covers the fewest markers."""

    def n_covered(spot: Spot) -> int:
        text = text_box(label, spot)
        return sum(not text.is_clear_of(marker, room) for marker in markers)

    return min(
        (spot for spot in label.spots if _fits(label, spot, room, obstacles)), key=n_covered, default=None
    )


def _fits(label: Label, spot: Spot, room: Room, obstacles: Sequence[Box]) -> bool:
    boxes = _boxes(label, spot)
    return boxes[0].is_inside(room) and all(
        box.is_clear_of(other, room) for box in boxes for other in obstacles
    )


def clear_labels(ticks: Iterable[tuple[float, str]], width_px: float) -> list[tuple[float, str]]:
    """Return the labels, given by their middles in px, that are within the width and overlap none before."""
    shown: list[tuple[float, str]] = []
    free_px = 0.0  # from here on
    for x, label in ticks:
        half = len(label) * CHAR / 2
        if x - half >= free_px and x + half <= width_px:
            shown.append((x, label))
            free_px = x + half + 2 * _APART
    return shown


# the spots of what charts label


def around(radius_px: float) -> tuple[Spot, ...]:
    """Return the spots around a marker: to its upper left first, where a rising curve leaves room."""
    near, above, below = radius_px + 4, -4.0, 10.0
    return (
        Spot(-near, above, Side.RIGHT), Spot(near, below), Spot(near, above), Spot(-near, below, Side.RIGHT),
        Spot(0, -near - 2, Side.MIDDLE), Spot(0, near + 8, Side.MIDDLE),
        Spot(-near, above - 12, Side.RIGHT), Spot(near, below + 12), Spot(near, above - 12),
        Spot(-near, below + 12, Side.RIGHT),
        Spot(0, -near - 15, Side.MIDDLE), Spot(0, -near - 28, Side.MIDDLE),
    )  # fmt: skip


def at_ends() -> tuple[Spot, ...]:
    """Return the spots of a level line's name: above and below it, at its ends first, then between them."""
    left, right = (Side.LEFT, 0.0, 4.0), (Side.RIGHT, 1.0, -4.0)
    between = ((Side.MIDDLE, x, 0.0) for x in (0.5, 0.75, 0.25, 0.625, 0.375, 0.875, 0.125))
    return tuple(Spot(dx, dy, side, x) for side, x, dx in (left, right, *between) for dy in (-4.0, 11.0))


def in_rows(n_row: int) -> tuple[Spot, ...]:
    """Return the spots of an upright line's name in rows above the data, the lowest row first."""
    return tuple(
        Spot(dx, -_DESCENT - ROW_PX * row, side, has_stem=True)
        for side, dx in ((Side.LEFT, 3.0), (Side.RIGHT, -3.0), (Side.MIDDLE, 0.0))
        for row in range(n_row)
    )


def row_of(spot: Spot) -> int:
    """Return the row of a spot of `in_rows`, 0 the lowest."""
    return round((-_DESCENT - spot.dy) / ROW_PX)
