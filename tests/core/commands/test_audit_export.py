"""Exports of the audit: whole, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.conformance.audit import ROW

from dlrover_nb.core.commands.audit_export import ExportFormat, csv_line, exported
from dlrover_nb.core.commands.memory_audit import MemoryAudit
from dlrover_nb.core.commands.since import parse_since
from dlrover_nb.core.errors import InvalidValueError

NOW_S = 1_790_000_000.0


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_no_cell_of_csv_is_a_formula_and_none_is_lost(cells):
    (read,) = csv.reader(io.StringIO(csv_line(cells), newline=""))
    for cell, shown in zip(cells, read, strict=True):
        assert not shown.startswith(("=", "+", "-", "@", "\t", "\r"))
        assert shown in {cell, f"'{cell}"}


def test_csv_has_a_head_a_line_for_each_row_and_the_head_of_the_chain():
    audit = MemoryAudit()
    audit.append(replace(ROW, why="=HYPERLINK(0)"))
    head, row, last = csv.reader(exported(audit.rows(), audit.head, ExportFormat.CSV))
    assert dict(zip(head, row, strict=True))["why"] == "'=HYPERLINK(0)"
    assert dict(zip(head, row, strict=True))["time"] == "2026-09-21T14:13:20.000+00:00"
    assert last[:2] == ["head 1", audit.head()[1]]


@for_each(
    ("text", "at_s"),
    [
        ("30m", NOW_S - 1800),
        ("24h", NOW_S - 86_400),
        ("1.5d", NOW_S - 129_600),
        ("2w", NOW_S - 1_209_600),
        ("1970-01-02", 86_400.0),
        ("1970-01-01T01:00", 3600.0),
        ("1970-01-01T01:00+01:00", 0.0),
    ],
)
def test_a_moment_is_an_age_or_a_date(text, at_s):
    assert parse_since(text, NOW_S) == at_s


@for_each("text", ["", "soon", "24", "-1h", "1970-13-01"])
def test_what_is_neither_is_refused_with_what_would_be(text, error_words):
    with error_words(InvalidValueError):
        parse_since(text, NOW_S)
