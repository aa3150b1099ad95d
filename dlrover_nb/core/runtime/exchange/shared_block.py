"""Memory that both ends of a connection map, and arrays in it that messages name by their place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

_LINE_BYTES = 64  # arrays begin where cache lines do


@dataclass(frozen=True, slots=True, eq=False)
class SharedBlock:
    """Memory that both ends of a connection map: its number, and its bytes, uint8 [n]."""

    number: int
    data: NDArray[np.uint8]

    def view(self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the array that lies at `offset`.

        Raises
        ------
        WireError
            When it would not lie inside, or not where a cache line begins.
        """
        n = math.prod(shape) * dtype.itemsize
        is_shape = 0 <= min(shape, default=0) <= max(shape, default=0) <= len(self.data)
        if not is_shape or offset < 0 or n > len(self.data) - offset:
            raise WireError(
                f"an array {dtype} {shape} at {offset} does not lie in the {len(self.data)} shared bytes"
            )
        if offset % _LINE_BYTES:
            raise WireError(f"an array at {offset} does not begin where a cache line does")
        return self.data[offset : offset + n].view(dtype).reshape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class SharedArray:
    """An array that lies at `offset` of the shared block `number`."""

    number: int
    offset: int
    array: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Its length, as of any array."""
        return self.array.nbytes


def aligned(n_byte: int) -> int:
    """Return the bytes that an array takes of a shared block."""
    return -(-n_byte // _LINE_BYTES) * _LINE_BYTES


def carried_bytes(request: list[Any] | bytes, arrays: Iterable[NDArray[Any] | SharedArray]) -> int:
    """Return how many bytes a request holds, as frames or as it is rung, and the arrays wherever they lie."""
    frames = [request] if isinstance(request, bytes) else request
    n_shared = sum(array.nbytes for array in arrays if isinstance(array, SharedArray))
    return n_shared + sum(memoryview(frame).nbytes for frame in frames)
