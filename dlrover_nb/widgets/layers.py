"""What a static plot is made of: layers of data, and the colors, dashes and shapes to tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLACK, BLUE, ORANGE, GREEN = "#000000", "#0072B2", "#E69F00", "#009E73"
RED, PURPLE, SKY = "#D55E00", "#CC79A7", "#56B4E9"
CYCLE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
DASHES = ("", "6 3", "2 3", "8 3 2 3", "10 4", "4 4", "1 4")
INK, GRID = "#3d444d", "#e1e4e8"


def line_look(i: int) -> tuple[str, str]:
    """Return color and dash of the i-th of many lines: neighbors differ in both, the first 49 in one."""
    return CYCLE[i % len(CYCLE)], DASHES[(i + i // len(CYCLE)) % len(DASHES)]


@dataclass(frozen=True, slots=True)
class Line:
    """A polyline; `step` holds each value until the next one."""

    x: Sequence[float]
    y: Sequence[float]
    color: str = BLUE
    label: str = ""
    dash: str = ""
    step: bool = False


def node_line(i: int, x: Sequence[float], y: Sequence[float], name: str) -> Line:
    """Return the line of the i-th node."""
    color, dash = line_look(i)
    return Line(x, y, color, name, dash)


@dataclass(frozen=True, slots=True)
class Band:
    """The area between two lines."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    color: str = BLUE
    label: str = ""


@dataclass(frozen=True, slots=True)
class Area:
    """One layer of a stack: the area between two lines, opaque, with its `name` written into it."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    color: str = BLUE
    label: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Points:
    """Markers, with error bars where `low` and `high` are given, tool tips and names where those are."""

    x: Sequence[float]
    y: Sequence[float]
    color: str = BLUE
    label: str = ""
    shape: str = "circle"
    size: float = 3.5
    hollow: bool = False
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    titles: Sequence[str] = ()
    labels: Sequence[str] = ()


class Orientation(StrEnum):
    """Which way a rule runs."""

    VERTICAL = "vertical"
    HORIZONTAL = "horizontal"


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the plot at one value, with its label on it."""

    at: float
    label: str = ""
    along: Orientation = Orientation.VERTICAL
    color: str = INK
    dash: str = "4 3"


Layer = Line | Band | Area | Points | Rule
