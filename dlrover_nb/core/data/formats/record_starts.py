"""Where the records of a delimited text file begin, so that a range of rows is one seek and one read.

Text has no index. One scan of the file records the offset of every `STRIDE`-th record, at about a GB per
second; each node scans for itself. A record ends at a line's end outside of quotation marks: where the number
of marks before it is even, as a mark within a value is written twice. Blank lines are no records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

STRIDE = 1024  # records between two recorded offsets
_CHUNK_BYTES = 8 << 20
_LINE_BYTES = 8 << 20  # read behind a chunk to reach a line's end
_BREAK, _RETURN, _QUOTE = b'\n\r"'


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """Offsets of the records of one file.

    Parameters
    ----------
    starts
        int64 array: where every `STRIDE`-th record begins, in bytes.
    n_record
        Number of records.
    n_byte
        Where the last record ends.
    ends_quoted
        Whether the file ends within quotation marks, so that the number of records is wrong.
    """

    starts: NDArray[np.int64]
    n_record: int
    n_byte: int
    ends_quoted: bool

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """Return the bytes [begin, end) of strides [first, stop)."""
        return self._start(first), self._start(stop)

    def _start(self, stride: int) -> int:
        return int(self.starts[stride]) if stride < len(self.starts) else self.n_byte


def index_records(path: Path, begin: int) -> RecordIndex:
    """Scan a file from byte `begin` on."""
    starts: list[NDArray[np.int64]] = []
    n_record, n_quote, at, start, n_byte = 0, 0, begin, begin, path.stat().st_size
    with path.open("rb") as file:
        file.seek(begin)
        while chunk := _whole_lines(file):
            content = np.frombuffer(chunk, np.uint8)
            ends, n_quote = _ends(content, n_quote)
            if at + len(chunk) == n_byte and content[-1] != _BREAK and not n_quote % 2:
                ends = np.append(ends, len(chunk))
            begins = np.append(start - at, ends + 1)
            full = begins[:-1][~_is_blank(content, begins[:-1], ends)]
            starts.append(full[-n_record % STRIDE :: STRIDE] + at)
            n_record += len(full)
            start, at = int(begins[-1]) + at, at + len(chunk)
    return RecordIndex(np.concatenate([np.zeros(0, np.int64), *starts]), n_record, at, n_quote % 2 == 1)


def lines_before(path: Path, offset: int) -> int:
    """Return how many lines end before a byte of a file; only errors ask for it."""
    n_line = 0
    with path.open("rb") as file:
        while offset > 0 and (chunk := file.read(min(offset, _CHUNK_BYTES))):
            n_line += chunk.count(b"\n")
            offset -= len(chunk)
    return n_line


def _whole_lines(file: BinaryIO) -> bytes:
    chunk = file.read(_CHUNK_BYTES)
    return chunk + file.readline(_LINE_BYTES) if chunk and chunk[-1] != _BREAK else chunk


def _ends(content: NDArray[np.uint8], n_quote: int) -> tuple[NDArray[np.int64], int]:
    """Return the line ends outside of quotation marks, and the number of marks so far."""
    breaks = np.flatnonzero(content == _BREAK)
    quotes = np.flatnonzero(content == _QUOTE)
    if not len(quotes) and not n_quote % 2:
        return breaks, n_quote
    n_before = np.searchsorted(quotes, breaks) + n_quote
    return breaks[n_before % 2 == 0], n_quote + len(quotes)


def _is_blank(
    content: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    lengths = ends - begins
    first = content[np.clip(begins, 0, len(content) - 1)]
    return np.asarray((lengths == 0) | ((lengths == 1) & (first == _RETURN)))
