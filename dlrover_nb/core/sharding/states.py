"""States of a shard in one byte, and their bits in a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.sharding.split import LedgerCheckpoint, Split

TODO, DOING, DONE, QUARANTINED, SKIPPED = range(5)


def state_at(states: bytearray, shard: int) -> int:
    """Return the state of a shard; an unknown one is TODO."""
    return states[shard] if shard < len(states) else TODO


def shards_in(states: bytearray, state: int) -> NDArray[np.intp]:
    """Return the shards that are in one state."""
    return np.flatnonzero(np.frombuffer(states, np.uint8) == state)


def bits_of(states: bytearray, state: int) -> bytes:
    """Return a bit for each shard: whether it is in one state."""
    return np.packbits(np.frombuffer(states, np.uint8) == state).tobytes()


def states_of(checkpoint: LedgerCheckpoint, split: Split) -> bytearray:
    """Return DONE and TODO for each known shard."""
    bits = np.unpackbits(np.frombuffer(checkpoint.done, np.uint8))
    if split.is_open:  # as few shards as the checkpoint implies
        n_known = max((0, *(s + 1 for s, _ in checkpoint.begun), *(s + 1 for s in checkpoint.skipped)))
        n_known = max(n_known, int(bits.nonzero()[0][-1]) + 1 if bits.any() else 0)
    else:
        n_known = split.n_shard
    state = bytearray(n_known)
    n_bit = min(n_known, len(bits))
    np.frombuffer(state, np.uint8)[:n_bit] = bits[:n_bit] * DONE
    return state
