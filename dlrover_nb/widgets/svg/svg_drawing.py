"""The static renderer of a whole drawing: its panels as one SVG."""

from __future__ import annotations

from typing import assert_never

from dlrover_nb.widgets.svg import svg, svg_strips
from dlrover_nb.widgets.svg.marks import Drawing, Panel, Plot, Strips, has_rows
from dlrover_nb.widgets.svg.single import sentence, single
from dlrover_nb.widgets.svg.svg_elements import LINE_PX, Tile, card, lines, tile, wrapped

_WIDTH, _LEFT, _RIGHT, _EMPTY_HEIGHT = 680, 62, 22, 44


def draw(drawing: Drawing) -> str:
    """Return the panels with data; a drawing without data is its title with the reason."""
    if drawing.empty:
        return _nothing(drawing.title, drawing.empty).svg
    tiles = [draw_panel(panel) for panel in drawing.panels if _shows_anything(panel)]
    if len(tiles) == 1:
        return tiles[0].svg
    return tile(drawing.title, drawing.desc, tiles, n_column=drawing.n_column)


def draw_panel(panel: Panel) -> Tile:
    """Return one panel; a plot of a single value as a line of text."""
    match panel:
        case Plot():
            words = single(panel)
            return _nothing(panel.title, sentence(words), panel.width) if words else svg.draw(panel)
        case Strips():
            return svg_strips.draw(panel)
        case _:
            assert_never(panel)


def _shows_anything(panel: Panel) -> bool:
    return isinstance(panel, Strips) or any(map(has_rows, panel.layers)) or bool(single(panel))


def _nothing(title: str, words: str, width: int = _WIDTH) -> Tile:
    room = width - _LEFT - _RIGHT
    head, below = wrapped(title, room, size=12, is_bold=True), wrapped(words, room, size=11)
    below_y = 19 + LINE_PX * len(head)
    inner = lines(_LEFT, 15, head, size=12, weight="600") + lines(_LEFT, below_y, below, size=11)
    height = _EMPTY_HEIGHT + LINE_PX * (len(head) + len(below) - 2)
    return Tile(card(title, words, width, height, inner), width, height)
