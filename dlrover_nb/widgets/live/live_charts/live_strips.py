"""Live strips: a Bokeh figure that is kept equal to `Strips`, one rectangle per piece, one source.

Columns of colors and hatches rarely change, and unchanged columns are not sent. Pieces
of a time axis are in the order of their start, so that new ones are appended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bokeh.models import FactorRange, Range1d

from dlrover_nb.widgets.live.live_charts import kit
from dlrover_nb.widgets.live.live_charts.legend import HATCH_ALPHA, Legend, entry
from dlrover_nb.widgets.live.live_charts.sources import Source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from bokeh.models import DataRange1d

    from dlrover_nb.widgets.svg.marks import Piece, Strips

ROW, REST = 20, 110  # px: of a row, and of title, legend and axis


class LiveStrips:
    """One figure.

    Parameters
    ----------
    strips
        Defines the axes, whose kind is fixed; rows are set by `show`.
    times
        The range of time that it shares with other figures; None: its own.
    """

    def __init__(self, strips: Strips, *, times: DataRange1d | None = None) -> None:
        self.root = _figure(strips, times)
        self.legend = Legend(self.root)
        self._pieces = Source(row=[], left=[], right=[], color=[], hatch=[], words=[])
        self._crosses = Source(row=[], x=[])
        self._rules = Source(x=[], color=[])
        hover = kit.words_hover()
        self.root.add_tools(hover)
        hover.renderers = [self._draw()]

    def _draw(self) -> Any:  # noqa: ANN401 - bokeh has no types
        pieces = self.root.hbar(
            y="row", left="left", right="right", height=0.86, source=self._pieces.model, fill_color="color",
            line_color="#ffffff", hatch_pattern="hatch", hatch_color="#ffffff", hatch_alpha=HATCH_ALPHA,
        )  # fmt: skip
        self.root.scatter(
            "x", "row", marker="x", size=9, source=self._crosses.model, line_color="#000000", line_width=2
        )
        self.root.vspan("x", source=self._rules.model, line_color="color", line_dash=[2, 3], line_width=1.5)
        return pieces

    def show(self, strips: Strips) -> bool:
        """Show strips; return whether the pieces changed."""
        names = [name for name, _ in reversed(strips.rows)]  # Bokeh counts rows from below
        if self.root.y_range.factors != names:
            self.root.y_range.factors = names
            self.root.height = REST + ROW * len(names)
        self.root.title.text = strips.title
        pieces = [(name, piece) for name, row in strips.rows for piece in row]
        if strips.x_is_time:
            pieces.sort(key=lambda named: named[1].start)
        rules: dict[str, list[object]] = {
            "x": [rule.at for rule in strips.rules],
            "color": [rule.color for rule in strips.rules],
        }
        changed = [
            self._pieces.show(_columns(pieces)),
            self._crosses.show(_crosses(pieces)),
            self._rules.show(rules),
        ]
        self.legend.show(map(entry, strips.kinds))
        return any(changed)


def _columns(pieces: Sequence[tuple[str, Piece]]) -> dict[str, list[object]]:
    return {
        "row": [name for name, _ in pieces],
        "left": [p.start for _, p in pieces],
        "right": [p.stop for _, p in pieces],
        "color": [p.kind.color for _, p in pieces],
        "hatch": [p.kind.hatch or "blank" for _, p in pieces],
        "words": [p.tip for _, p in pieces],
    }


def _crosses(pieces: Sequence[tuple[str, Piece]]) -> dict[str, list[object]]:
    marked = [(name, p) for name, p in pieces if p.kind.is_marked]
    return {"row": [name for name, _ in marked], "x": [(p.start + p.stop) / 2 for _, p in marked]}


def _figure(strips: Strips, times: DataRange1d | None) -> Any:  # noqa: ANN401 - bokeh has no types
    if strips.x_is_time:
        return kit.time_figure(strips.title, "", y_range=FactorRange(), x_range=times or kit.time_range())
    label = f"{strips.x_label} ({strips.unit.strip()})" if strips.unit else strips.x_label
    ranges = {"y_range": FactorRange(), "x_range": Range1d(strips.x0, strips.x1)}
    return kit.plain_figure(strips.title, label, "", tools="", **ranges)
