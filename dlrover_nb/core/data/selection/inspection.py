"""Describe the data that a job takes, from few of its rows, and name what looks like a mistake.

Looked at are the first rows, which `make_features` read already, and rows spread evenly behind them where a
format reads those cheaply: of a Parquet file the heads of some row groups. Nothing is read whole, so 100 GB
take no longer than one. A user's own object and formats of packages give their first rows alone, as seeking
may be slow there.

The warnings are about columns that were chosen by their type; what the user named is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.encode import labels_of
from dlrover_nb.core.data.formats.parquet import ParquetSource
from dlrover_nb.core.data.kinds import Kind, is_text, item_type, text_array
from dlrover_nb.core.data.selection.feature_spec import take
from dlrover_nb.core.data.selection.guesses import guess, question, typed
from dlrover_nb.core.data.selection.value_evidence import ColumnValues
from dlrover_nb.core.data.storage.file_set import FilesSource
from dlrover_nb.core.data.storage.partitions import values_of, with_partitions
from dlrover_nb.core.data.types.agreement import aligned, read_types, value_type
from dlrover_nb.core.data.types.number_text import are_numbers, forms_of, keys_of
from dlrover_nb.core.data.types.trained_types import numbers_as_trained
from dlrover_nb.core.structs.data.column_types import ColumnType, column_types
from dlrover_nb.core.structs.views.schema import ColumnSchema, DataSchema, Use

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.data.selection.feature_spec import Selection
    from dlrover_nb.core.data.source import Source
    from dlrover_nb.core.data.storage.file_set import OneFile
    from dlrover_nb.core.structs.data.column_types import WrittenNumbers
    from dlrover_nb.core.structs.data.features import FeatureSpec, SequenceSpec
    from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec

N_PLACE, N_ROW = 8, 512  # spread rows: so many places, and rows at each
RARE = 0.001
LONG_TEXT = 1000  # bytes: no id is that long
_N_NAMED = 20  # columns that one warning names


def take_data(
    data: DataSpec, model: ModelSpec, *, folder: Path | None = None, trained: FeatureSpec | None = None
) -> tuple[FeatureSpec, DataSchema]:
    """Return the features that `make_features` makes of the data, and its description; raises as it does."""
    selection = take(data, model, folder=folder, trained=trained)
    return selection.features, describe(selection, data)


def describe(selection: Selection, data: DataSpec) -> DataSchema:
    """Describe what a job takes.

    Raises
    ------
    InvalidValueError
        When one of the spread rows cannot be read, or has a label other than 0 and 1.
    """
    source, features, first = selection.source, selection.features, selection.sample
    spread = tuple(_spread(source, first.num_rows, tuple(first.column_names)))
    labels = np.concatenate(
        [labels_of(t.column(data.label), data.label, at) for at, t in [(0, first), *spread]]
    )
    _check_numbers(spread, features)
    sequences = {column.name: column.sequence for column in features.categorical}
    columns = [
        _column(name, [first, *(table for _, table in spread)], sequences.get(name))
        for name in first.column_names
    ]
    uses = {c.name: Use.NUMERIC for c in features.numeric} | {data.label: Use.LABEL}
    uses |= {c.name: Use.SEQUENCE if c.sequence else Use.CATEGORICAL for c in features.categorical}
    ordered = sorted(columns, key=lambda column: uses[column.name] is not Use.LABEL)
    positive = float(labels.mean()) if len(labels) else float("nan")
    decided = {data.label, *data.numeric, *data.ids, *column_types(data.types)}
    if selection.choice.is_of_trained:
        decided = set(uses)
    judged = [_judged(c, uses[c.name], source.n_row, data.numbers) for c in ordered if c.name not in decided]
    doubts = [each for each in judged if each is not None]
    return DataSchema(
        columns=tuple(_described(column, uses[column.name]) for column in ordered),
        unused=tuple(name for name in source.kinds if name not in uses),
        n_row=source.n_row,
        n_train=features.n_train,
        n_eval=features.n_eval,
        n_first=first.num_rows,
        n_spread=sum(table.num_rows for _, table in spread),
        positive=positive,
        warnings=(
            *_of_label(data.label, positive),
            *(each.text for each in doubts),
            *map(_infinite, filter(lambda column: column.n_infinite, columns)),
            *map(_long_text, filter(_is_long, columns)),
            *_left_out(source, data),
            *_not_named(source, data),
            *_not_trained(source, data, tuple(uses), is_of_trained=selection.choice.is_of_trained),
        ),
        suggested=_suggested(doubts, data),
        guesses=tuple(each.followed for each in selection.choice.guesses),
    )


def _check_numbers(spread: tuple[tuple[int, pa.Table], ...], features: FeatureSpec) -> None:
    """Refuse text that is no number in the form of its column."""
    types = read_types(features.trained_types)
    for at, table in spread:
        for number in features.numeric:
            column = table.column(number.name)
            if is_text(value_type(column.type)):
                numbers_as_trained(column, types[number.name], number, at)


def _column(name: str, tables: list[pa.Table], sequence: SequenceSpec | None) -> ColumnValues:
    chunks = [chunk for table in tables for chunk in table.column(name).chunks]
    return ColumnValues(name, pa.chunked_array(chunks, tables[0].schema.field(name).type), sequence)


def _spread(source: Source, n_first: int, columns: tuple[str, ...]) -> Iterator[tuple[int, pa.Table]]:
    """Yield (first row, rows) of places behind the first rows."""
    if isinstance(source, FilesSource):
        n_place = -(-N_PLACE // max(1, min(N_PLACE, len(source.files))))
        for at, file, name in source.some(N_PLACE, n_first):
            within = tuple(column for column in columns if column in file.types)
            for start, table in _places(file, n_place, max(n_first - at, 0), within):
                whole = with_partitions(table, values_of(name), columns)
                yield at + start, aligned(whole, source.types, "a file of the data")
    elif isinstance(source, ParquetSource):
        yield from source.heads(N_PLACE, N_ROW, columns, after=n_first)


def _places(
    file: OneFile, n_place: int, after: int, columns: tuple[str, ...]
) -> Iterator[tuple[int, pa.Table]]:
    """Yield (first row, rows) of some places of a file, behind row `after`."""
    if isinstance(file, ParquetSource):
        yield from file.heads(n_place, N_ROW, columns, after=after)
    elif file.n_row > after + n_place * N_ROW:
        for start in np.linspace(after, file.n_row - N_ROW, n_place).astype(int).tolist():
            yield start, file.read(start, start + N_ROW, columns)


def _described(column: ColumnValues, use: Use) -> ColumnSchema:
    share = column.absent / max(len(column.values), 1)
    return ColumnSchema(column.name, use, str(item_type(column.type)), share, column.n_distinct)


def _of_label(label: str, positive: float) -> tuple[str, ...]:
    if RARE <= positive <= 1 - RARE:
        return ()
    only = f"{'0' if positive < RARE else '1'} in {'all' if positive in {0.0, 1.0} else 'nearly all'}"
    return (f"label column {label!r} is {only} rows that were looked at; check it, or shuffle the rows",)


def _left_out(source: Source, data: DataSpec) -> tuple[str, ...]:
    """Return what to say of columns that the user did not exclude and no model takes."""
    if data.numeric or data.categorical:
        return ()
    left = [n for n, kind in source.kinds.items() if kind is Kind.OTHER and n not in data.exclude]
    if not left:
        return ()
    what = "structures, lists of fractions or columns without a type"
    advice = "turn them into numbers or text, or exclude them"
    text = f"{_columns(left)} left out: no model can use {what}; {advice}"
    return (text,)


def _not_named(source: Source, data: DataSpec) -> tuple[str, ...]:
    """Say which columns are not used because one of two keys names all that are."""
    if bool(data.numeric) == bool(data.categorical):
        return ()
    used = {data.label, *data.numeric, *data.ids, *data.exclude}
    left = [name for name in _usable(source) if name not in used]
    if not left:
        return ()
    key = "numeric" if data.numeric else "categorical"
    kind = ColumnType.NUMBER if data.numeric else ColumnType.CATEGORY
    alone = typed((*data.numeric, *data.categorical)[0], kind)
    text = f"{_columns(left)} not used: {key} names all columns to use; {alone} types a column and leaves "
    return (f"{text}the others as they are",)


def _not_trained(
    source: Source, data: DataSpec, used: tuple[str, ...], *, is_of_trained: bool
) -> tuple[str, ...]:
    """Say which columns are not used because the job before did not."""
    left = [name for name in _usable(source) if is_of_trained and name not in {*used, *data.exclude}]
    if not left:
        return ()
    text = f"{_columns(left)} not used: the parameters that the job begins with were trained without"
    return (f"{text}; exclude them, or leave start_from out",)


def _usable(source: Source) -> list[str]:
    return [name for name, kind in source.kinds.items() if kind is not Kind.OTHER]


def _columns(names: list[str]) -> str:
    few = ", ".join(map(shown, names[:_N_NAMED])) + (", …" if len(names) > _N_NAMED else "")
    return f"column{'s' * (len(names) > 1)} {few}"


def _is_long(column: ColumnValues) -> bool:
    if column.sequence is not None:
        return False
    kind = column.type
    longest = pc.max(pc.binary_length(pc.unique(column.values).cast(kind))) if is_text(kind) else None
    return longest is not None and (longest.as_py() or 0) > LONG_TEXT


def _long_text(column: ColumnValues) -> str:
    return (
        f"column {shown(column.name)} holds texts of more than {LONG_TEXT} letters, each an id of its own; "
        "exclude it, or take its words apart"
    )


def _infinite(column: ColumnValues) -> str:
    return (
        f"column {shown(column.name)} holds infinite numbers in {column.n_infinite:,} of the rows that were "
        "looked at, which are taken for missing; write a number there, or leave them empty"
    )


@dataclass(frozen=True, slots=True)
class _Doubt:
    """What looks like a mistake in a column; `better` is its use otherwise, None: none or not known."""

    column: str
    text: str
    better: Use | None = None
    is_superfluous: bool = False


def _judged(column: ColumnValues, use: Use, n_row: int | None, numbers: WrittenNumbers) -> _Doubt | None:
    """Return what looks like a mistake in the use of a column; None where it seems right."""
    name = column.name
    if not column.n_there:
        text = f"column {name!r} has no value in the rows that were looked at; exclude it"
        return _Doubt(name, text, is_superfluous=True)
    doubt = guess(column, use, n_row) or question(column, use, n_row)
    if doubt is not None:
        return _Doubt(name, doubt.advice, doubt.use, is_superfluous=doubt.use is None)
    if use is Use.CATEGORICAL and column.list_as_text:
        what = f"texts such as {shown(column.list_as_text)}, each an id of its own"
        advice = "name it in data.sequences if these are lists of ids"
        return _Doubt(name, f"column {name!r} holds {what}; {advice}")
    if use is Use.CATEGORICAL and column.local_number:
        return _Doubt(name, _local(column, numbers))
    if use is Use.CATEGORICAL and column.number_mark is not None:
        what = f"numbers and {shown(column.number_mark)}, each text an id of its own"
        advice = f"{typed(name, ColumnType.NUMBER)} reads numbers, and the others as missing"
        return _Doubt(name, f"column {name!r} holds {what}; {advice}")
    return None


def _local(column: ColumnValues, numbers: WrittenNumbers) -> str:
    what = f"numbers written as {shown(column.local_number)}, each text an id of its own"
    keys = "" if are_numbers(text_array(column.texts), numbers) else keys_of(forms_of(column.texts))
    number, ids = typed(column.name, ColumnType.NUMBER), typed(column.name, ColumnType.CATEGORY)
    return (
        f"column {column.name!r} holds {what}; {number}{' with ' * bool(keys)}{keys} reads them, "
        f"{ids} keeps ids"
    )


def _suggested(doubts: list[_Doubt], data: DataSpec) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the keys of ``data`` that follow the warnings, with what they hold already."""
    ids = [f"{each.column}={ColumnType.CATEGORY}" for each in doubts if each.better is Use.CATEGORICAL]
    others = [each.column for each in doubts if each.is_superfluous]
    groups = {"types": (ids, data.types), "exclude": (others, data.exclude)}
    return tuple((key, (*before, *more)) for key, (more, before) in groups.items() if more)
