"""Static rows of colored pieces: bars of shares, and strips of heat over time. One row a node.

Pieces of one color are one path, so a strip of a thousand cells stays a few kB. Color never stands alone: a
piece has its words in it where there is room, or a mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import ticks
from dlrover_nb.widgets.blocks import escape
from dlrover_nb.widgets.layers import BLACK, GRID, INK
from dlrover_nb.widgets.marks import CHAR, card, ink_on, swatch, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROW, GAP = 16, 4  # px
_TITLE, _LEGEND, _BOTTOM, _RIGHT = 22, 14, 40, 22
_MOST_LEFT = 150
_BAR_PIECES = 40  # above, a row is a strip: its pieces carry no words


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a color lies; of its `words`, from long to short, the first that fits is shown."""

    start: float
    stop: float
    color: str
    words: tuple[str, ...] = ()
    is_marked: bool = False  # with a cross


@dataclass(frozen=True, slots=True)
class Strips:
    """What to draw. `desc` tells in words what the chart shows; `legend` has (color, label, is marked)."""

    title: str
    desc: str
    x_label: str
    rows: tuple[tuple[str, tuple[Piece, ...]], ...]
    legend: tuple[tuple[str, str, bool], ...]
    x0: float
    x1: float
    x_is_time: bool = False
    unit: str = ""  # after each number of the axis
    width: int = 680

    @property
    def height(self) -> int:
        """Height in px: it grows with the rows."""
        return round(self.top + len(self.rows) * (ROW + GAP) + _BOTTOM)

    @property
    def top(self) -> int:
        """Where the rows begin."""
        return _TITLE + _LEGEND * (1 + max((row for _, row, _ in self._places()), default=0)) + 6

    @property
    def left(self) -> float:
        """Where the pieces begin: right of the longest name."""
        longest = max((len(name) for name, _ in self.rows), default=0)
        return min(_MOST_LEFT, max(40.0, longest * CHAR + 14))

    def px(self, x: float) -> float:
        """Return the place of a value."""
        span = (self.x1 - self.x0) or 1.0
        return self.left + (x - self.x0) / span * (self.width - _RIGHT - self.left)

    def _places(self) -> Iterable[tuple[float, int, tuple[str, str, bool]]]:
        x, row = self.left, 0
        for entry in self.legend:
            wide = 26 + len(entry[1]) * CHAR + 12
            if x + wide > self.width - _RIGHT and x > self.left:
                x, row = self.left, row + 1
            yield x, row, entry
            x += wide


def draw(strips: Strips) -> str:
    """Return the rows as one ``<svg>`` element."""
    inner = [text(8, 15, strips.title, size=12, weight="600"), _axis(strips), _legend(strips)]
    for i, (name, pieces) in enumerate(strips.rows):
        y = strips.top + i * (ROW + GAP)
        inner.append(text(strips.left - 6, y + ROW - 4, _cut(name), anchor="end"))
        inner.append(_pieces(strips, pieces, y))
    return card(strips.title, strips.desc, strips.width, strips.height, "".join(inner))


def _cut(name: str) -> str:
    room = int((_MOST_LEFT - 14) / CHAR)
    return name if len(name) <= room else name[: room - 1] + "…"


def _pieces(strips: Strips, pieces: Sequence[Piece], y: int) -> str:
    by_color: dict[str, str] = {}
    for p in pieces:
        left, right = strips.px(p.start), strips.px(p.stop)
        by_color[p.color] = by_color.get(p.color, "") + f"M{left:.1f} {y}H{right:.1f}v{ROW}H{left:.1f}Z"
    paths = [f'<path d="{path}" fill="{color}"/>' for color, path in by_color.items()]
    if len(pieces) <= _BAR_PIECES:
        words = "".join(_words(strips, p, y) for p in pieces)
        paths += [
            _edges(strips, pieces, y),
            f'<g font-size="10" text-anchor="middle">{words}</g>' * bool(words),
        ]
    crosses = "".join(_cross((strips.px(p.start) + strips.px(p.stop)) / 2, y) for p in pieces if p.is_marked)
    if crosses:
        paths.append(f'<path d="{crosses}" stroke="{BLACK}" stroke-width="1.4" fill="none"/>')
    return "".join(paths)


def _edges(strips: Strips, pieces: Sequence[Piece], y: int) -> str:
    """Part neighbors by a white line: two colors may look alike."""
    inner = "".join(f"M{strips.px(p.start):.1f} {y}v{ROW}" for p in pieces[1:])
    return f'<path d="{inner}" stroke="#fff" fill="none"/>' if inner and any(p.words for p in pieces) else ""


def _words(strips: Strips, p: Piece, y: int) -> str:
    left, right = strips.px(p.start), strips.px(p.stop)
    fitting = (w for w in p.words if len(w) * CHAR + 4 <= right - left)
    shown = next(fitting, "")
    place = f'x="{(left + right) / 2:.1f}" y="{y + ROW - 4}" fill="{ink_on(p.color)}"'
    return f"<text {place}>{escape(shown)}</text>" if shown else ""


def _cross(x: float, y: float) -> str:
    return f"M{x - 3:.1f} {y + ROW / 2 - 3:.1f}l6 6m0 -6l-6 6"


def _axis(strips: Strips) -> str:
    bottom = strips.top + len(strips.rows) * (ROW + GAP)
    at = (
        ticks.time_ticks(strips.x0, strips.x1)
        if strips.x_is_time
        else ticks.ticks(strips.x0, strips.x1, 5)
        if strips.x1 > strips.x0
        else []
    )
    parts = [
        f'<path d="M{strips.px(x):.1f} {strips.top}V{bottom + 3}" stroke="{GRID}"/>'
        + text(strips.px(x), bottom + 15, label + strips.unit, anchor="middle")
        for x, label in at
    ]
    middle = (strips.left + strips.width - _RIGHT) / 2
    parts += [
        f'<path d="M{strips.left:.0f} {bottom}H{strips.width - _RIGHT}" stroke="{INK}"/>',
        text(middle, bottom + 31, strips.x_label, anchor="middle", size=11),
    ]
    return "".join(parts)


def _legend(strips: Strips) -> str:
    parts = []
    for x, row, (color, label, is_marked) in strips._places():  # noqa: SLF001 - of this module
        y = _TITLE + _LEGEND * row + 6.0
        mark = f'<path d="{_cross(x + 10, y - ROW / 2)}" stroke="{BLACK}" stroke-width="1.4"/>' * is_marked
        parts.append(swatch(color, x, y) + mark + text(x + 26, y + 3.5, label))
    return "".join(parts)
