"""Rows in CSV and TSV files: text with a header, one record to a line.

A file is read where it lies, by ranges of bytes (`core.data.formats.record_starts`): a copy as Parquet would
be faster to read but needs the disk again, and nodes on other machines could not read it. Types are those of
the whole file as far as a sample knows them: its first rows and rows spread evenly behind them, so every node
that opens the same file takes the same. Numbers are numbers, all else is text. Columns that are named as ids
are text whatever is in them: what a sample is taken for must not change an id
(`core.data.types.trained_types`, which also says how the same ids in DataFrames are read).
"""

from __future__ import annotations

import io
import re
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dlrover_nb.core.data.formats.header import read_header, records
from dlrover_nb.core.data.formats.record_starts import STRIDE, index_records, lines_before
from dlrover_nb.core.data.kinds import MISSING_TEXTS, kind_of
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

FIRST, SPREAD = 8, 16  # strides of the sample: at the beginning, and evenly behind them
_CONVERSION = re.compile(r"In CSV column #(?P<column>\d+): .*?invalid value '(?P<value>.*)'", re.DOTALL)


class DelimitedSource:
    """A file of delimited text.

    Parameters
    ----------
    path
        The file.
    separator
        What separates its fields; None: found in its header.
    ids
        Columns that are used as ids: text, as it is written.
    types
        Types of the columns that are read; None: those of a sample.
    """

    def __init__(
        self,
        path: Path,
        separator: str | None = None,
        *,
        ids: Collection[str] = (),
        types: Mapping[str, pa.DataType] | None = None,
    ) -> None:
        self._path = path
        self._header = read_header(path, separator)
        self._index = index_records(path, self._header.end)
        self._types: dict[str, pa.DataType] = {}
        self.n_row = self._index.n_record
        if self._index.ends_quoted:
            self._blame_rest()
        self.use(narrowed([self], ids) if types is None else as_written(types, ids))

    def use(self, types: Mapping[str, pa.DataType]) -> None:
        """Read the columns with these types from now on."""
        self.types = self._types = {n: kind for n, kind in types.items() if n in self._header.names}
        self.kinds = {name: kind_of(kind) for name, kind in self.types.items()}

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        types = {name: self._types[name] for name in columns}
        if start == stop:
            return pa.schema(list(types.items())).empty_table()
        first, end = start // STRIDE, -(-stop // STRIDE)
        return self._parsed(first, end, types).slice(start - first * STRIDE, stop - start)

    def _parsed(self, first: int, stop: int, types: Mapping[str, pa.DataType]) -> pa.Table:
        """Return strides [first, stop); the columns of `types`, or all with their inferred types."""
        begin, end = self._index.span(first, stop)
        with self._path.open("rb") as file:
            file.seek(begin)
            text = file.read(end - begin)
        try:
            table = pacsv.read_csv(
                io.BytesIO(text),
                read_options=pacsv.ReadOptions(
                    column_names=self._header.names, use_threads=False, block_size=len(text) + 1
                ),
                parse_options=pacsv.ParseOptions(delimiter=self._header.separator, newlines_in_values=True),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict(types),
                    include_columns=list(types),
                    null_values=MISSING_TEXTS,
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            self._blame(text, begin, error)
        if table.num_rows != min(stop * STRIDE, self.n_row) - first * STRIDE:
            self._blame(text, begin, None)
        return table

    # types

    @cached_property
    def found(self) -> dict[str, tuple[pa.DataType, ...]]:
        """The types that each column has in the sampled rows."""
        schemas = [self._parsed(at, at + 1, {}).schema for at in self._sampled()]
        return {name: tuple({schema.field(name).type for schema in schemas}) for name in self._header.names}

    def _sampled(self) -> list[int]:
        n_stride = len(self._index.starts)
        spread = np.linspace(FIRST, n_stride - 1, SPREAD if n_stride > FIRST else 0).astype(int).tolist()
        return sorted({*range(min(FIRST, n_stride)), *spread})

    # errors

    def _blame(self, text: bytes, begin: int, error: Exception | None) -> NoReturn:
        """Raise an error that names the line at fault."""
        n_before = lines_before(self._path, begin)
        try:
            lines = text.decode()
        except UnicodeDecodeError as wrong:
            line = n_before + text[: wrong.start].count(b"\n") + 1
            raise InvalidValueError(
                f"line {line} of {self._path} is not UTF-8 text; save the file as UTF-8, for example with "
                "iconv -f latin1 -t utf-8"
            ) from wrong
        rows = list(records(lines, self._header.separator, n_before + 1))
        self._blame_length(rows)
        if match := _CONVERSION.search(str(error)):
            self._blame_value(rows, int(match["column"]), match["value"])
        line = next((n for n, fields in rows if any('"' in field for field in fields)), n_before + 1)
        raise InvalidValueError(
            f"cannot read {self._path} at line {line}: {_reason(error)}; put a value with a quotation mark "
            "in quotation marks, and write the mark twice"
        ) from error

    def _blame_rest(self) -> NoReturn:
        """Raise the error of a quotation mark that is never closed, with the line of the first odd record."""
        begin = self._header.end
        with self._path.open("r", encoding="utf-8", errors="replace", newline="") as file:
            file.seek(begin)
            n_before = lines_before(self._path, begin)
            rows = records(file, self._header.separator, n_before + 1)
            n = len(self._header.names)
            line = next((line for line, fields in rows if len(fields) != n or "\n" in fields[-1]), 0)
            if not line:  # a mark amid a field, such as 5" nail, which a reader of records takes as it is
                file.seek(begin)
                line = next((i for i, each in enumerate(file, n_before + 1) if each.count('"') % 2), 1)
        raise InvalidValueError(
            f"{self._path} has a quotation mark that is never closed, near line {line}; close it, or write "
            "a mark within a value twice"
        )

    def _blame_length(self, rows: list[tuple[int, list[str]]]) -> None:
        n = len(self._header.names)
        for line, fields in rows:
            if len(fields) != n:
                other = 1 in {n, len(fields)}
                raise InvalidValueError(
                    f"line {line} of {self._path} has {len(fields)} fields, expected {n} as in the header; "
                    f"repair or remove the line{', or set data.separator' * other}"
                )

    def _blame_value(self, rows: list[tuple[int, list[str]]], column: int, value: str) -> None:
        name = self._header.names[column]
        is_time = name in self._types and pa.types.is_temporal(self._types[name])
        for line, fields in rows:
            if fields[column] == value:
                raise InvalidValueError(
                    f"line {line} of {self._path}: column {name!r} holds {'times' if is_time else 'numbers'} "
                    f"in the rows that its type was taken from, got {value[:40]!r}; repair the line, or "
                    "give the column a type in data.types: category (ids), or number, which reads ? or 5% too"
                )


def narrowed(sources: Sequence[DelimitedSource], ids: Collection[str]) -> dict[str, pa.DataType]:
    """Return the types that the columns of some files are read with, by a sample of all of them.

    Whole numbers may have a fraction in other rows.
    """
    types = {}
    for name in sources[0].found:
        kind = _common([each for source in sources for each in source.found.get(name, ())])
        types[name] = pa.float64() if pa.types.is_integer(kind) else kind
    return as_written(types, ids)


def as_written(types: Mapping[str, pa.DataType], ids: Collection[str]) -> dict[str, pa.DataType]:
    """Return types with which ids are read as text."""
    return {name: pa.string() if name in ids else kind for name, kind in types.items()}


def _common(types: Sequence[pa.DataType]) -> pa.DataType:
    """Return the one type that values of all these can be read as; text where there is no other."""
    kinds = {kind for kind in types if not pa.types.is_null(kind)}
    if len(kinds) == 1:
        (kind,) = kinds
        return pa.string() if pa.types.is_binary(kind) else kind  # bytes that are no UTF-8 are refused
    if kinds and all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return pa.float64()
    if kinds and all(pa.types.is_timestamp(kind) for kind in kinds):
        return pa.timestamp("ns")
    return pa.string()


def _reason(error: Exception | None) -> str:
    return "its quotation marks do not match" if error is None else str(error).strip().splitlines()[0]
