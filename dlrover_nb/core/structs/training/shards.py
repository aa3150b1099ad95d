"""Shards of the data: index ranges that the ledger grants, never data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.redaction import BareReason

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_HELD = 2  # shards of one worker: the current one and the next, which it prefetches


class Purpose(StrEnum):
    """Purpose of a shard's rows; the two are counted separately."""

    TRAIN = "train"
    EVALUATE = "evaluate"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one shard: stale as soon as the shard is taken back.

    `grant` is unique in the job. Reports name the lease, so a late report of an earlier holder is recognized
    and refused.
    """

    purpose: Purpose
    shard: int
    grant: int


@dataclass(frozen=True, slots=True)
class Unit:
    """Where the gradients of a shard are summed in deterministic training.

    Parameters
    ----------
    step
        Which step of the optimizer they are in, counted from 0 over all passes.
    number
        Place of the shard in the seeded order of all shards: gradients of a step are summed by it.
    """

    step: int
    number: int


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows [start, stop) of the data in pass `epoch`, of which a part is to be trained.

    `offset` and `until` count rows in the order in which they are trained (shuffled within the shard): those
    before `offset` are done already, and this grant ends at `until` (None: with the shard). The shard is one
    `unit` of a step in deterministic training; else that is None.
    """

    lease: Lease
    epoch: int
    start: int
    stop: int
    offset: int = 0
    until: int | None = None
    unit: Unit | None = None

    @property
    def end(self) -> int:
        """Rows of the shard that are done when this grant is."""
        return self.stop - self.start if self.until is None else self.until


@dataclass(frozen=True, slots=True)
class QuarantinedShard:
    """A shard that is not granted any more, because its last holders all died at the same row.

    `start` and `stop` are rows of the data; `n_row_done` of them (in the shard's own order) are trained.
    """

    purpose: Purpose
    shard: int
    epoch: int
    start: int
    stop: int
    n_row_done: int
    killed: tuple[str, ...]

    def __str__(self) -> str:
        return f"shard {self.shard} (rows {self.start} to {self.stop}) ended {and_list(self.killed)}"


MOST_NAMED = 10  # rows that a report names


@dataclass(frozen=True, slots=True)
class SkippedBatch:
    """A batch of a training shard that was not trained, because its loss or gradients cannot be used.

    `first` and `last` are the smallest and the largest number of its rows in the data. Of the `n_at_fault`
    rows for which the model gives no finite number, `rows` names the first ones; without any, no row stands
    out.
    """

    shard: int
    n_row: int
    first: int
    last: int
    why: str
    n_at_fault: int = 0
    rows: tuple[int, ...] = ()

    def is_of_same_rows(self, other: SkippedBatch) -> bool:
        """Whether both are of the same rows in the same pass."""
        mine, theirs = ((each.shard, each.n_row, each.first, each.last, each.rows) for each in (self, other))
        return mine == theirs

    def __str__(self) -> str:
        return f"a batch of {self.n_row} rows between {self.first} and {self.last}: {self.reason}"

    @property
    def reason(self) -> str:
        """Why it was skipped, with the rows at fault."""
        if not self.n_at_fault:
            return self.why
        names = ", ".join(map(str, self.rows))
        more = f" and {self.n_at_fault - len(self.rows)} more" * (self.n_at_fault > len(self.rows))
        rows = f"row{'s' * (self.n_at_fault > 1)} {names}{more}"
        return f"{self.why}; the model gives no finite number for {rows}"


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """What a worker did in a training shard: its first `n_row_done` rows, some maybe in `skipped` batches.

    Of one that it has let go, the other rows are to be trained by the next holder.
    """

    lease: Lease
    n_row_done: int
    skipped: tuple[SkippedBatch, ...] = ()


class ShardAction(StrEnum):
    """Decision about a shard in quarantine."""

    RETRY = "retry"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ShardChoice(BareReason):
    """A user's decision about a shard in quarantine."""

    shard: int
    action: ShardAction
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class BatchChoice(BareReason):
    """A user's decision about the batch sizes of workers, as (worker, size)."""

    sizes: tuple[tuple[str, int], ...]
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class FinishChoice(BareReason):
    """A user's decision to train no more rows: the model is evaluated, and the job succeeds."""

    by: str
    why: str = ""

    def __str__(self) -> str:
        return f"finished by {self.by}" + (f": {self.why}" if self.why else "")


UserChoice = ShardChoice | BatchChoice | FinishChoice


@dataclass(frozen=True, slots=True)
class ShardCounts:
    """Exact accounting of one purpose: todo + doing + done + quarantined + skipped = total.

    Of a stream without a known end (`is_open`) only granted shards are counted.
    """

    todo: int = 0
    doing: int = 0
    done: int = 0
    n_sample_done: int = 0
    n_sample_total: int = 0
    refused: int = 0  # late and double reports
    returned: int = 0  # shards taken back from dead or drained workers
    quarantined: int = 0  # wait for a decision of the user
    skipped: int = 0  # by the user, or because training ended early
    n_sample_skipped: int = 0
    is_open: bool = False
    n_sample_kept: int | None = None  # in the newest checkpoint of programs of others; None: not known

    @property
    def total(self) -> int:
        """Number of shards."""
        return self.todo + self.doing + self.done + self.quarantined + self.skipped

    @property
    def is_blocked(self) -> bool:
        """Whether shards in quarantine are all that is left."""
        return self.quarantined > 0 and self.todo == self.doing == 0 and not self.is_open

    @property
    def finished(self) -> bool:
        """Whether all shards are done or skipped; shards in quarantine are not."""
        return self.done + self.skipped == self.total and not self.is_open


def in_quarantine(job: str, shard: QuarantinedShard) -> str:
    """Return the message about a shard that was isolated."""
    return f"{shard}: it is in quarantine, and the job cannot finish without it; {_way_out(job, shard)}"


def why_waits(job: str, counts: ShardCounts, quarantined: Sequence[QuarantinedShard]) -> str:
    """Return what a job waits for where only isolated shards are left; empty: it does not."""
    if not counts.is_blocked:
        return ""
    what = f"{counts.quarantined} of {counts.total} shards are all that is left, and wait for a decision"
    return f"{what}: {quarantined[0]}; {_way_out(job, quarantined[0])}"


def _way_out(job: str, shard: QuarantinedShard) -> str:
    command = f"%dlrover apply {job}"
    return (
        f"repair the data and use {command} --retry-shard {shard.shard}, or go on without it: "
        f"--skip-shard {shard.shard}"
    )
