"""Static rows of colored pieces: bars of shares, and heat strips over time. One row per node.

Pieces of one color are one path, so a strip of a thousand cells stays a few kB. Color is never the only mark:
a piece contains text where there is room, or a mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from dlrover_nb.widgets.svg import ticks
from dlrover_nb.widgets.svg.label_layout import CHAR, clear_labels
from dlrover_nb.widgets.svg.svg_elements import Tile, card, ink_on, lines, swatch, text, wrapped
from dlrover_nb.widgets.theme import SVG_BG, SVG_GRID, SVG_INK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.widgets.svg.marks import Kind, Piece, Rule, Strips

ROW, GAP = 16, 4  # px
_TITLE, _LEGEND, _BOTTOM, _RIGHT, _EDGE = 22, 14, 40, 22, 8
_APART_PX = 50  # between ticks, at least about
_MOST_LEFT = 150
_BAR_PIECES = 40  # above, a row is a strip: its pieces have no text


@dataclass(frozen=True, slots=True)
class _Frame:
    """The places of rows, pieces and legend in px."""

    strips: Strips

    @property
    def height(self) -> int:
        """Height in px: it grows with the rows."""
        return round(self.top + len(self.strips.rows) * (ROW + GAP) + _BOTTOM)

    @property
    def title(self) -> list[str]:
        """The lines of the title."""
        return wrapped(self.strips.title, self.strips.width - 2 * _EDGE, size=12, is_bold=True)

    @property
    def legend(self) -> int:
        """Where the legend begins."""
        return _TITLE + _LEGEND * (len(self.title) - 1)

    @property
    def top(self) -> int:
        """Where the rows begin."""
        return self.legend + _LEGEND * (1 + max((row for _, row, _ in self.places()), default=0)) + 6

    @property
    def left(self) -> float:
        """Where the pieces begin: right of the longest name."""
        longest = max((len(name) for name, _ in self.strips.rows), default=0)
        return min(_MOST_LEFT, max(40.0, longest * CHAR + 14))

    def px(self, x: float) -> float:
        """Return the place of a value."""
        span = (self.strips.x1 - self.strips.x0) or 1.0
        return self.left + (x - self.strips.x0) / span * (self.strips.width - _RIGHT - self.left)

    def places(self) -> Iterable[tuple[float, int, Kind]]:
        """Return x, row and kind of each entry of the legend, wrapped at the width."""
        x, row = float(_EDGE), 0
        for kind in self.strips.kinds:
            wide = 26 + len(kind.label) * CHAR + 12
            if x + wide > self.strips.width - _EDGE and x > _EDGE:
                x, row = float(_EDGE), row + 1
            yield x, row, kind
            x += wide


def draw(strips: Strips) -> Tile:
    """Return the rows as one ``<svg>`` element."""
    frame = _Frame(strips)
    title = lines(_EDGE, 15, frame.title, size=12, weight="600")
    inner = [title, _axis(strips, frame), _legend(frame)]
    for i, (name, pieces) in enumerate(strips.rows):
        y = frame.top + i * (ROW + GAP)
        inner.append(text(frame.left - 6, y + ROW - 4, _cut(name), anchor="end"))
        inner.append(_pieces(frame, pieces, y))
    inner += [_rule(rule, frame) for rule in strips.rules if strips.x0 <= rule.at <= strips.x1]
    svg = card(strips.title, strips.desc, strips.width, frame.height, "".join(inner))
    return Tile(svg, strips.width, frame.height)


def _rule(rule: Rule, frame: _Frame) -> str:
    bottom = frame.top + len(frame.strips.rows) * (ROW + GAP)
    path = f"M{frame.px(rule.at):.1f} {frame.top}V{bottom}"
    look = f'stroke="{rule.color}" stroke-dasharray="{rule.dash}" fill="none"'
    return f'<path d="{path}" {look}><title>{escape(rule.label)}</title></path>'


def _cut(name: str) -> str:
    room = int((_MOST_LEFT - 14) / CHAR)
    return name if len(name) <= room else name[: room - 1] + "…"


def _pieces(frame: _Frame, pieces: Sequence[Piece], y: int) -> str:
    by_color: dict[str, str] = {}
    for p in pieces:
        left, right, color = frame.px(p.start), frame.px(p.stop), p.kind.color
        by_color[color] = by_color.get(color, "") + f"M{left:.1f} {y}H{right:.1f}v{ROW}H{left:.1f}Z"
    paths = [f'<path d="{path}" fill="{color}"/>' for color, path in by_color.items()]
    if len(pieces) <= _BAR_PIECES:
        words = "".join(_words(frame, p, y) for p in pieces)
        paths += [
            _edges(frame, pieces, y),
            f'<g font-size="10" text-anchor="middle">{words}</g>' * bool(words),
        ]
    marked = [p for p in pieces if p.kind.is_marked]
    crosses = "".join(_cross((frame.px(p.start) + frame.px(p.stop)) / 2, y) for p in marked)
    if crosses:
        paths.append(f'<path d="{crosses}" stroke="#000" stroke-width="1.4" fill="none"/>')
    return "".join(paths)


def _edges(frame: _Frame, pieces: Sequence[Piece], y: int) -> str:
    """Separate neighbors by a line: two colors may look alike."""
    inner = "".join(f"M{frame.px(p.start):.1f} {y}v{ROW}" for p in pieces[1:])
    return (
        f'<path d="{inner}" stroke="{SVG_BG}" fill="none"/>' if inner and any(p.words for p in pieces) else ""
    )


def _words(frame: _Frame, p: Piece, y: int) -> str:
    left, right = frame.px(p.start), frame.px(p.stop)
    fitting = (w for w in p.words if len(w) * CHAR + 4 <= right - left)
    shown = next(fitting, "")
    place = f'x="{(left + right) / 2:.1f}" y="{y + ROW - 4}" fill="{ink_on(p.kind.color)}"'
    return f"<text {place}>{escape(shown)}</text>" if shown else ""


def _cross(x: float, y: float) -> str:
    return f"M{x - 3:.1f} {y + ROW / 2 - 3:.1f}l6 6m0 -6l-6 6"


def _axis(strips: Strips, frame: _Frame) -> str:
    bottom = frame.top + len(strips.rows) * (ROW + GAP)
    right = strips.width - _RIGHT
    places = [(frame.px(x), label + strips.unit) for x, label in _ticks(strips, right - frame.left)]
    parts = [f'<path d="M{x:.1f} {frame.top}V{bottom + 3}" stroke="{SVG_GRID}"/>' for x, _ in places]
    parts += [
        *(text(x, bottom + 15, label, anchor="middle") for x, label in clear_labels(places, strips.width)),
        f'<path d="M{frame.left:.0f} {bottom}H{right}" stroke="{SVG_INK}"/>',
        text((frame.left + right) / 2, bottom + 31, strips.x_label, anchor="middle", size=11),
    ]
    return "".join(parts)


def _ticks(strips: Strips, room_px: float) -> list[tuple[float, str]]:
    n = max(2, int(room_px / _APART_PX))
    if strips.x_is_time:
        return ticks.time_ticks(strips.x0, strips.x1, min(ticks.N_TIME_TICKS, n))
    return ticks.ticks(strips.x0, strips.x1, min(5, n)) if strips.x1 > strips.x0 else []


def _legend(frame: _Frame) -> str:
    parts = []
    for x, row, kind in frame.places():
        y = frame.legend + _LEGEND * row + 6.0
        cross = _cross(x + 10, y - ROW / 2)
        mark = f'<path d="{cross}" stroke="#000" stroke-width="1.4"/>' * kind.is_marked
        parts.append(swatch(kind.color, x, y) + mark + text(x + 26, y + 3.5, kind.label))
    return "".join(parts)
