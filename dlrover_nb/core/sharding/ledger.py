"""The shard ledger: TODO -> DOING -> DONE, changed by the job master only, counted exactly.

A shard is DONE only when its holder reports that all its gradients have reached the PS. The holder has a
lease that names the grant, and no two grants of a job have the same number: a report that arrives after the
shard was taken back is refused and counted, and never moves a shard. A shard that is taken back keeps its
acknowledged rows. So every row is trained at least once, and twice only where rows were done but not yet
acknowledged when their worker died.

A shard whose holders die repeatedly at the same row (`deaths`) is put in quarantine: it keeps the job from
finishing until the user decides `retry` or `skip`. To drop it silently was rejected: a finished job must
have trained what it reports.

A shard costs one byte; sparse data are in dictionaries, the order of one pass is an array of int32. A queue
of shard objects was rejected: it takes a hundred times the memory.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core import codec
from dlrover_nb.core.errors import CheckpointError, InvalidValueError
from dlrover_nb.core.sharding.deaths import Deaths
from dlrover_nb.core.sharding.rows import RowsDone, still_begun
from dlrover_nb.core.sharding.split import HeldShard, LedgerCheckpoint, LedgerRecord
from dlrover_nb.core.sharding.states import (
    DOING,
    DONE,
    QUARANTINED,
    SKIPPED,
    TODO,
    bits_of,
    shards_in,
    state_at,
    states_of,
)
from dlrover_nb.core.sharding.steps import Steps
from dlrover_nb.core.structs.training.shards import Lease, Purpose, QuarantinedShard, Shard, ShardCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dlrover_nb.core.sharding.split import Split


class ShardQueue:
    """The order of TODO shards by number: returned ones first, then the pass, then the next one.

    Parameters
    ----------
    split
        The shards.
    epoch, place
        Position of the next grant.
    returned
        Returned shards, which are granted first; those of earlier steps before others.

    Attributes
    ----------
    steps
        Which shards make which step; None: steps do not follow shards.
    """

    def __init__(self, split: Split, epoch: int = 0, place: int = 0, returned: Iterable[int] = ()) -> None:
        self._split = split
        self.steps = None if split.step_shards is None else Steps(split)
        self.epoch, self.place = epoch, place
        self.returned = deque(returned)
        self._order: Sequence[int] = self._order_of(epoch)

    @property
    def next_returned(self) -> int | None:
        """The returned shard that is granted next; None: none was returned."""
        if self.steps is not None and self.returned:
            return min(self.returned, key=self.steps.unit_number)
        return self.returned[0] if self.returned else None

    def pop(self, state: bytearray) -> int | None:
        """Remove and return the next shard that is TODO or new to `state`; None without one."""
        if (shard := self.next_returned) is not None:
            self.returned.remove(shard)
            return shard
        while True:
            while self.place < len(self._order):
                shard = self._order[self.place]
                self.place += 1
                if shard >= len(state) or state[shard] == TODO:
                    return shard
            if self.epoch + 1 >= self._split.n_epoch:
                return None
            self.epoch, self.place = self.epoch + 1, 0
            self._order = self._order_of(self.epoch)

    def _order_of(self, epoch: int) -> Sequence[int]:
        if self._split.is_stream:
            return range(self._split.n_shard)
        if epoch >= self._split.n_epoch:
            raise CheckpointError(f"expected a place in {self._split.n_epoch} passes, got pass {epoch}")
        return self._split.order(epoch).data  # yields plain ints without a list of them


class Hold(NamedTuple):
    """A granted shard."""

    owner: str
    grant: int
    until: int
    is_piece: bool  # the shard has more rows than `until`


class Holds:
    """All granted shards, in the order of the grants: who holds them, up to which row."""

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


class ChangeLog:
    """The changes of one ledger since the last `drain`, for the write-ahead log of the job master.

    A line names a call of `ShardLedger` and its arguments. The state of a ledger depends on its calls alone,
    so the same calls on the same record give the same grants, owners and counts (`changes`). Nothing is
    recorded before `keep`.
    """

    def __init__(self) -> None:
        self._lines: list[str] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether changes are recorded."""
        return self._lines is not None

    def keep(self) -> None:
        """Record every change from now on."""
        self._lines = []

    def note(self, line: str) -> None:
        """Record a change."""
        if self._lines is not None:
            self._lines.append(line)

    def drain(self) -> bytes:
        """Return the changes since the last call, one line each, and remove them from the log."""
        if not self._lines:
            return b""
        lines, self._lines = self._lines, []
        return ("\n".join(lines) + "\n").encode()


class ShardLedger:
    """Grants the shards of one split and accounts for them; see the module for its guarantees.

    Attributes
    ----------
    changes, queue
        Log of the calls that changed something, for a restarted master; and the order of grants, to be read.
    """

    def __init__(self, split: Split) -> None:
        self.split = split
        self._state = bytearray(0 if split.is_open else split.n_shard)
        self.queue = ShardQueue(split)
        self._rows, self._holds = RowsDone(), Holds()
        self._deaths = Deaths()
        self._is_closed = False
        self._n_done = self._n_quarantined = self._n_skipped = 0
        self._n_grant = self._n_refused = self._n_returned = 0
        self.changes = ChangeLog()

    # read access

    @property
    def finished(self) -> bool:
        """Whether all shards are done or skipped; a shard in quarantine is not."""
        if self._is_closed:
            return not self._holds
        return self._n_done + self._n_skipped == len(self._state) and not self.split.is_open

    def counts(self) -> ShardCounts:
        """Return the exact accounting; acknowledged rows of unfinished shards count as samples done."""
        doing, quarantined, skipped = len(self._holds), self._n_quarantined, self._n_skipped
        todo = len(self._state) - self._n_done - doing - quarantined - skipped
        if self._is_closed:
            todo, quarantined, skipped = 0, 0, skipped + todo + quarantined
        return ShardCounts(
            todo=todo,
            doing=doing,
            done=self._n_done,
            n_sample_done=self._rows.n_row,
            n_sample_total=self.split.n_row_in(len(self._state)),
            refused=self._n_refused,
            returned=self._n_returned,
            quarantined=quarantined,
            skipped=skipped,
            n_sample_skipped=self._n_sample_skipped() if skipped else 0,
            is_open=self.split.is_open and not self._is_closed,
        )

    def quarantined(self) -> tuple[QuarantinedShard, ...]:
        """Return the shards that wait for a decision, none after `close`."""
        return () if self._is_closed else tuple(self._deaths.quarantined(self.split, self._rows))

    def holds(self, owner: str, lease: Lease) -> bool:
        """Whether `owner` holds that grant now."""
        is_held = self._holds.covers(owner, lease.shard, lease.grant)
        return is_held and lease.purpose is self.split.purpose

    def is_done_before(self, shard: int) -> bool:
        """Whether all shards with lower numbers are DONE or skipped."""
        before = self._state[:shard]
        return before.count(DONE) + before.count(SKIPPED) == shard

    def leases(self, owner: str) -> tuple[Lease, ...]:
        """Return the leases of `owner`, oldest first."""
        purpose, holds = self.split.purpose, self._holds
        return tuple(Lease(purpose, shard, holds[shard].grant) for shard in holds.of(owner))

    def held(self, owner: str) -> tuple[Shard, ...]:
        """Return what `owner` holds, oldest first, each without the rows that are acknowledged."""
        return tuple(self._held(shard) for shard in self._holds.of(owner))

    def _held(self, shard: int) -> Shard:
        hold, split, steps = self._holds[shard], self.split, self.queue.steps
        lease, before = Lease(split.purpose, shard, hold.grant), split.n_row_before(shard)
        is_part = hold.is_piece or split.block_shards > 1
        offset, until = before + self._rows.of(shard), before + hold.until if is_part else None
        unit = None if steps is None else steps.unit(shard)
        return Shard(lease, split.epoch(shard), *split.block(shard), offset, until, unit)

    # steps of deterministic training

    @property
    def n_step(self) -> int | None:
        """Steps all of whose shards are DONE or skipped; None: steps do not follow shards."""
        steps = self.queue.steps
        return None if steps is None else steps.n_done(lambda shard: self._state[shard] in {DONE, SKIPPED})

    @property
    def done_in_step(self) -> tuple[int, ...]:
        """Shards of the step that is not complete which are DONE."""
        steps, n_step = self.queue.steps, self.n_step
        shards = () if steps is None or n_step is None else steps.shards(n_step)
        return tuple(shard for shard in shards if self._state[shard] == DONE)

    def has_ungranted(self, step: int) -> bool:
        """Whether a shard of a step is TODO."""
        steps = self.queue.steps
        return steps is not None and any(self._state[shard] == TODO for shard in steps.shards(step))

    def reopen_step(self) -> int:
        """Take back what is DONE of the step that is not complete; return how many shards.

        Must be called when parameters are copied or move: gradients that are kept for a step do neither.
        """
        if shards := self.done_in_step:
            self.changes.note("reopen_step")
        for shard in shards:
            self._state[shard] = TODO
            self._rows.reopen(self.split.n_row(shard))
        self.queue.returned.extend(shards)
        self._n_done -= len(shards)
        self._n_returned += len(shards)
        return len(shards)

    # transitions of a shard

    def grant(self, owner: str, *, most_batches: int | None = None) -> Shard | None:
        """Grant a shard to `owner`: returned ones first, then the pass in its order, then the next pass.

        None: nothing to do now; shards of other holders may still be returned. At most `most_batches` batches
        of it are granted: the rest is granted first when they are done. An evaluation shard is granted whole,
        because its scores are kept whole or not at all.
        """
        shard = None if self._is_closed else self.queue.pop(self._state)
        self.changes.note(f"grant {owner} {most_batches or 0}")
        if shard is None:
            return None
        if shard == len(self._state):
            self._state.append(TODO)  # the next one of a stream
        until, offset = self.split.n_row(shard), self._rows.of(shard)
        if is_piece := most_batches is not None and self._is_piece(offset, until, most_batches):
            until = offset + most_batches * self.split.batch_size
        self._n_grant += 1
        self._state[shard] = DOING
        self._holds.add(shard, Hold(owner, self._n_grant, until, is_piece))
        return self._held(shard)

    def _is_piece(self, offset: int, n_row: int, most_batches: int) -> bool:
        is_less = offset + most_batches * self.split.batch_size < n_row
        return is_less and self.split.purpose is Purpose.TRAIN

    def progress(self, owner: str, lease: Lease, n_row_done: int) -> bool:
        """Acknowledge the first `n_row_done` rows of a shard, or its block; False when the lease is stale.

        A number below the acknowledged one (a late report) has no effect.
        """
        if not self._admits(owner, lease):
            return False
        self.changes.note(f"progress {owner} {lease.shard} {lease.grant} {n_row_done}")
        n_own = n_row_done - self.split.n_row_before(lease.shard)
        self._acknowledge(lease.shard, min(n_own, self._holds[lease.shard].until))
        return True

    def complete(self, owner: str, lease: Lease) -> bool:
        """Move a shard to DONE; False, and counted as refused, when the lease is stale or it is done.

        A piece of a shard is acknowledged, and its rest goes to the front of the queue.
        """
        if not self._admits(owner, lease):
            return False
        shard = lease.shard
        self.changes.note(f"complete {owner} {shard} {lease.grant}")
        hold = self._holds.let_go(shard)
        if hold.is_piece:
            self._acknowledge(shard, hold.until)
            self._state[shard] = TODO
            self.queue.returned.appendleft(shard)
            return True
        self._state[shard] = DONE
        self._rows.complete(shard, hold.until)
        self._deaths.forget(shard)
        self._n_done += 1
        return True

    def release(self, owner: str, *, killed: bool = False) -> int:
        """Take back all shards of `owner` with their acknowledged rows; return how many.

        If it was `killed`, its current shard, the one granted first, may be the reason: that is counted until
        another row of it is done.
        """
        shards = self._holds.of(owner)
        if self.queue.steps is not None:
            shards = tuple(sorted(shards, key=self.queue.steps.unit_number))  # it computes them in this order
        if shards:
            self.changes.note(f"release {owner} {int(killed)}")
        for shard in shards:
            self._holds.let_go(shard)
            self._state[shard] = TODO
        if killed and shards and self._deaths.count(shards[0], owner):
            self._state[shards[0]] = QUARANTINED
            self._n_quarantined += 1
        self.queue.returned.extend(shard for shard in shards if self._state[shard] == TODO)
        self._n_returned += len(shards)
        return len(shards)

    def let_go(self, owner: str, lease: Lease, n_row_done: int) -> bool:
        """Take back a shard of which its owner did `n_row_done` rows, maybe all; False where that is stale.

        That is not counted as refused: owners say it more than once.
        """
        if not self.holds(owner, lease):
            return False
        if n_row_done - self.split.n_row_before(lease.shard) >= self._holds[lease.shard].until:
            return self.complete(owner, lease)
        if n_row_done:
            self.progress(owner, lease, n_row_done)
        return self.give_back(owner, lease)

    def give_back(self, owner: str, lease: Lease) -> bool:
        """Take back one shard that its owner never received; False when the lease is stale."""
        if not self.holds(owner, lease):
            return False
        self.changes.note(f"give_back {owner} {lease.shard} {lease.grant}")
        self._holds.let_go(lease.shard)
        self._state[lease.shard] = TODO
        self.queue.returned.append(lease.shard)
        self._n_returned += 1
        return True

    # decisions

    def retry(self, shard: int) -> None:
        """Grant a shard in quarantine again, as the next one.

        Raises
        ------
        InvalidValueError
            When it is not in quarantine.
        """
        self._end_quarantine(shard, TODO)
        self.changes.note(f"retry {shard}")
        self.queue.returned.appendleft(shard)

    def skip(self, shard: int) -> None:
        """Skip a shard in quarantine: its remaining rows are not trained.

        Raises
        ------
        InvalidValueError
            When it is not in quarantine.
        """
        self._end_quarantine(shard, SKIPPED)
        self.changes.note(f"skip {shard}")
        self._n_skipped += 1

    def close(self) -> None:
        """Grant nothing more (early stopping): shards that are DOING may finish, the rest is skipped."""
        self.changes.note("close")
        self._is_closed = True

    def close_at(self, row: int) -> None:
        """End a stream before `row`.

        Leases on shards that the end cuts become stale. Of a shortened shard nothing counts as done, because
        its rows were shuffled with rows that do not exist.

        Raises
        ------
        InvalidValueError
            When it has an end already, or rows from there on are trained.
        """
        if not self.split.is_open:
            raise InvalidValueError(
                f"only a stream without an end can be ended; this one has {self.split.n_sample} rows"
            )
        split = self.split.ended(row)
        whole = (row - split.first_row) // split.shard_size
        beyond = [shard for shard in range(whole, len(self._state)) if self._state[shard] == DONE]
        if beyond:
            raise InvalidValueError(
                f"rows up to {self.split.rows(beyond[-1])[1]} are trained, got {row} as the end; end it later"
            )
        self.changes.note(f"close_at {row}")
        self._cut(split, whole)

    # checkpoint and recovery

    def checkpoint(self) -> LedgerCheckpoint:
        """Return what `restore` needs; DOING shards are saved as begun ones."""
        done = bits_of(self._state, DONE)
        skipped = shards_in(self._state, SKIPPED) if self._n_skipped else ()
        begun = tuple(sorted(self._rows.begun.items()))
        return LedgerCheckpoint(self.split, done, begun, tuple(int(s) for s in skipped), self._is_closed)

    def restore(self, checkpoint: LedgerCheckpoint | None = None) -> None:
        """Roll back to a checkpoint (None: to the beginning); all leases become stale.

        Deaths and decisions are kept: older parameters do not undo them.

        Raises
        ------
        CheckpointError
            When it was made of another split.
        """
        if checkpoint is None:
            checkpoint = LedgerCheckpoint(self.split, b"", ())
        split = self.split.merged(checkpoint.split)
        if self.changes.is_kept:
            self.changes.note(f"restore {codec.to_json(checkpoint).decode()}")
        skipped = {*checkpoint.skipped, *map(int, shards_in(self._state, SKIPPED))}
        self._n_returned += len(self._holds)
        self._holds = Holds()
        self.split, self._is_closed = split, self._is_closed or checkpoint.is_closed
        self._state = states_of(checkpoint, split)
        self._put_aside(skipped)
        done = shards_in(self._state, DONE)
        self._n_done, self._n_quarantined = len(done), self._state.count(QUARANTINED)
        self._n_skipped = self._state.count(SKIPPED)
        self._rows = RowsDone(self.split.n_row_of(done), still_begun(checkpoint, self.split, self._state))
        self.queue = ShardQueue(split)

    def record(self) -> LedgerRecord:
        """Return the complete state, for `from_record`."""
        return LedgerRecord(
            checkpoint=self.checkpoint(),
            n_known=len(self._state),
            held=self._holds.records(),
            returned=tuple(self.queue.returned),
            epoch=self.queue.epoch,
            place=self.queue.place,
            deaths=self._deaths.items(),
            n_grant=self._n_grant,
            n_refused=self._n_refused,
            n_returned=self._n_returned,
        )

    @classmethod
    def from_record(cls, record: LedgerRecord) -> ShardLedger:
        """Return a ledger with the shards, grants, holders and counts of a record.

        Raises
        ------
        CheckpointError
            When the record contradicts itself.
        """
        ledger = cls(record.checkpoint.split)
        ledger._deaths = Deaths(record.deaths)
        ledger._resume(record)
        return ledger

    def _resume(self, record: LedgerRecord) -> None:
        self.restore(record.checkpoint)
        self._state.extend(bytes(max(0, record.n_known - len(self._state))))
        self.queue = ShardQueue(self.split, record.epoch, record.place, record.returned)
        for hold in record.held:
            if not hold.shard < len(self._state):
                raise CheckpointError(f"expected a shard below {len(self._state)}, got {hold}")
            self._state[hold.shard] = DOING
            is_piece = hold.until < self.split.n_row(hold.shard)
            self._holds.add(hold.shard, Hold(hold.owner, hold.grant, hold.until, is_piece))
        self._n_grant, self._n_refused = record.n_grant, record.n_refused
        self._n_returned = record.n_returned

    # parts

    def refuse(self) -> None:
        """Count a report that is no longer valid."""
        self.changes.note("refuse")
        self._n_refused += 1

    def _admits(self, owner: str, lease: Lease) -> bool:
        if self.holds(owner, lease):
            return True
        self.refuse()
        return False

    def _acknowledge(self, shard: int, n_row_done: int) -> None:
        if self._rows.acknowledge(shard, n_row_done):
            self._deaths.forget(shard)

    def _end_quarantine(self, shard: int, state: int) -> None:
        self._deaths.acquit(shard)
        self._state[shard] = state
        self._n_quarantined -= 1

    def _cut(self, split: Split, whole: int) -> None:
        """Set the end of a stream: drop the shards after it, and restart the one that it cuts."""
        for shard in [s for s in self._holds if s >= whole]:
            self._holds.let_go(shard)
            self._n_returned += 1
        self._rows.forget_from(whole)
        self._deaths.keep(lambda shard: shard < whole)
        self._n_quarantined -= self._state[whole:].count(QUARANTINED)
        self._n_skipped -= self._state[whole:].count(SKIPPED)
        self.split = split
        del self._state[whole:]
        self._state.extend(bytes(split.n_shard - len(self._state)))
        returned = [shard for shard in self.queue.returned if shard < whole]
        self.queue = ShardQueue(split, 0, min(self.queue.place, whole), returned)

    def _put_aside(self, skipped: set[int]) -> None:
        for shard in skipped:
            if shard < len(self._state) and self._state[shard] == TODO:
                self._state[shard] = SKIPPED
        self._deaths.keep(lambda shard: state_at(self._state, shard) == TODO)
        for shard in self._deaths.suspects():
            self._state.extend(bytes(max(0, shard + 1 - len(self._state))))
            self._state[shard] = QUARANTINED

    def _n_sample_skipped(self) -> int:
        """Count skipped rows; of a closed ledger, all rows that are neither done nor held."""
        n_row = self.split.n_row
        if self._is_closed:
            n_coming = sum(n_row(shard) - self._rows.of(shard) for shard in self._holds)
            return self.split.n_row_in(len(self._state)) - self._rows.n_row - n_coming
        skipped = shards_in(self._state, SKIPPED)
        return self.split.n_row_of(skipped) - sum(self._rows.of(int(shard)) for shard in skipped)
