"""Pieces of shards: slower workers get smaller ones, so that none finishes long after the others.

A worker at half the usual speed gets half a shard, one at a quarter or less a quarter: 256, 128 and 64
batches. Powers of two, and not exact shares: speeds are noisy, and pieces then end at few positions.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SMALLEST_SHARE = 4  # the slowest get this fraction of a shard


def usual_speed(speeds: Iterable[float]) -> float:
    """Return the median of the known speeds (above 0); 0 without any."""
    positive = [speed for speed in speeds if speed > 0]
    return statistics.median(positive) if positive else 0.0


def piece_batches(speed: float, usual: float, shard_batches: int) -> int | None:
    """Return how many batches of a shard a worker gets; None for all of it.

    Parameters
    ----------
    speed, usual
        Rows per second of this worker and of the median one; 0 when not known.
    shard_batches
        M, batches of a full shard.
    """
    if speed <= 0 or usual <= 0 or speed >= usual:
        return None
    n_part = 2 ** round(math.log2(usual / speed))
    return None if n_part == 1 else max(1, shard_batches // min(n_part, SMALLEST_SHARE))
