"""Cores of a cluster over time: what jobs of ours hold, what is used, and what there is.

Cores alone are drawn, as machines run short of cores first; the table has memory too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.svg import svg_drawing
from dlrover_nb.widgets.svg.marks import Drawing, Line, Plot
from dlrover_nb.widgets.svg.palette import BLUE, GREEN, INK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.history.stores.load_series import LoadPoint
    from dlrover_nb.core.structs.cluster.cluster_load import Amount

TITLE = "Cores over time"
N_ROW = 24
WORDS = "Cores that the cluster has, that jobs hold, and that all processes use, where each is known."
_Part = tuple[str, str, str, "Callable[[LoadPoint], Amount | None]"]
PARTS: tuple[_Part, ...] = (
    ("what there is", INK, "4 3", lambda p: p.has),
    ("held by jobs", BLUE, "", lambda p: p.by_jobs),
    ("used by all", GREEN, "2 2", lambda p: p.used),
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Cores of one part at the moments with a value, in hours before the newest point."""

    hours: tuple[float, ...]
    cores: tuple[float, ...]


def curve(points: Sequence[LoadPoint], part: Callable[[LoadPoint], Amount | None]) -> Curve:
    """Return one part over time."""
    cores = [(point.at_s, amount.cpu) for point in points if (amount := part(point)) is not None]
    end_s = points[-1].at_s if points else 0.0
    return Curve(tuple((at_s - end_s) / 3600 for at_s, _ in cores), tuple(cpu for _, cpu in cores))


def marks(points: Sequence[LoadPoint]) -> Drawing:
    """Describe the chart of points of one machine, or of all, oldest first."""
    lines = []
    for label, color, dash, part in PARTS:
        line = curve(points, part)
        if line.cores:
            lines.append(Line(line.hours, line.cores, color, label, dash))
    plot = Plot(TITLE, WORDS, "hours before the newest sample", "cores", tuple(lines), height=220)
    return Drawing(TITLE, WORDS, (plot,), "" if lines else "No sample of this cluster is kept yet.")


def data_table(points: Sequence[LoadPoint]) -> Table:
    """Return the same numbers: of many points some, evenly, and the newest."""
    step = -(-len(points) // N_ROW) or 1
    rows = tuple(
        (
            units.clock(p.at_s),
            *(units.cores(a.cpu if a else None) for a in (p.has, p.by_jobs, p.idle, p.used)),
            *(units.memory(a.memory_mib if a else None) for a in (p.idle, p.used)),
        )
        for p in list(points)[::-1][::step][::-1]
    )
    head = ("at", "cores", "held by jobs", "idle", "used", "memory idle", "memory used")
    return Table(TITLE, head, rows)


def static(points: Sequence[LoadPoint]) -> StaticChart:
    """Return the chart and its table."""
    return StaticChart(svg_drawing.draw(marks(points)), data_table(points))
