"""Lines of workers over time: one each, or of more than can be told apart, their band and median."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets.series import is_many, spread
from dlrover_nb.widgets.svg.marks import Band, Line, node_line
from dlrover_nb.widgets.svg.palette import BLUE

if TYPE_CHECKING:
    from dlrover_nb.widgets.series import WideTable


def worker_lines(wide: WideTable, *, band: str = "slowest to fastest") -> tuple[Band | Line, ...]:
    """Return what is drawn of a table of workers.

    Parameters
    ----------
    band
        What the legend calls the area from the least to the greatest.
    """
    if not is_many(wide):
        return tuple(node_line(wide.t_s, y, name) for name, y in wide.values.items())
    each = spread(wide)
    return (
        Band(each.t_s, each.low, each.high, BLUE, band),
        Line(each.t_s, each.mid, BLUE, "median worker"),
    )
