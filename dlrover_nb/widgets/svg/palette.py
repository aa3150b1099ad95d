"""Colors and dashes of all charts, which color-blind readers can tell apart.

The colors are Okabe and Ito's, the light ones darkened and black made gray: all have a contrast of 3 : 1 or
more to white and to #111111, because a live figure does not know the theme of its page.

A role has one color in all charts: what stands for all workers is blue, what stands for parameter servers is
green. The style of a node is a pure function of its name and role, not of its position among the reporting
nodes: a node keeps its style when others join or leave, in every chart, live and saved. Each PS is green and
dashed; no worker is.
"""

from __future__ import annotations

from zlib import crc32

BLUE, ORANGE, GREEN, RED = "#0072B2", "#BF8400", "#009E73", "#D55E00"
PURPLE, SKY = "#C9749F", "#3799D2"
INK, PALE = "#797979", "#8C959F"  # what stands for no node: rules, labels; idle parts
CYCLE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, INK)
DASHES = ("", "6 3", "2 3", "8 3 2 3", "10 4", "4 4", "1 4")
WORKER_COLOR, PS_COLOR = BLUE, GREEN  # of a role as a whole
PS_COLORS = (GREEN, "#5B8F2B")  # of its nodes: the second only where the dashes are used up
WORKER_COLORS = tuple(color for color in CYCLE if color != PS_COLOR)
N_WORKER_LOOK = len(WORKER_COLORS) * len(DASHES)  # lines that differ


def node_look(name: str, *, is_ps: bool = False) -> tuple[str, str]:
    """Return color and dash of a node's line, by its number."""
    digits = name[len(name.rstrip("0123456789")) :]
    number = int(digits) if digits else crc32(name.encode())
    return _ps_look(number) if is_ps else _worker_look(number)


def _worker_look(i: int) -> tuple[str, str]:
    """Return the i-th worker's look: neighbors differ in color and dash, the first 42 in one of them."""
    round_, at = divmod(i % N_WORKER_LOOK, len(WORKER_COLORS))
    return WORKER_COLORS[at], DASHES[(at + round_) % len(DASHES)]


def _ps_look(i: int) -> tuple[str, str]:
    """Return the i-th PS' look: green, and never a solid line."""
    round_, at = divmod(i, len(DASHES) - 1)
    return PS_COLORS[round_ % len(PS_COLORS)], DASHES[1 + at]
