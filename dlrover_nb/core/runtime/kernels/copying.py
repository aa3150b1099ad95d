"""Copies the rows of a table while they change: the inner loops, in numpy and, with the same bits, in C.

`copying.c` is part of the library of `compiled`. The copy in C takes the interpreter's lock once: a thread of
low priority that takes it after each chunk would hold up the one that serves, wherever the system stops it
meanwhile.
"""

from __future__ import annotations

import ctypes
import functools
import time
from ctypes import c_int64, c_void_p
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dlrover_nb.core.runtime.kernels import compiled, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Slots = NDArray[np.int32]
    Floats = NDArray[np.float32]
    Marks = NDArray[np.bool_]
    Rows = tuple[Ids, Floats]

_P, _I = c_void_p, c_int64
_SIGNATURES = {
    "copy_rows": (_P, _P, _I, _P, _P, _I, _I, _P, _P, _I, _I, _I, _P),
    "save_rows": (_P, _P, _P, _I, _P, _I, _P, _I, _I),
    "put_rows": (_P, _I, _P, _P, _I),
}

STOPPED = -1
_DONE, _STOP = range(2)  # places of `progress`


class Progress:
    """How far a copy is, read and written by two threads."""

    def __init__(self) -> None:
        self.numbers = np.zeros(2, np.int64)

    @property
    def n_done(self) -> int:
        """Rows that are copied, the first ones."""
        return int(self.numbers[_DONE])

    def stop(self) -> None:
        """Let the copy end after its chunk."""
        self.numbers[_STOP] = 1

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to."""
        return bool(self.numbers[_STOP])


class Choice:
    """Which rows of a table are copied, one after the other: those of buckets that are not `gone`.

    Parameters
    ----------
    gone
        Buckets, bool [n_bucket]; an id is of the bucket of its remainder.
    n_row
        Of the table.

    Attributes
    ----------
    gone, place
        As given; and where each row went, int32 [n_row], -1: nowhere. The copy fills it.
    """

    def __init__(self, gone: Marks, n_row: int) -> None:
        self.gone, self.place = gone, np.empty(n_row, np.int32)

    def taken(self, of: Rows, here: slice, at: int) -> Rows:
        """Return those rows of a chunk that stay, and note that they go to places from `at` on."""
        stays = ~self.gone[of[0][here] % len(self.gone)]
        self.place[here] = np.where(stays, at - 1 + np.cumsum(stays), -1)
        return of[0][here][stays], of[1][here][stays]

    def placed(self, slots: Slots, rows: Floats) -> tuple[Slots, Floats]:
        """Return where those rows of `slots` went that went anywhere, and them."""
        at = self.place[slots]
        went = at >= 0
        return at[went], rows[went]


class Copying(Protocol):
    """What both kernels do."""

    def copy_rows(
        self, to: Rows, of: Rows, chunk: int, pause_s: float, progress: Progress, choice: Choice | None = None
    ) -> int:
        """Copy ids and rows of a table, `chunk` rows at a time with a pause after each.

        All of them, or a `choice`, for which there is room. Returns whether all numbers that were read are
        finite, or `STOPPED`.
        """
        ...

    def save_rows(
        self, to: tuple[Slots, Floats], table: Floats, slots: Slots, saved: Marks, first: int
    ) -> int:
        """Copy the rows of `slots` from `first` on, below the length of `saved`, that are not marked there.

        They are marked then. Returns how many they are; `to` has room for all of `slots`.
        """
        ...

    def put_rows(self, table: Floats, slots: Slots, rows: Floats) -> None:
        """Replace the rows of `slots`."""
        ...


class NumpyCopying:
    """The definition."""

    def copy_rows(
        self, to: Rows, of: Rows, chunk: int, pause_s: float, progress: Progress, choice: Choice | None = None
    ) -> int:
        """Copy rows; see `Copying`."""
        n, at, is_finite = len(of[0]), 0, True
        for start in range(0, n, chunk):
            if progress.numbers[_STOP]:
                return STOPPED
            here = slice(start, min(start + chunk, n))
            ids, rows = (of[0][here], of[1][here]) if choice is None else choice.taken(of, here, at)
            there = slice(at, at + len(ids))
            at = there.stop
            if at > len(to[0]):  # rows moved: no caller waits for this copy any more
                return STOPPED
            np.copyto(to[0][there], ids)
            np.copyto(to[1][there], rows)
            is_finite &= bool(np.isfinite(to[1][there]).all())
            progress.numbers[_DONE] = here.stop
            if here.stop < n and pause_s:
                time.sleep(pause_s)
        return int(is_finite)

    def save_rows(
        self, to: tuple[Slots, Floats], table: Floats, slots: Slots, saved: Marks, first: int
    ) -> int:
        """Save rows; see `Copying`."""
        old = slots[(slots >= first) & (slots < len(saved))]
        old = old[~saved[old]]
        saved[old] = True
        to[0][: len(old)] = old
        to[1][: len(old)] = table[old]
        return len(old)

    def put_rows(self, table: Floats, slots: Slots, rows: Floats) -> None:
        """Replace rows; see `Copying`."""
        table[slots] = rows


class CompiledCopying:
    """The same in C."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(str(compiled.LIBRARY))
        for name, arguments in _SIGNATURES.items():
            function = getattr(self._c, name)
            function.argtypes, function.restype = arguments, None if name == "put_rows" else c_int64

    def copy_rows(
        self, to: Rows, of: Rows, chunk: int, pause_s: float, progress: Progress, choice: Choice | None = None
    ) -> int:
        """Copy rows; see `Copying`."""
        (ids_to, table_to), (ids, table) = to, of
        targets = _at(table_to), _at(ids_to), len(ids_to)
        sources = _at(table), _at(ids), table.shape[1], len(ids)
        chosen = (
            (None, None, 0) if choice is None else (_at(choice.place), _at(choice.gone), len(choice.gone))
        )
        pause_ns, numbers = round(1e9 * pause_s), _at(progress.numbers)
        return int(self._c.copy_rows(*targets, *sources, *chosen, chunk, pause_ns, numbers))

    def save_rows(
        self, to: tuple[Slots, Floats], table: Floats, slots: Slots, saved: Marks, first: int
    ) -> int:
        """Save rows; see `Copying`."""
        slots = np.ascontiguousarray(slots, np.int32)
        targets, sources = (_at(to[0]), _at(to[1])), (_at(table), table.shape[1], _at(slots), len(slots))
        return int(self._c.save_rows(*targets, *sources, _at(saved), first, len(saved)))

    def put_rows(self, table: Floats, slots: Slots, rows: Floats) -> None:
        """Replace rows; see `Copying`."""
        self._c.put_rows(_at(table), table.shape[1], _at(slots), _at(rows), len(slots))


def copying() -> Copying:
    """Return the loops in C where the kernel in C is used."""
    return _compiled() if kernel().NAME == "c" else NumpyCopying()


@functools.cache
def _compiled() -> CompiledCopying:
    return CompiledCopying()


def _at(array: NDArray[Any]) -> int:
    return array.ctypes.data
