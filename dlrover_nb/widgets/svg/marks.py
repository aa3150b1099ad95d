"""The marks of a chart, as data. A chart describes them once; two renderers draw them.

The static renderer (`svg_drawing`) writes SVG, the live one (`live_charts`) keeps Bokeh figures up to date.
Charts and renderers are independent, so colors, dashes, shapes and labels are the same in a live view and in
its saved copy. Rejected: drawing each chart twice by hand, which let both copies diverge (other labels, one
dash for all limits); and deriving the static copy from Bokeh's models, whose export needs a browser.

Conventions:

- A value that is NaN is a gap, never bridged.
- Lines, bands and areas that are given the same `x` object share one live source. Layers of a stack share
  their edges likewise: the upper edge of one area is the `low` of the next.
- A layer without rows is not drawn and has no legend entry. A drawing always lists all of its panels, so that
  a live figure has its axes before the first row arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.widgets.svg.palette import BLUE, INK, node_look

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Line:
    """A polyline; `step` holds each value until the next one."""

    x: Sequence[float]
    y: Sequence[float]
    color: str = BLUE
    label: str = ""
    dash: str = ""
    step: bool = False
    is_node: bool = False  # its name and values are shown on hover
    is_guide: bool = False  # the axis need not reach it where it is far from other lines
    far: float = 1.0  # of a guide: so far beyond the other lines, in their height, the axis reaches


def node_line(x: Sequence[float], y: Sequence[float], name: str, *, is_ps: bool = False) -> Line:
    """Return the line of a node, in the node's own look."""
    color, dash = node_look(name, is_ps=is_ps)
    return Line(x, y, color, name, dash, is_node=True)


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
    """One layer of a stack, opaque; an empty `low` means zero.

    The static renderer writes `name` into it, the live one hatches it: color is never the only mark.
    """

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    color: str = BLUE
    label: str = ""
    name: str = ""
    hatch: str = ""  # a name of Bokeh's patterns


@dataclass(frozen=True, slots=True)
class Points:
    """Markers, with error bars where `low` and `high` are given; tool tips and names likewise.

    A tap on the i-th marker of a live chart passes on `values[i]`.
    """

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
    values: Sequence[object] = ()


class Orientation(StrEnum):
    """Direction of a rule."""

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
Series = Line | Band | Area  # layers over a shared x


@dataclass(frozen=True, slots=True)
class Plot:
    """Layers between two axes. `desc` describes them as text for screen readers.

    `note` is a line below a saved drawing; a live view has controls for what it says.
    """

    title: str
    desc: str
    x_label: str
    y_label: str
    layers: tuple[Layer, ...]
    x_is_time: bool = False
    x_ticks: Sequence[float] = ()  # the existing values, where few; else round numbers
    y_from_zero: bool = True
    y_to: float | None = None  # None: a little above the greatest value
    most_named: int = 8  # lines of nodes in a live legend; of more, names are shown on hover alone
    name: str = ""  # its name in the selector, where one panel is shown at a time
    note: str = ""
    width: int = 680
    height: int = 300


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of pieces: an entry of the legend."""

    label: str
    color: str
    hatch: str = ""  # a name of Bokeh's patterns
    is_marked: bool = False  # with a cross


@dataclass(frozen=True, slots=True)
class Piece:
    """Place of a kind; of its `words`, from long to short, the first that fits is shown; `tip` on hover."""

    start: float
    stop: float
    kind: Kind
    words: tuple[str, ...] = ()
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Strips:
    """Rows of colored pieces, one row per node. `desc` describes them as text."""

    title: str
    desc: str
    x_label: str
    rows: tuple[tuple[str, tuple[Piece, ...]], ...]
    kinds: tuple[Kind, ...]
    x0: float
    x1: float
    x_is_time: bool = False
    unit: str = ""  # after each number of the axis
    rules: tuple[Rule, ...] = ()  # upright; their names are tool tips
    width: int = 680


Panel = Plot | Strips


@dataclass(frozen=True, slots=True)
class Drawing:
    """A whole chart: its panels, row by row, and the reason where it is empty."""

    title: str
    desc: str
    panels: tuple[Panel, ...]
    empty: str = ""  # a sentence instead of the panels, as long as there are no data
    n_column: int = 1
    one_at_a_time: bool = False  # a live view shows the panel selected by name


def has_rows(layer: Layer) -> bool:
    """Whether there is anything to draw: an area needs two rows."""
    if isinstance(layer, Rule):
        return True
    return len(layer.x) > (1 if isinstance(layer, (Band, Area)) else 0)
