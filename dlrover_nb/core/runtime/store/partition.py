"""How parameters are divided among PS, and the content of one part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

if TYPE_CHECKING:
    from collections.abc import Sequence

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Buckets = NDArray[np.bool_]  # for each bucket, whether it is meant


@dataclass(frozen=True, slots=True)
class StorePart:
    """Parameters with their optimizer's state, of any cut.

    Parameters
    ----------
    ids, table
        int64 [n] and float32 [n, width + state]: rows, each its values and then its state.
    dense_offset, dense
        Where the slice begins in the flat dense vector, and float32 [1 + state, m]: its values, then its
        state; m is 0 where there is none.
    """

    ids: Ids
    table: Floats
    dense_offset: int
    dense: Floats


def dense_slice(length: int, index: int, n_ps: int) -> slice:
    """Return the elements of the flat dense vector that PS `index` of `n_ps` owns."""
    return slice(index * length // n_ps, (index + 1) * length // n_ps)


def averages_in(part: slice, length: int, n_average: int) -> int:
    """Return how many of the `n_average` last elements of a vector of `length` lie in a slice of it."""
    n: int = part.stop - max(part.start, length - n_average)
    return max(0, n)


def even_bucket_owner(n_ps: int) -> tuple[int, ...]:
    """Return the owner of each bucket when `n_ps` PS share them in turn."""
    return tuple(bucket % n_ps for bucket in range(N_BUCKET))


def owned_buckets(bucket_owner: Sequence[int], index: int) -> Buckets:
    """Return for each bucket whether PS `index` owns it."""
    owned: Buckets = np.asarray(bucket_owner) == index
    return owned
