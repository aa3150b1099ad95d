"""Arrays that grow in place: their address space is reserved at once, and their pages come when touched.

An array that grows by `resize` is filled with zeros in steps of megabytes, while workers wait, or copied.
Here a row costs its memory when it is first written, nothing moves, and what is behind the last row can be
given back. Above `_SMALL_BYTES` the system may use huge pages (Linux, where it allows them by `madvise`): a
random row then costs a cache line and no walk through page tables.

Rejected: segments of some megabytes, as the copy of a checkpoint and numpy want one array.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
from typing import Generic, TypeVar

import numpy as np

Number = TypeVar("Number", bound=np.generic)

_SMALL_BYTES = 16 << 20  # at the beginning, without huge pages: a small table takes no more than it needs
_LEAST_BYTES = 1 << 20  # reserved where the system refuses more; an array that grows beyond is copied
# Not one byte of it counts as used before it is touched; Python names the flag from 3.13 on.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE


def machine_bytes() -> int:
    """Return the memory of this machine, which no array exceeds."""
    return os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE


class Reserved(Generic[Number]):
    """An array with room for more rows.

    Parameters
    ----------
    most
        Rows to reserve address space for; more of them cost a copy.
    row
        Shape of a row.
    dtype
        Of its numbers, which are 0 at first.

    Attributes
    ----------
    array
        [capacity, *row]; `reach` is called for rows that are touched, before anything else is.
    at
        Its address: numpy takes a microsecond to tell it.
    """

    def __init__(self, most: int, row: tuple[int, ...], dtype: type[Number]) -> None:
        self._row, self._dtype = row, np.dtype(dtype)
        self._row_bytes = self._dtype.itemsize * math.prod(row)
        self._n = 0
        self._map(most, min(most, _LEAST_BYTES // self._row_bytes))

    @property
    def n_byte(self) -> int:
        """Bytes of the rows that were reached."""
        return self._n * self._row_bytes

    def reach(self, n: int) -> None:
        """Make the first `n` rows usable."""
        if n > len(self.array):
            old = self.array[: self._n]
            self._map(2 * n, n)
            self.array[: len(old)] = old
        self._n = max(n, self._n)

    def give_back(self, n: int) -> None:
        """Return the memory behind the first `n` rows to the system."""
        page = mmap.PAGESIZE
        start, stop = (-(-rows * self._row_bytes // page) * page for rows in (n, self._n))
        if start < stop and hasattr(mmap, "MADV_DONTNEED"):
            self._memory.madvise(mmap.MADV_DONTNEED, start, min(stop, len(self._memory)) - start)
        self._n = min(n, self._n)

    def _map(self, n: int, least: int) -> None:
        """Reserve room for `n` rows, or for half as many, and so on, where the system refuses so much."""
        size = max(n * self._row_bytes, mmap.PAGESIZE)
        while True:
            try:
                self._memory = mmap.mmap(-1, size, flags=_FLAGS)
                break
            except OSError:
                size //= 2
                if size < least * self._row_bytes:
                    raise
        if size > _SMALL_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE, _SMALL_BYTES)
        flat = np.frombuffer(self._memory, self._dtype, count=size // self._row_bytes * math.prod(self._row))
        self.array = flat.reshape(-1, *self._row)
        self.at = int(flat.ctypes.data)
