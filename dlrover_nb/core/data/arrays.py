"""Rows in NumPy files: ``.npz`` with one array per column, or ``.npy`` with a structured or a plain array.

A 2-D array is as many columns, named with the position behind (``x.0``, ``x.1``; those of a plain ``.npy``
are ``c0``, ``c1``). A ``.npy`` file is mapped, so that only the rows which are read take memory; the arrays
of an ``.npz`` are held. Pickled objects are refused, as reading them executes code from the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa

from dlrover_nb.core.data.kinds import kind_of
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Column = NDArray[Any]


class NumpySource:
    """Columns of equal length.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._columns = _columns(path)
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidValueError(f"the arrays of {path} must be of one length, got {lengths}")
        self.n_row = max(lengths.values(), default=0)
        self.kinds = {name: kind_of(_arrow(column[:1]).type) for name, column in self._columns.items()}

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        return pa.table({name: _arrow(self._columns[name][start:stop]) for name in columns})


def table_of(columns: Mapping[str, Column]) -> pa.Table:
    """Return arrays as a table; 2-D ones as several columns."""
    return pa.table({name: _arrow(column) for name, column in _flat(columns).items()})


def _columns(path: Path) -> dict[str, Column]:
    try:
        mapped = None if path.suffix == ".npz" else "r"
        loaded: Any = np.load(path, mmap_mode=mapped, allow_pickle=False)  # type: ignore[arg-type]  # None is fine
        if isinstance(loaded, np.ndarray):
            return _of_one(loaded)
        with loaded:
            return _flat({name: loaded[name] for name in loaded.files})
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        if isinstance(error, InvalidValueError):
            raise
        raise InvalidValueError(
            f"{path} is not a NumPy file of plain arrays ({str(error).splitlines()[0]}); "
            "give .npy or .npz without pickled objects"
        ) from error


def _of_one(array: Column) -> dict[str, Column]:
    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    if array.ndim != 2:
        raise InvalidValueError(f"a .npy file must hold rows and columns, got an array of {array.ndim} axes")
    return {f"c{i}": array[:, i] for i in range(array.shape[1])}


def _flat(columns: Mapping[str, Column]) -> dict[str, Column]:
    flat: dict[str, Column] = {}
    for name, value in columns.items():
        column = np.asarray(value)
        if column.ndim not in {1, 2}:
            raise InvalidValueError(f"array {name!r} must have 1 or 2 axes, got {column.ndim}")
        flat |= {name: column} if column.ndim == 1 else {f"{name}.{i}": c for i, c in enumerate(column.T)}
    return flat


def _arrow(column: Column) -> pa.Array:
    return pa.array(np.ascontiguousarray(column))
