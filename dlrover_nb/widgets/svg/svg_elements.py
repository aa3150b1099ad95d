"""Elements of a static drawing: text, markers, swatches, the card around, and tiles."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from dlrover_nb.widgets.svg.label_layout import CHAR
from dlrover_nb.widgets.svg.palette import BLUE
from dlrover_nb.widgets.theme import SVG_BG, SVG_INK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.widgets.svg.marks import Points


LINE_PX = 14  # between lines of text
_LEAST_SHARE = 0.75  # of its size, on a narrow page: beyond, it is scrolled, as smaller text is not legible


def ink_on(color: str) -> str:
    """Return a legible text color on a color: all but blue are light."""
    return "#fff" if color == BLUE else "#000"


def text(  # noqa: PLR0913 - the attributes of one element
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 10,
    weight: str = "",
    color: str = "",
) -> str:
    """Return a line of text at its base line; without a color, in that of the drawing."""
    bold = f' font-weight="{weight}"' if weight else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    fill = f' fill="{color}"' if color else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{fill}{side}{bold}>{escape(text)}</text>'


def wrapped(words: str, room_px: float, *, size: int = 10, is_bold: bool = False) -> list[str]:
    """Return text as lines that fit into a room; at least one."""
    char_px = CHAR * size / 10 * (1.08 if is_bold else 1.0)
    return textwrap.wrap(words, max(int(room_px / char_px), 8)) or [""]


def lines(x: float, y: float, words: Sequence[str], *, size: int = 10, weight: str = "") -> str:
    """Return lines of text, the first at this base line."""
    return "".join(text(x, y + LINE_PX * i, line, size=size, weight=weight) for i, line in enumerate(words))


def marker(points: Points, x: float, y: float, title: str) -> str:
    """Return one marker; `title` is the element of its tool tip, or empty."""
    paint = (
        f'fill="{SVG_BG}" stroke="{points.color}" stroke-width="2"'
        if points.hollow
        else f'fill="{points.color}" stroke="{SVG_BG}" stroke-width="0.6"'
    )
    return f'<path d="{_SHAPE[points.shape](x, y, points.size)}" {paint}>{title}</path>'


_SHAPE: dict[str, Callable[[float, float, float], str]] = {
    "circle": lambda x, y, r: f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0",
    "square": lambda x, y, r: f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}Z",
    "triangle": lambda x, y, r: f"M{x:.1f} {y - 1.2 * r:.1f}l{1.2 * r:.1f} {2 * r}h{-2.4 * r:.1f}Z",
    "diamond": lambda x, y, r: (
        f"M{x:.1f} {y - 1.4 * r:.1f}l{1.4 * r:.1f} {1.4 * r:.1f}l{-1.4 * r:.1f} {1.4 * r:.1f}"
        f"l{-1.4 * r:.1f} {-1.4 * r:.1f}Z"
    ),
}


def swatch(color: str, x: float, y: float, opacity: float = 1.0) -> str:
    """Return the colored box of a legend, its middle at `y`."""
    return f'<rect x="{x}" y="{y - 4}" width="20" height="8" fill="{color}" fill-opacity="{opacity}"/>'


def card(title: str, desc: str, width: int, height: int, inner: str) -> str:
    """Return a drawing on the page's background as one ``<svg>``, with its title and a description."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" '
        f'style="max-width:100%;min-width:{round(_LEAST_SHARE * width)}px;height:auto" '
        f'fill="{SVG_INK}" font-family="system-ui,sans-serif">'
        f"<title>{escape(title)}</title><desc>{escape(desc)}</desc>"
        f'<rect width="{width}" height="{height}" fill="{SVG_BG}"/>{inner}</svg>'
    )


@dataclass(frozen=True, slots=True)
class Tile:
    """A finished drawing and its size in px."""

    svg: str
    width: int
    height: int


def tile(title: str, desc: str, tiles: Sequence[Tile], *, n_column: int = 1) -> str:
    """Return drawings as one ``<svg>``, row by row; each row is as high as its highest."""
    rows = [tiles[i : i + n_column] for i in range(0, len(tiles), n_column)]
    parts, y = [], 0
    for row in rows:
        x = 0
        for one in row:
            parts.append(one.svg.replace("<svg ", f'<svg x="{x}" y="{y}" ', 1))
            x += one.width
        y += max(one.height for one in row)
    width = max((sum(one.width for one in row) for row in rows), default=1)
    return card(title, desc, width, max(y, 1), "".join(parts))
