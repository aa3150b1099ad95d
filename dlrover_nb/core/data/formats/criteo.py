"""Criteo's click logs as they are published: tab-separated text without a header.

Each line is label, 13 integers I1..I13, 26 categories C1..C26 in hexadecimal; an empty field is missing. Text
has no index, so one scan records where every `STRIDE`-th line begins (about a GB per second): a range of rows
is then one seek, one read and one parse. Converting the file first would be faster to read but needs its size
in disk again, and an unrequested step.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dlrover_nb.core.data.kinds import Kind
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import NoReturn

NUMERIC = tuple(f"I{i}" for i in range(1, 14))
CATEGORICAL = tuple(f"C{i}" for i in range(1, 27))
COLUMNS = ("label", *NUMERIC, *CATEGORICAL)
STRIDE = 1024  # lines between two recorded offsets
_CHUNK_BYTES = 8 << 20
_GZIP = b"\x1f\x8b"
_TYPES = {
    "label": pa.float64(),
    **dict.fromkeys(NUMERIC, pa.float64()),
    **dict.fromkeys(CATEGORICAL, pa.binary()),
}


class CriteoSource:
    """A plain file of Criteo lines.

    Parameters
    ----------
    path
        The file.
    """

    kinds = (
        {"label": Kind.NUMERIC}
        | dict.fromkeys(NUMERIC, Kind.NUMERIC)
        | dict.fromkeys(CATEGORICAL, Kind.CATEGORICAL)
    )

    types = _TYPES

    def __init__(self, path: Path) -> None:
        self._path = path
        self._n_byte = path.stat().st_size
        self._starts, self.n_row = _scan(path)

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        if start == stop:
            return pa.schema([(name, _TYPES[name]) for name in columns]).empty_table()
        text = self._lines(start, stop)
        try:
            return pacsv.read_csv(
                io.BytesIO(text),
                read_options=pacsv.ReadOptions(
                    column_names=COLUMNS, use_threads=False, block_size=len(text) + 1
                ),
                parse_options=pacsv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
                convert_options=pacsv.ConvertOptions(
                    column_types=_TYPES,
                    include_columns=list(columns),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            self._blame(text, start, error)

    def _lines(self, start: int, stop: int) -> bytes:
        """Return the text of lines [start, stop)."""
        first, end = start // STRIDE, -(-stop // STRIDE)
        begin = int(self._starts[first]) if first < len(self._starts) else self._n_byte
        until = int(self._starts[end]) if end < len(self._starts) else self._n_byte
        with self._path.open("rb") as file:
            file.seek(begin)
            text = file.read(until - begin)
        breaks = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
        low, high = start - first * STRIDE, stop - first * STRIDE
        cut = slice(
            int(breaks[low - 1]) + 1 if low else 0, int(breaks[high - 1]) if high <= len(breaks) else None
        )
        return text[cut]

    def _blame(self, text: bytes, first_line: int, error: Exception) -> NoReturn:
        """Raise an error that names the line at fault."""
        for number, line in enumerate(text.split(b"\n"), first_line + 1):
            fields = line.rstrip(b"\r").split(b"\t")
            if len(fields) != len(COLUMNS):
                raise InvalidValueError(
                    f"line {number} of {self._path} has {len(fields)} tab-separated fields, "
                    f"expected {len(COLUMNS)} (label, I1..I13, C1..C26); repair or remove the line"
                ) from error
            for name, field in zip(COLUMNS[:14], fields, strict=False):
                if field and not _is_number(field):
                    raise InvalidValueError(
                        f"line {number} of {self._path}: {name} must be a number, got {_shown(field)}; "
                        "repair or remove the line"
                    ) from error
        raise InvalidValueError(f"cannot parse {self._path} near line {first_line + 1}: {error}") from error


def is_criteo(path: Path) -> bool:
    """Whether a file begins with a line of Criteo's logs: 40 fields, of which the first 14 are no names."""
    with path.open("rb") as file:
        fields = file.readline(_CHUNK_BYTES).rstrip(b"\r\n").split(b"\t")
    return len(fields) == len(COLUMNS) and all(not field or _is_number(field) for field in fields[:14])


def _scan(path: Path) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    """Return where each `STRIDE`-th line starts, and the number of lines."""
    ends, n_line, at, last = [np.zeros(1, np.int64)], 0, 0, b"\n"
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            if at == 0 and chunk.startswith(_GZIP):
                raise InvalidValueError(
                    f"{path} is gzip-compressed, expected plain text; unpack it with gunzip first"
                )
            breaks = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
            skip = -(n_line + 1) % STRIDE  # the break that ends line number k*STRIDE starts the next place
            ends.append(breaks[skip::STRIDE] + at + 1)
            n_line += len(breaks)
            at, last = at + len(chunk), chunk[-1:]
    return np.concatenate(ends), n_line + (last != b"\n")


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _shown(field: bytes) -> str:
    return repr(field[:40].decode("utf-8", "replace"))
