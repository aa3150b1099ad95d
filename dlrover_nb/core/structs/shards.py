"""Shards of the data: index ranges that the ledger hands out, never data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Purpose(StrEnum):
    """What a shard's rows are for; the two are counted apart."""

    TRAIN = "train"
    EVALUATE = "evaluate"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one shard: stale as soon as the shard is granted again.

    `grant` counts how often the shard was handed out. Reports name the lease, so a late report of an
    earlier holder is recognised and refused.
    """

    purpose: Purpose
    shard: int
    grant: int


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows [start, stop) of the data in pass `epoch`; batches before `offset` are done already."""

    lease: Lease
    epoch: int
    start: int
    stop: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ShardCounts:
    """Exact accounting of one purpose: todo + doing + done = total."""

    todo: int = 0
    doing: int = 0
    done: int = 0
    n_sample_done: int = 0
    n_sample_total: int = 0
    refused: int = 0  # late and double reports
    returned: int = 0  # shards taken back from dead or drained workers

    @property
    def total(self) -> int:
        """Number of shards."""
        return self.todo + self.doing + self.done

    @property
    def finished(self) -> bool:
        """Whether all are done."""
        return self.done == self.total
