"""Rows in NumPy files: ``.npz`` with one array per column, or ``.npy`` with a structured or a plain array.

A 2-D array is as many columns, named with the position behind (``x.0``, ``x.1``; those of a plain ``.npy``
are ``c0``, ``c1``). A ``.npy`` file is mapped, so that only the rows which are read take memory; the arrays
of an ``.npz`` are held. Pickled objects are refused, as reading them executes code from the file.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.kinds import check_distinct, kind_of
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Column = NDArray[Any]


_MOST_LISTED = 20
_ADVICE = (  # kinds of NumPy's types, and what to do about them
    ("c", "store the real and the imaginary part as two arrays"),
    ("O", "make its values one type, such as array.astype(str)"),
    ("V", "store its fields as arrays of their own"),
    ("mM", "convert it to seconds, such as array.astype('datetime64[s]')"),
    ("f", "convert it with array.astype('float64')"),
)


class NumpySource:
    """Columns of equal length.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns = _columns(path)
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            few = ", ".join(f"{shown(name)} {n}" for name, n in list(lengths.items())[:_MOST_LISTED])
            raise InvalidValueError(f"the arrays of {path} must be of one length, got {few}")
        self.n_row = max(lengths.values(), default=0)
        self.types = {name: _arrow(name, column[:1]).type for name, column in self._columns.items()}
        self.kinds = {name: kind_of(kind) for name, kind in self.types.items()}

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        arrays = self._columns = self._columns or _columns(self._path)
        return pa.table({name: _arrow(name, arrays[name][start:stop]) for name in columns})

    def release(self) -> None:
        """Let go of arrays that are held; they are read again when they are needed."""
        self._columns = {}


def table_of(columns: Mapping[str, Column]) -> pa.Table:
    """Return arrays as a table; 2-D ones as several columns."""
    return pa.table({name: _arrow(name, column) for name, column in _flat(columns).items()})


def _columns(path: Path) -> dict[str, Column]:
    try:
        with path.open("rb") as file:
            mapped = None if file.read(2) == b"PK" else "r"
        if mapped is None:
            _check_sizes(path)
        loaded: Any = np.load(path, mmap_mode=mapped, allow_pickle=False)  # type: ignore[arg-type]  # None is fine
        if isinstance(loaded, np.ndarray):
            return _of_one(loaded, path)
        with loaded:
            check_distinct(loaded.files, path)
            return _flat({name: loaded[name] for name in loaded.files})
    except MemoryError as error:
        raise InvalidValueError(
            f"the arrays of {path} do not fit into memory; write them as .npy files, "
            "which are mapped, or as Parquet"
        ) from error
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        if isinstance(error, InvalidValueError):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidValueError(
            f"{path} is not a NumPy file of plain arrays ({reason}); "
            "write it again as .npy or .npz, without pickled objects"
        ) from error


def _check_sizes(path: Path) -> None:
    """Refuse arrays that are larger than their part of the file, or all of them than memory.

    NumPy takes the memory that a header asks for before it reads the first value.
    """
    n_total = 0
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                n_needed = _n_byte(file)
            if n_needed > entry.file_size:
                raise InvalidValueError(
                    f"array {shown(entry.filename.removesuffix('.npy'))} of {path} claims "
                    f"{n_needed:,} bytes, but the file holds {entry.file_size:,} of them; write it again"
                )
            n_total += entry.file_size
    if n_total > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise MemoryError


def _n_byte(file: IO[bytes]) -> int:
    """Return how many bytes the header of an array claims; 0 where it is none, which NumPy refuses."""
    if file.read(6) != np.lib.format.MAGIC_PREFIX:
        return 0
    version = tuple(file.read(2))
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    return 0 if kind.hasobject else math.prod(shape) * kind.itemsize


def _of_one(array: Column, path: Path) -> dict[str, Column]:
    if array.dtype.names:
        return _flat({name: array[name] for name in array.dtype.names})
    if array.ndim != 2:
        raise InvalidValueError(
            f"{path} must hold rows and columns, got an array of {array.ndim} axes; reshape it, "
            "or save arrays by their names with numpy.savez"
        )
    return {f"c{i}": array[:, i] for i in range(array.shape[1])}


def _flat(columns: Mapping[str, Column]) -> dict[str, Column]:
    flat: dict[str, Column] = {}
    for name, value in columns.items():
        column = np.asarray(value)
        if column.ndim not in {1, 2}:
            advice = "reshape it" if column.ndim else "give a list of values, one for each row"
            raise InvalidValueError(f"array {shown(name)} must have 1 or 2 axes, got {column.ndim}; {advice}")
        more = {name: column} if column.ndim == 1 else {f"{name}.{i}": c for i, c in enumerate(column.T)}
        if twice := sorted(flat.keys() & more.keys()):
            raise InvalidValueError(
                f"array {shown(name)} gives a second column {shown(twice[0])}; rename one of the arrays"
            )
        flat |= more
    return flat


def _arrow(name: str, column: Column) -> pa.Array:
    """Return values of any byte order; of types that Arrow has none for, raise what to make of them."""
    try:
        return pa.array(np.ascontiguousarray(column.astype(column.dtype.newbyteorder("="), copy=False)))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        advice = next(
            (text for kinds, text in _ADVICE if column.dtype.kind in kinds), "convert it with astype"
        )
        raise InvalidValueError(
            f"array {shown(name)} holds {shown(str(column.dtype))[1:-1]}, expected numbers, text, "
            f"true and false, or times; {advice}"
        ) from error
