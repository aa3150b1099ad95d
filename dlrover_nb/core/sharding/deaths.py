"""Shards that are suspected of killing their holders.

One death proves nothing: machines fail, and some worker holds a shard then. Several holders in a row that die
before the next row of a shard is done suggest that its rows are the reason.

Only deaths count that the rows could have caused: a crash, a kill, a lack of memory. A worker that was silent
for too long, evicted or on a machine that is gone says nothing of them. To count time-outs was rejected:
three on a busy machine put a healthy shard aside. Rows on which workers hang use up the restarts instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.training.shards import QuarantinedShard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dlrover_nb.core.sharding.rows import RowsDone
    from dlrover_nb.core.sharding.split import Split

MAX_DEATHS = 3


class Deaths:
    """The last holders of each shard that died at its current row.

    Parameters
    ----------
    items
        Pairs of a shard and those holders.
    """

    def __init__(self, items: Iterable[tuple[int, tuple[str, ...]]] = ()) -> None:
        self._owners = dict(items)

    def count(self, shard: int, owner: str) -> bool:
        """Count a death; return whether the limit is reached."""
        self._owners[shard] = (*self._owners.get(shard, ()), owner)
        return len(self._owners[shard]) >= MAX_DEATHS

    def forget(self, shard: int) -> None:
        """Clear a shard of suspicion."""
        self._owners.pop(shard, None)

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Drop all shards but the wanted ones."""
        self._owners = {shard: owners for shard, owners in self._owners.items() if wanted(shard)}

    def acquit(self, shard: int) -> None:
        """Clear a shard in quarantine of suspicion.

        Raises
        ------
        InvalidValueError
            When it is not in quarantine.
        """
        suspects = self.suspects()
        if shard not in suspects:
            text = and_list(suspects) or "none"
            raise InvalidValueError(
                f"shard {shard} is not in quarantine; {text} {'are' if len(suspects) > 1 else 'is'}"
            )
        self.forget(shard)

    def suspects(self) -> list[int]:
        """Return the shards with too many deaths."""
        return sorted(shard for shard, owners in self._owners.items() if len(owners) >= MAX_DEATHS)

    def quarantined(self, split: Split, rows: RowsDone) -> Iterator[QuarantinedShard]:
        """Describe the shards with too many deaths."""
        for shard in self.suspects():
            place = split.epoch(shard), *split.block(shard)
            yield QuarantinedShard(split.purpose, shard, *place, rows.of(shard), self._owners[shard])

    def items(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Return the deaths of all shards."""
        return tuple(self._owners.items())
