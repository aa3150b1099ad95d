"""The first line of a text file: names of the columns, and what separates the fields.

A separator is looked for outside of quotation marks, as names hold commas too. Where several stand there, it
is the one with which the first records have as many fields as the header. Where that leaves several, only the
file's owner knows, and ``data.separator`` says it. Excel's line ``sep=;`` before the header is obeyed.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.kinds import check_distinct
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SEPARATORS = (",", ";", "\t", "|")  # that are looked for
_HEADER_BYTES = 1 << 20
_N_COMPARED = 20  # records whose fields are counted where several separators are possible
_BOM = b"\xef\xbb\xbf"
_OTHERS = {  # how files begin that are no plain text
    b"\x1f\x8b": ("gzip-compressed", "unpack it with gunzip"),
    b"\xfd7zXZ\x00": ("xz-compressed", "unpack it with unxz, or compress it with gzip, bzip2 or zstd"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it"),
    b"PK\x03\x04": ("a ZIP archive or an Excel file", "save it as CSV"),
    b"\xd0\xcf\x11\xe0": ("an Excel file", "save it as CSV"),
    b"PAR1": ("a Parquet file", "set data.format to parquet"),
    b"ARROW1": ("an Arrow file", "write it as Parquet"),
    b"\x93NUMPY": ("a NumPy file", "set data.format to numpy"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8, for example with iconv -f utf-16 -t utf-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8, for example with iconv -f utf-16 -t utf-8"),
}
_MARKED = (  # and how text begins that has no columns
    (re.compile(rb"\s*<(!doctype|html|\?xml)", re.IGNORECASE), "a web page or XML", "save the data as CSV"),
    (re.compile(rb'\s*(\[\s*)?\{\s*"'), "JSON", "write it as CSV or Parquet"),
)
_QUOTED = re.compile(r'"[^"]*"')
_EXCEL = re.compile(r'"?sep=(.)"?', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Header:
    """The columns of a file, what separates its fields, and the byte where its records begin."""

    names: tuple[str, ...]
    separator: str
    end: int


def read_header(path: Path, separator: str | None) -> Header:
    """Read the names of the columns.

    Parameters
    ----------
    separator
        What separates the fields; None: found in the first lines.

    Raises
    ------
    InvalidValueError
        When the file is no text, its first line does not name columns, or several separators are possible.
    """
    with path.open("rb") as file:
        text = file.read(_HEADER_BYTES)
    _check_plain(text, path)
    end = _header_end(text, len(_BOM) if text.startswith(_BOM) else 0)
    line = _header_line(text[:end], path)
    if excel := _EXCEL.fullmatch(line):
        separator, begin = separator or excel[1], end
        end = _header_end(text, begin)
        line = _header_line(text[begin:end], path)
    _check_line(line, path)
    chosen = separator or _separator(line, text[end:], path)
    try:
        fields = next(csv.reader(io.StringIO(line, newline=""), delimiter=chosen), [])
    except csv.Error as error:
        raise InvalidValueError(
            f"the header of {path} cannot be read ({error}); its first line must name the columns"
        ) from error
    return Header(_checked_names(fields, path), chosen, end)


def records(text: str | io.TextIOBase, separator: str, line: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the line where each record begins, and its fields."""
    lines = io.StringIO(text, newline="") if isinstance(text, str) else text
    reader, before = csv.reader(lines, delimiter=separator), 0
    with contextlib.suppress(csv.Error):  # a cell of more than 128 KiB; the reason is then without its line
        for fields in reader:
            if fields:
                yield line + before, fields
            before = reader.line_num


def _check_plain(text: bytes, path: Path) -> None:
    others = ((what, advice) for begin, (what, advice) in _OTHERS.items() if text.startswith(begin))
    marked = ((what, advice) for begin, what, advice in _MARKED if begin.match(text.removeprefix(_BOM)))
    for what, advice in (*others, *marked):
        raise InvalidValueError(f"{path} is {what}, expected plain text; {advice}")
    if b"\0" in text[:1024]:
        raise InvalidValueError(
            f"{path} is UTF-16 text or no text at all, expected UTF-8; save it as UTF-8, for example with "
            "iconv -f utf-16le -t utf-8"
        )


def _header_line(text: bytes, path: Path) -> str:
    try:
        return text.removeprefix(_BOM).decode().strip("\r\n")
    except UnicodeDecodeError as error:
        raise InvalidValueError(
            f"line 1 of {path} is not UTF-8 text; save the file as UTF-8, for example with "
            "iconv -f latin1 -t utf-8"
        ) from error


def _check_line(line: str, path: Path) -> None:
    if "\r" in _QUOTED.sub("", line):
        raise InvalidValueError(
            f"lines of {path} end with a carriage return alone; end them with a line feed"
        )
    if line.count('"') % 2:
        raise InvalidValueError(
            f"{path} has a quotation mark that is never closed, near line 1; close it, or leave it out"
        )


def _separator(line: str, rest: bytes, path: Path) -> str:
    """Return what separates the fields of a header, by it and the records behind it."""
    outside = _QUOTED.sub("", line)
    possible = [each for each in SEPARATORS if each in outside]
    if len(possible) < 2:
        return possible[0] if possible else SEPARATORS[0]
    whole = rest[: rest.rfind(b"\n") + 1] or rest
    if not whole.strip():
        return possible[0]
    fitting = [each for each in possible if _fits(line, whole.decode(errors="replace"), each)]
    if len(fitting) > 1:
        both = " or ".join(map(repr, fitting))
        raise InvalidValueError(
            f"the fields of {path} may be separated by {both} (its header is {shown(line)}); say by which "
            "with data.separator"
        )
    return (fitting or possible)[0]


def _fits(line: str, text: str, separator: str) -> bool:
    """Whether the first records have as many fields as the header."""
    (_, header), *some = itertools.islice(records(f"{line}\n{text}", separator, 1), _N_COMPARED + 1)
    return all(len(fields) == len(header) for _, fields in some)


def _header_end(text: bytes, begin: int) -> int:
    """Return where the first line from `begin` on that is not blank ends."""
    end = begin
    while end < len(text):
        start, end = end, _line_end(text, end)
        if end == 0:
            return len(text)
        if text[start:end].strip():
            return end
    return len(text)


def _line_end(text: bytes, begin: int) -> int:
    """Return where a line ends whose breaks within quotation marks are part of names; 0: nowhere."""
    end = begin
    while end := text.find(b"\n", end) + 1:
        if text.count(b'"', begin, end) % 2 == 0:
            return end
    return text.find(b"\n", begin) + 1  # a mark that is never closed: the records tell its line


def _checked_names(fields: Sequence[str], path: Path) -> tuple[str, ...]:
    names = tuple(field.strip() or f"column_{i}" for i, field in enumerate(fields, 1))
    if not any(field.strip() for field in fields):
        raise InvalidValueError(f"{path} has no header; its first line must name the columns")
    numbers = [name for name in names if _is_number(name)]
    if len(numbers) == len(names) or len({*numbers}) < len(numbers):
        raise InvalidValueError(
            f"line 1 of {path} holds numbers, expected the names of the columns; add a line with names"
        )
    check_distinct(names, path)
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
