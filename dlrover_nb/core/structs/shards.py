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
    """Rows [start, stop) of the data in pass `epoch`, of which a part is to be trained.

    `offset` and `until` count rows in the order in which they are trained (shuffled within the shard): those
    before `offset` are done already, and this grant ends at `until` (None: with the shard).
    """

    lease: Lease
    epoch: int
    start: int
    stop: int
    offset: int = 0
    until: int | None = None

    @property
    def end(self) -> int:
        """Rows of the shard that are done when this grant is."""
        return self.stop - self.start if self.until is None else self.until


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
