"""The live chart of many jobs: one figure, one wide source, a line per job.

A figure or a source per job makes the browser lay out and paint each separately: fifty of them freeze it for
seconds. Lines are reused: a new job takes a free line, so that changes of jobs neither redraw the others nor
accumulate models in the browser.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import ColumnDataSource, DataRange1d, HoverTool

from dlrover_nb.widgets.clusters.many.look import look
from dlrover_nb.widgets.live.live_charts import kit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dlrover_nb.widgets.clusters.many.grid import Wide

TITLE = "Throughput of all jobs"
TIME = "t"
FREE = 0.0  # in the column of an unused line: shorter on the wire than NaN, and not drawn
_THIN, _THICK = (1.6, 0.8), (4.0, 1.0)  # width and alpha


def packed(values: Sequence[float]) -> NDArray[np.float32]:
    """Return a whole column in wire form: binary, where a gap takes 4 bytes and not 30."""
    return np.asarray(values, np.float32)


def column(slot: int) -> str:
    """Return the column of a line: short, since each tick sends every name."""
    return f"y{slot}"


class Figure:
    """The chart."""

    def __init__(self) -> None:
        self.root = kit.time_figure(TITLE, "samples/s")
        self.root.y_range = DataRange1d(start=0, only_visible=True)
        self.root.x_range = DataRange1d(only_visible=True, range_padding=0.01)
        self.root.height = 340
        self.source = ColumnDataSource({TIME: np.empty(0)})
        self._lines: list[Any] = []
        self._names: dict[int, str] = {}  # of the lines in use
        self._sent: Wide | None = None
        self._highlighted = ""
        tips = [("job", "$name"), ("samples/s", "$snap_y{0,0}"), ("at", "$snap_x{00:00:00}")]
        self.root.add_tools(HoverTool(tooltips=tips, line_policy="nearest", visible=False))

    def update(self, wide: Wide, x_label: str) -> None:
        """Send what the browser lacks; `x_label` names the origin of times."""
        self.root.xaxis.axis_label = x_label
        sent, self._sent = self._sent, wide
        if sent is None or sent.epoch != wide.epoch or sent.first > wide.first or sent.end < wide.first:
            self._send_all(wide)
        else:
            self._send_rows(wide, sent)
            self._send_columns(wide, sent)
        self._name_lines(wide)

    def highlight(self, name: str) -> None:
        """Draw one job's line thick; no name: none."""
        self._highlighted = name
        self._restyle()

    # the data

    def _send_all(self, wide: Wide) -> None:
        self._make_lines(wide)
        free = [FREE] * len(wide.t_s)
        by_slot = {wide.slot[name]: values for name, values in wide.y.items()}
        data = {column(slot): packed(by_slot.get(slot, free)) for slot in range(len(self._lines))}
        self.source.data = {TIME: np.asarray(wide.t_s), **data}

    def _send_rows(self, wide: Wide, sent: Wide) -> None:
        """Correct the row that was the last one, and append those that are new."""
        at = sent.end - 1 - wide.first
        names = {slot: name for name, slot in sent.slot.items() if wide.slot.get(name) == slot}
        if at >= 0 and sent.t_s and wide.t_s[at] != sent.t_s[-1]:
            self._patch_row(wide, at, names)
        rows = range(max(at + 1, 0), len(wide.t_s))
        if rows:
            tail = {
                column(slot): [wide.y[names[slot]][i] if slot in names else FREE for i in rows]
                for slot in range(len(self._lines))
            }
            self.source.stream({TIME: [wide.t_s[i] for i in rows], **tail}, rollover=len(wide.t_s))

    def _patch_row(self, wide: Wide, at: int, names: dict[int, str]) -> None:
        here = len(self.source.data[TIME]) - 1
        cells = {column(slot): [(here, wide.y[name][at])] for slot, name in names.items()}
        self.source.patch({TIME: [(here, wide.t_s[at])], **cells})

    def _send_columns(self, wide: Wide, sent: Wide) -> None:
        """Send new or newly filled columns whole; free those of removed jobs."""
        for slot in sorted(set(sent.slot.values()) - set(wide.slot.values())):
            self.source.data[column(slot)] = packed([FREE] * len(wide.t_s))
        self._make_lines(wide)
        for name, slot in wide.slot.items():
            if sent.slot.get(name) != slot or sent.version.get(name) != wide.version[name]:
                self.source.data[column(slot)] = packed(wide.y[name])

    # the lines

    def _make_lines(self, wide: Wide) -> None:
        for slot in range(len(self._lines), max(wide.slot.values(), default=-1) + 1):
            if column(slot) not in self.source.data:
                self.source.data[column(slot)] = packed([FREE] * len(self.source.data[TIME]))
            color, dash = look(slot)
            width, alpha = _THIN
            self._lines.append(
                self.root.line(
                    TIME, column(slot), source=self.source, visible=False,
                    color=color, line_dash=[int(d) for d in dash.split()], width=width, alpha=alpha,
                )
            )  # fmt: skip

    def _name_lines(self, wide: Wide) -> None:
        names = {slot: name for name, slot in wide.slot.items()}
        if names == self._names:
            return
        for slot, line in enumerate(self._lines):
            if names.get(slot) != self._names.get(slot):
                line.visible, line.name = slot in names, names.get(slot)
        self._names = names
        self._restyle()

    def _restyle(self) -> None:
        for slot, line in enumerate(self._lines):
            width, alpha = _THICK if self._names.get(slot) == self._highlighted else _THIN
            if not math.isclose(line.glyph.line_width, width):
                line.glyph.update(line_width=width, line_alpha=alpha)
                line.level = "overlay" if width == _THICK[0] else "glyph"
