"""Which worker holds which shard: under which grant, and up to which row."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.sharding.split import HeldShard

if TYPE_CHECKING:
    from collections.abc import Iterator


class Hold(NamedTuple):
    """A granted shard."""

    owner: str
    grant: int
    until: int
    is_piece: bool  # the shard has more rows than `until`


class Holds:
    """All granted shards, in the order of the grants."""

    def __init__(self) -> None:
        self._holds: dict[int, Hold] = {}
        self._shards: dict[str, dict[int, None]] = {}  # the same by owner: sets that keep their order

    def __len__(self) -> int:
        return len(self._holds)

    def __iter__(self) -> Iterator[int]:
        return iter(self._holds)

    def __getitem__(self, shard: int) -> Hold:
        return self._holds[shard]

    def records(self) -> tuple[HeldShard, ...]:
        """Return all of them, in the order of the grants."""
        return tuple(HeldShard(shard, h.owner, h.grant, h.until) for shard, h in self._holds.items())

    def of(self, owner: str) -> tuple[int, ...]:
        """Return the shards of an owner, oldest first."""
        return tuple(self._shards.get(owner, ()))

    def covers(self, owner: str, shard: int, grant: int) -> bool:
        """Whether `owner` holds a shard under that very grant."""
        hold = self._holds.get(shard)
        return hold is not None and hold.grant == grant and hold.owner == owner

    def add(self, shard: int, hold: Hold) -> None:
        """Record the holder of a free shard."""
        self._holds[shard] = hold
        self._shards.setdefault(hold.owner, {})[shard] = None

    def let_go(self, shard: int) -> Hold:
        """Release a shard; return its last hold."""
        hold = self._holds.pop(shard)
        mine = self._shards[hold.owner]
        del mine[shard]
        if not mine:
            del self._shards[hold.owner]
        return hold
