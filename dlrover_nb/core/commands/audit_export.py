"""The audit as a file: JSON lines to be checked elsewhere, CSV for a spreadsheet.

Both hold the number and the hash of each row, and end with the head of the chain. A line of JSON has the row
as it is hashed, so that a reader can verify an export without this software: a hash is the SHA-256 of the one
before (64 zeros before the first row), the number and the row, with line feeds between them.

A cell that begins as a formula does is given an apostrophe: a reason that a user typed must not be computed
by the spreadsheet of an auditor.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.structs.decisions.commands import AuditRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dlrover_nb.core.structs.decisions.commands import ChainedRow

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_FIELDS = tuple(field.name for field in fields(AuditRow))


class ExportFormat(StrEnum):
    """Format of an exported audit."""

    JSONL = "jsonl"
    CSV = "csv"


def exported(
    rows: Iterable[ChainedRow], head: Callable[[], tuple[int, str]], form: ExportFormat
) -> Iterator[str]:
    """Yield an export, line by line.

    Parameters
    ----------
    head
        Returns number and hash of the last row of the chain; it is asked when the rows are written.
    """
    if form is ExportFormat.JSONL:
        for each in rows:
            yield f'{{"seq":{each.seq},"hash":"{each.hash}","row":{to_json(each.row).decode()}}}\n'
        seq, digest = head()
        yield json.dumps({"head": {"seq": seq, "hash": digest}}) + "\n"
        return
    yield csv_line(("seq", "hash", "time", *_FIELDS))
    for each in rows:
        yield csv_line((str(each.seq), each.hash, _time(each.row.at_s), *_cells(each.row)))
    seq, digest = head()
    yield csv_line((f"head {seq}", digest, *("" for _ in ("time", *_FIELDS))))


def csv_line(cells: Iterable[str]) -> str:
    """Return one line of CSV, its formulas defused."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([defused(cell) for cell in cells])
    return line.getvalue()


def defused(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _cells(row: AuditRow) -> Iterator[str]:
    for name in _FIELDS:
        value = getattr(row, name)
        yield "" if value is None else str(value)


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
