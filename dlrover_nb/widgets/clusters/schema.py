"""The schema that a submit took, as blocks of a view."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.views.schema import Use
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Facts, Paragraph, Table, Tone

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.schema import ColumnSchema, DataSchema
    from dlrover_nb.widgets.blocks import Block

N_COLUMN = 20  # rows of the table; a wide file would fill the screen
N_UNUSED = 8


def schema_blocks(schema: DataSchema) -> tuple[Block, ...]:
    """Return warnings first, then rows, label and columns."""
    texts = (*schema.guesses, *schema.warnings)
    warnings = [Paragraph(f"{text[0].upper()}{text[1:]}.", Tone.WARNING) for text in texts]
    lines = tuple(f"{key}: [{', '.join(names)}]" for key, names in schema.suggested)
    hint = [Paragraph("As keys of data:", Tone.HINT, lines)] if lines else []
    return (*warnings, *hint, Facts(_facts(schema)), _table(schema))


def _facts(schema: DataSchema) -> tuple[tuple[str, str], ...]:
    uses = [column.use for column in schema.columns]
    label = next(column.name for column in schema.columns if column.use is Use.LABEL)
    n_id, n_list = uses.count(Use.CATEGORICAL), uses.count(Use.SEQUENCE)
    lists = f", {n_list} of lists of ids" if n_list else ""
    share = units.MISSING if math.isnan(schema.positive) else units.percent(schema.positive, 1)
    return (
        ("rows", _rows(schema)),
        ("label", f"{label}: {share} are 1"),
        (
            "columns",
            f"{uses.count(Use.NUMERIC)} of numbers, {n_id} of ids{lists}{_unused(schema)}",
        ),
        ("looked at", _sample(schema)),
    )


def _rows(schema: DataSchema) -> str:
    if schema.n_row is None:
        return "a stream, each trained once"
    return f"{schema.n_row:,}: {schema.n_train:,} to train, {schema.n_eval:,} to evaluate"


def _unused(schema: DataSchema) -> str:
    if not schema.unused:
        return ""
    n_more = len(schema.unused) - N_UNUSED
    more = f" and {n_more} more" if n_more > 0 else ""
    return f"; not used: {', '.join(schema.unused[:N_UNUSED])}{more}"


def _sample(schema: DataSchema) -> str:
    if schema.n_first == schema.n_row:
        return "all rows"
    spread = f", and {schema.n_spread:,} spread behind them" if schema.n_spread else ""
    return f"the first {schema.n_first:,} rows{spread}"


def _table(schema: DataSchema) -> Table:
    rows = tuple(_row(column) for column in schema.columns[:N_COLUMN])
    n_more = len(schema.columns) - N_COLUMN
    note = f"and {n_more} more columns" if n_more > 0 else ""
    return Table("Columns", ("column", "used as", "type", "missing", "distinct"), rows, note)


def _row(column: ColumnSchema) -> tuple[str, ...]:
    missing = units.percent(column.missing, 1) if column.missing else "none"
    return column.name, column.use.value, column.type, missing, f"{column.n_distinct:,}"
