"""One row of the list of all jobs: its cells, what it is filtered by, and the order of rows. Pure.

What a cell says, and what it is sorted by, is in the table that all lists of jobs draw from
(`widgets.rows.job_columns`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.rows.job_cells import line_of
from dlrover_nb.widgets.rows.job_columns import DASHBOARD as COLUMNS
from dlrover_nb.widgets.rows.job_columns import JobColumn as Column
from dlrover_nb.widgets.rows.job_columns import whole_cells
from dlrover_nb.widgets.series import natural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.widgets.rows.job_cells import Cell

    Wire = str | list[str | float | None]

__all__ = [
    "BELOW",
    "COLUMNS",
    "IN_LINE",
    "KEYS",
    "USUAL",
    "Column",
    "JobRow",
    "ordered",
    "row_of",
    "sort_value",
]

KEYS = {column.key: column for column in COLUMNS}
IN_LINE = tuple(column for column in COLUMNS if column.width)
(BELOW,) = (column for column in COLUMNS if not column.width)  # the second line of a row
USUAL = (  # unless others are chosen
    "job", "state", "needs", "started", "owner", "rate", "quality", "versus", "memory", "cost", "done",
    "ends",
)  # fmt: skip
_PLACES = {key: place for place, key in enumerate(KEYS)}
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job: a cell for each of `COLUMNS`, and what it is filtered by."""

    name: str
    cells: tuple[Cell, ...]
    phase: str
    owner: str
    needs: tuple[str, ...]
    tags: tuple[str, ...] = ()

    def cell(self, key: str) -> Cell:
        """Return the cell of a column."""
        return self.cells[_PLACES[key]]

    @property
    def wire(self) -> dict[str, Wire]:
        """The row in an event: cells by key, and two values for the filters, which are no cells."""
        cells = {key: _wire(cell) for key, cell in zip(KEYS, self.cells, strict=True)}
        return {**cells, "_phase": self.phase, "_needs": _flag(self)}

    def changes(self, old: JobRow) -> dict[str, Wire]:
        """Return what of it is not as in an older row of the job, as in an event."""
        changed = {
            key: _wire(cell)
            for key, cell, before in zip(KEYS, self.cells, old.cells, strict=True)
            if (cell.text, cell.value, cell.exact) != (before.text, before.value, before.exact)
        }
        if self.phase != old.phase:
            changed["_phase"] = self.phase
        if _flag(self) != _flag(old):
            changed["_needs"] = _flag(self)
        return changed


def _wire(cell: Cell) -> Wire:
    """Return a cell in an event: its text, what it is sorted by, and what its words round.

    Only the text is sent where it has the number that it is sorted by, and rounds nothing.
    """
    if cell.exact:
        return [cell.text, cell.value, cell.exact]
    return cell.text if cell.value is None else [cell.text, cell.value]


def _flag(row: JobRow) -> str:
    return "1" if row.needs else ""


def row_of(job: JobSummary, silent_s: float = 0.0, now_s: float | None = None) -> JobRow:
    """Return the row of a job; one whose master has been silent for a while keeps what it said last."""
    line = line_of(job, silent_s, now_s)
    needs = tuple(words for _, words in line.needs)
    return JobRow(job.name, whole_cells(COLUMNS, line), str(job.phase), job.owner, needs, job.tags)


def sort_value(row: JobRow, key: str) -> float | str | None:
    """Return what a row is sorted by; None, of what is not known, stands last either way."""
    cell = row.cell(key)
    if cell.value is not None:
        return cell.value
    if cell.text == units.MISSING:
        return None
    if not KEYS[key].is_number:
        return cell.text.lower()
    match = _NUMBER.match(cell.text)
    return float(match[0].replace(",", "")) if match else None


def ordered(rows: Iterable[JobRow], key: str, *, is_down: bool) -> list[JobRow]:
    """Return rows by a column; those that are equal in it by name."""
    named = sorted(rows, key=lambda row: natural(row.name))
    if key == "job":
        return named[::-1] if is_down else named
    values = [(sort_value(row, key), row) for row in named]
    valued = [(_comparable(value), row) for value, row in values if value is not None]
    valued.sort(key=lambda pair: pair[0], reverse=is_down)
    return [row for _, row in valued] + [row for value, row in values if value is None]


def _comparable(value: float | str) -> tuple[int, float, str]:
    """Return a key for numbers and texts of one column: ``price unknown`` stands among amounts."""
    return (1, 0.0, value) if isinstance(value, str) else (0, value, "")
