"""Colors and dashes of all charts: Okabe and Ito's colors, which color-blind readers can tell apart.

The style of a node is a pure function of its name and role, not of its position among the reporting nodes: a
node keeps its style when others join or leave, in every chart, live and saved.
"""

from __future__ import annotations

from zlib import crc32

BLACK, BLUE, ORANGE, GREEN = "#000000", "#0072B2", "#E69F00", "#009E73"
RED, PURPLE, SKY = "#D55E00", "#CC79A7", "#56B4E9"
CYCLE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
DASHES = ("", "6 3", "2 3", "8 3 2 3", "10 4", "4 4", "1 4")
INK, GRID = "#3d444d", "#e1e4e8"
N_LOOK = len(CYCLE) * len(DASHES)  # lines that differ
_FIRST_PS = 44  # green and dashed, as parameter servers are drawn where they are drawn together


def line_look(i: int) -> tuple[str, str]:
    """Return color and dash of the i-th of many lines: neighbors differ in both, the first 49 in one."""
    return CYCLE[i % len(CYCLE)], DASHES[(i + i // len(CYCLE)) % len(DASHES)]


def node_look(name: str, *, is_ps: bool = False) -> tuple[str, str]:
    """Return color and dash of a node's line: workers count up from the first look, PS down from another."""
    digits = name[len(name.rstrip("0123456789")) :]
    number = int(digits) if digits else crc32(name.encode())
    return line_look(((_FIRST_PS - number) if is_ps else number) % N_LOOK)
