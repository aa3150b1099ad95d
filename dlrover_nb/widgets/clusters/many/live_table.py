"""The live table of jobs: cells are sent as data, and the browser builds the table.

As HTML the table of fifty jobs would be 20 kB a second. Changed cells are a tenth of a kilobyte per second
and job, and the browser builds a real table: rows, a head, a caption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bokeh.models import ColumnDataSource, CustomJS, Div

from dlrover_nb.widgets.blocks import escape
from dlrover_nb.widgets.clusters.many.look import N_LOOK, swatch
from dlrover_nb.widgets.rows.job_cells import Rank
from dlrover_nb.widgets.rows.job_columns import LIVE
from dlrover_nb.widgets.theme import ATTENTION, BG, EDGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.widgets.clusters.many.job_rows import Row

_RIGHT = tuple(i for i, column in enumerate(LIVE) if column.is_number)
_SLOT = "slot"
_STYLE = (
    "<style>.bk-clearfix{display:block!important}"
    "table{border-collapse:collapse;font:13px/1.45 system-ui,sans-serif;width:100%}"
    "caption{text-align:left;font-weight:600;padding:4px 0}"
    "th,td{padding:2px 10px 2px 0;text-align:left;vertical-align:top;font-weight:400}"
    f"thead th{{border-bottom:1px solid {EDGE};position:sticky;top:0;background:{BG}}}"
    "tbody th{font-weight:600;white-space:nowrap}.n{text-align:right;white-space:nowrap}"
    f"tr.now{{background:{ATTENTION}}}</style>"
)
_SCROLLED = {"max-height": "440px", "overflow-y": "auto"}  # an opened job is shown below
# A row that needs attention is shaded, besides the text of its cells. Cells are not escaped yet.
_DRAW = """
const esc = (s) => String(s).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`)
const data = source.data, n = data.rank.length, rows = []
for (let i = 0; i < n; i++) {
  const cells = keys.map((key, j) => {
    const text = esc(data[key][i]), side = right.includes(j) ? ' class="n"' : ''
    return j == 0 ? `<th scope="row">${text}</th>` : `<td${side}>${text}</td>`
  })
  const line = data.slot[i] < 0 ? '' : looks[data.slot[i] % looks.length]
  const now = attention.includes(data.rank[i]) ? ' class="now"' : ''
  rows.push(`<tr${now}><td>${line}</td>${cells.join('')}</tr>`)
}
div.setv({text: `${head}<tbody>${rows.join('')}</tbody></table>`}, {sync: false})
"""


class JobsTable:
    """The table; `root` is its Bokeh model."""

    def __init__(self) -> None:
        self._keys = [f"c{i}" for i in range(len(LIVE))]
        self.source = ColumnDataSource({key: [] for key in (*self._keys, "rank", _SLOT)})
        self.root = Div(
            text="",
            sizing_mode="stretch_width",
            disable_math=True,
            styles=_SCROLLED,
            html_attributes={"tabindex": "0"},  # scrolled from the keyboard too
            tags=[self.source],  # else nothing in the browser would hold it
        )
        draw = CustomJS(
            args={
                "source": self.source,
                "div": self.root,
                "keys": self._keys,
                "right": list(_RIGHT),
                "attention": [int(rank) for rank in Rank if rank.needs_person],
                "looks": [swatch(slot) for slot in range(N_LOOK)],
                "head": head_html(),
            },
            code=_DRAW,
        )
        for event in ("change:data", "patching", "streaming"):
            self.source.js_on_change(event, draw)

    def update(self, rows: Sequence[Row]) -> None:
        """Send the changed cells; the whole table where rows were added or removed."""
        new: dict[str, list[object]] = {
            key: [row.cells[i] for row in rows] for i, key in enumerate(self._keys)
        }
        new["rank"] = [int(row.rank) for row in rows]
        new[_SLOT] = [-1 if row.slot is None else row.slot for row in rows]
        old = self.source.data
        if len(old["rank"]) != len(rows):
            if not self.root.text:
                self.root.text = html(rows)  # shown before the first change
            self.source.data = new
            return
        patches = {key: _changed(old[key], column) for key, column in new.items()}
        patches = {key: cells for key, cells in patches.items() if cells}
        if patches:
            self.source.patch(patches)


def _changed(old: Sequence[object], new: Sequence[object]) -> list[tuple[int, object]]:
    return [(i, b) for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]


def head_html() -> str:
    """Return the start of the table, up to its body."""
    names = "".join(f'<th scope="col"{_side(i)}>{escape(each.head)}</th>' for i, each in enumerate(LIVE))
    caption = "Jobs, those that need attention first"
    return f"{_STYLE}<table><caption>{caption}</caption><thead><tr><td></td>{names}</tr></thead>"


def html(rows: Sequence[Row]) -> str:
    """Return the table as the browser builds it."""
    return f"{head_html()}<tbody>{''.join(map(_row, rows))}</tbody></table>"


def _row(row: Row) -> str:
    first, *rest = map(escape, row.cells)
    cells = "".join(f"<td{_side(i)}>{cell}</td>" for i, cell in enumerate(rest, 1))
    now = ' class="now"' if row.rank.needs_person else ""
    return f'<tr{now}><td>{swatch(row.slot)}</td><th scope="row">{first}</th>{cells}</tr>'


def _side(i: int) -> str:
    return ' class="n"' if i in _RIGHT else ""
