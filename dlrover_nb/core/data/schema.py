"""Describe the data that a job takes, from few of its rows, and name what looks like a mistake.

Looked at are the first rows, which `make_features` read already, and rows spread evenly behind them where a
format reads those cheaply: of a Parquet file the heads of some row groups. Nothing is read whole, so 100 GB
take no longer than one. A user's own object and formats of packages give their first rows alone, as seeking
may be slow there.

The warnings are about columns that were chosen by their type; what the user named is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlrover_nb.core.data.columns import aligned
from dlrover_nb.core.data.encode import labels_of
from dlrover_nb.core.data.features import read_features
from dlrover_nb.core.data.files import FilesSource
from dlrover_nb.core.data.kinds import Kind, is_text
from dlrover_nb.core.data.parquet import ParquetSource
from dlrover_nb.core.data.partitions import values_of, with_partitions
from dlrover_nb.core.data.source import open_source
from dlrover_nb.core.errors import shown
from dlrover_nb.core.structs.schema import ColumnSchema, DataSchema, Use

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.data.files import OneFile
    from dlrover_nb.core.data.source import Source
    from dlrover_nb.core.structs.features import FeatureSpec
    from dlrover_nb.core.structs.job import DataSpec, ModelSpec

N_PLACE, N_ROW = 8, 512  # spread rows: so many places, and rows at each
N_ENOUGH = 1000  # rows from which distinct values say something
NEARLY = 0.95
RARE = 0.001
MOST_SUGGESTED = 40  # columns: a longer list is not for reading
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ID_WORDS = {"id", "ids", "uid", "uuid", "code", "zip", "zipcode", "postcode", "hash", "key", "sku"}
_TIME_WORDS = {"time", "timestamp", "date", "datetime", "ts", "at", "when"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{4}.*")
_LOCAL = re.compile(  # numbers as people write them: 12,50 or 1.234,5 or 12.5% or $3
    r"[-+]?(?P<before>[$€£¥]\s?)?(?P<digits>\d{1,3}(?:[.,'\s]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)"
    r"(?P<behind>\s?(?:%|[$€£¥]|EUR|USD|GBP))?"
)
_PARTS = "exclude it, or derive hour and weekday from it"
_EPOCH_S = (9.4e8, 2.2e9)  # 1999 to 2039
LONG_TEXT = 1000  # bytes: no id is that long
_N_TEXT = 20  # values of a text column that are looked at


@dataclass(frozen=True)
class _Column:
    """The values of one column that were looked at."""

    name: str
    values: pa.ChunkedArray

    @property
    def words(self) -> list[str]:
        return [word.lower() for word in _WORDS.findall(self.name)]

    @cached_property
    def absent(self) -> int:
        return int(pc.sum(pc.is_null(self.values, nan_is_null=True)).as_py() or 0)

    @cached_property
    def n_distinct(self) -> int:
        return len(pc.unique(pc.drop_null(self.values)))

    @property
    def n_there(self) -> int:
        return len(self.values) - self.absent

    @cached_property
    def whole(self) -> tuple[float, float] | None:
        """Return the bounds of whole numbers; None for all other values."""
        kind = self.values.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)) or not self.n_there:
            return None
        x = np.asarray(pc.drop_null(self.values).cast(pa.float64(), safe=False).combine_chunks())
        x = x[~np.isnan(x)]
        return (float(x.min()), float(x.max())) if np.array_equal(x, np.floor(x)) else None

    @property
    def is_time(self) -> bool:
        if pa.types.is_temporal(self.values.type):
            return True
        if self.whole is None or not _TIME_WORDS & set(self.words):
            return False
        low, high = self.whole
        return any(_EPOCH_S[0] * unit <= low and high <= _EPOCH_S[1] * unit for unit in (1, 1e3, 1e6, 1e9))

    @property
    def is_time_as_text(self) -> bool:
        if not pa.types.is_string(_plain(self.values.type)):
            return False
        texts = [each.as_py() for each in pc.drop_null(self.values)[:_N_TEXT]]
        return bool(texts) and all(_DATE.fullmatch(text) for text in texts)

    @cached_property
    def local_number(self) -> str:
        """Return a value of a column of numbers that are written in a local form; empty: it is none."""
        if not is_text(_plain(self.values.type)):
            return ""
        texts = [each.as_py().strip() for each in pc.unique(pc.drop_null(self.values))[:_N_TEXT]]
        numbers = [_LOCAL.fullmatch(text) for text in texts]
        odd = [m[0] for m in numbers if m and (m["before"] or m["behind"] or not _is_plain(m["digits"]))]
        return odd[0] if odd and all(numbers) else ""

    @property
    def is_named_as_ids(self) -> bool:
        return self.whole is not None and self.n_distinct > 2 and bool(_ID_WORDS & set(self.words[-1:]))

    @property
    def counts(self) -> bool:
        """Whether each row's number is that of the row before and one."""
        if self.whole is None or self.absent or self.n_there < N_ENOUGH:
            return False
        x = np.asarray(self.values.chunk(0).cast(pa.float64(), safe=False))
        return len(x) > 2 and bool((np.diff(x) == 1).all())

    @property
    def is_ever_new(self) -> bool:
        """Whether nearly every row has another whole number."""
        if self.whole is None or self.n_there < N_ENOUGH or _TIME_WORDS & set(self.words):
            return False
        return self.n_distinct > NEARLY * self.n_there


def take_data(
    data: DataSpec, model: ModelSpec, *, folder: Path | None = None
) -> tuple[FeatureSpec, DataSchema]:
    """Return the features that `make_features` makes of the data, and its description; raises as it does."""
    source = open_source(data, folder)
    features, first = read_features(source, data, model)
    return features, describe(source, data, features, first)


def describe(source: Source, data: DataSpec, features: FeatureSpec, first: pa.Table) -> DataSchema:
    """Describe what a job takes.

    Parameters
    ----------
    first
        The first rows of `source`, with the columns of `features`.

    Raises
    ------
    InvalidValueError
        When one of the spread rows cannot be read, or has a label other than 0 and 1.
    """
    spread = tuple(_spread(source, first.num_rows, tuple(first.column_names)))
    labels = np.concatenate(
        [labels_of(t.column(data.label), data.label, at) for at, t in [(0, first), *spread]]
    )
    columns = [_column(name, [first, *(table for _, table in spread)]) for name in first.column_names]
    uses = {c.name: Use.NUMERIC for c in features.numeric}
    uses |= {c.name: Use.CATEGORICAL for c in features.categorical} | {data.label: Use.LABEL}
    ordered = sorted(columns, key=lambda column: uses[column.name] is not Use.LABEL)
    positive = float(labels.mean()) if len(labels) else float("nan")
    flagged = _flagged(ordered, uses, data)
    return DataSchema(
        columns=tuple(_told(column, uses[column.name]) for column in ordered),
        unused=tuple(name for name in source.kinds if name not in uses),
        n_row=source.n_row,
        n_train=features.n_train,
        n_eval=features.n_eval,
        n_first=first.num_rows,
        n_spread=sum(table.num_rows for _, table in spread),
        positive=positive,
        warnings=(
            *_of_label(data.label, positive),
            *(text for *_, text in flagged),
            *map(_long_text, filter(_is_long, columns)),
            *_left_out(source, data),
        ),
        suggested=_suggested(ordered, uses, {name: use for name, use, _ in flagged}),
    )


def _column(name: str, tables: list[pa.Table]) -> _Column:
    chunks = [chunk for table in tables for chunk in table.column(name).chunks]
    return _Column(name, pa.chunked_array(chunks, tables[0].schema.field(name).type))


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


def _told(column: _Column, use: Use) -> ColumnSchema:
    kind = str(_plain(column.values.type))
    return ColumnSchema(column.name, use, kind, column.absent / max(len(column.values), 1), column.n_distinct)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values: that of a dictionary is about how they are stored."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_plain(digits: str) -> bool:
    return digits.replace(".", "", 1).isdigit()


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
    names = ", ".join(map(shown, left[:_N_TEXT])) + (", …" if len(left) > _N_TEXT else "")
    what = f"column{'s' * (len(left) > 1)} {names}"
    text = f"{what} left out: no model takes lists, structures or columns without a type; "
    return (f"{text}make numbers or text of them, or exclude them",)


def _is_long(column: _Column) -> bool:
    kind = _plain(column.values.type)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return (
        is_text and (pc.max(pc.binary_length(pc.unique(column.values).cast(kind))).as_py() or 0) > LONG_TEXT
    )


def _long_text(column: _Column) -> str:
    return (
        f"column {shown(column.name)} holds texts of more than {LONG_TEXT} letters, each an id of its own; "
        "exclude it, or take its words apart"
    )


def _flagged(
    columns: list[_Column], uses: dict[str, Use], data: DataSpec
) -> list[tuple[str, Use | None, str]]:
    """Return (column, better use, warning); the better use is None where leaving it out is."""
    named = {data.label, *data.numeric, *data.categorical}
    found = []
    for column in columns:
        if column.name in named:
            continue
        better = _judged(column, uses[column.name])
        if better is not None:
            found.append((column.name, *better))
    return found


def _judged(column: _Column, use: Use) -> tuple[Use | None, str] | None:
    """Return the better use of a column and why; None where its use seems right."""
    name = repr(column.name)
    if not column.n_there:
        return None, f"column {name} has no value in the rows that were looked at; exclude it"
    if use is Use.CATEGORICAL:
        text = _judged_text(column, name)
        return (None, text) if text else None
    if column.is_time:
        return None, f"column {name} holds times, taken as one number; {_PARTS}"
    if column.counts:
        return None, f"column {name} counts the rows, taken as a number; exclude it"
    if column.is_named_as_ids or column.is_ever_new:
        why = "" if column.is_named_as_ids else ", another in nearly every row"
        return Use.CATEGORICAL, f"column {name} looks like ids{why}, taken as numbers; name it in categorical"
    return None


def _judged_text(column: _Column, name: str) -> str | None:
    if column.is_time_as_text:
        return f"column {name} holds times as text, each an id of its own; {_PARTS}"
    if not column.local_number:
        return None
    what = f"numbers written as {shown(column.local_number)}, each text an id of its own"
    advice = "write them with digits and a point alone (1234.5), or name it in categorical"
    return f"column {name} holds {what}; {advice}"


def _suggested(
    columns: list[_Column], uses: dict[str, Use], better: dict[str, Use | None]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not better or len(columns) > MOST_SUGGESTED:
        return ()
    final = {column.name: better.get(column.name, uses[column.name]) for column in columns}
    groups = {"numeric": Use.NUMERIC, "categorical": Use.CATEGORICAL}
    return tuple(
        (key, tuple(n for n, use in final.items() if use is wanted)) for key, wanted in groups.items()
    )
