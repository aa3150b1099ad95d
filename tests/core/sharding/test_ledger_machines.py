"""Any sequence of what may happen to a shard ledger, beside a plain model of what was trained."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from test_ledger import OWNERS, SPLITS, STREAMS

from dlrover_nb.core import codec
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.sharding.changes import apply_changes
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import LedgerCheckpoint, LedgerRecord

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.shards import Lease, Shard


class LedgerMachine(RuleBasedStateMachine):
    """Any sequence of grants, reports, deaths, decisions and restores, beside a plain model of what was trained.

    A second ledger is rebuilt from a record of the first and its changes since then, now and again.
    """

    splits = SPLITS

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        split = data.draw(self.splits)
        self.ledger = ShardLedger(split)
        self.ledger.changes.keep()
        self.record, self.changes = self.ledger.record(), b""
        self.trained: Counter[tuple[int, int]] = Counter()
        self.leases: list[tuple[str, Shard, int]] = []
        self.granted: set[Lease] = set()
        self.checkpoint: tuple[LedgerCheckpoint, Counter[tuple[int, int]]] | None = None
        self.skipped: set[int] = set()
        self.is_closed = False

    @rule(owner=OWNERS, most=st.sampled_from([None, None, 1, 2]))
    def grant(self, owner: str, most: int | None) -> None:
        shard = self.ledger.grant(owner, most_batches=most)
        if shard:
            assert shard.lease not in self.granted
            assert shard.lease.shard not in self.skipped
            assert shard.offset <= shard.end <= shard.stop - shard.start
            self.granted.add(shard.lease)
            self.leases.append((owner, shard, shard.offset))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), n_row=st.integers(0, 30))
    def train(self, data: st.DataObject, n_row: int) -> None:
        """A holder, late or not, trains some rows and reports them."""
        at = data.draw(st.integers(0, len(self.leases) - 1))
        owner, shard, done = self.leases[at]
        reached = min(done + n_row, shard.end)
        self._mark(shard, reached)
        self.leases[at] = (owner, shard, reached)
        assert self.ledger.progress(owner, shard.lease, reached) == self.ledger.holds(owner, shard.lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        owner, shard, _ = data.draw(st.sampled_from(self.leases))
        held = self.ledger.holds(owner, shard.lease)
        self._mark(shard, shard.end)
        assert self.ledger.complete(owner, shard.lease) == held
        assert not self.ledger.complete(owner, shard.lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        owner, shard, _ = data.draw(st.sampled_from(self.leases))
        others = set(self.ledger.leases(owner)) - {shard.lease}
        held = self.ledger.holds(owner, shard.lease)
        assert self.ledger.give_back(owner, shard.lease) == held
        assert set(self.ledger.leases(owner)) == others

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        """An owner says twice how far it came with a shard; neither counts as refused."""
        owner, shard, reached = data.draw(st.sampled_from(self.leases))
        held, refused = self.ledger.holds(owner, shard.lease), self.ledger.counts().refused
        assert self.ledger.let_go(owner, shard.lease, reached) == held
        assert not self.ledger.let_go(owner, shard.lease, reached)
        assert self.ledger.counts().refused == refused

    @rule(owner=OWNERS, killed=st.booleans())
    def release(self, owner: str, *, killed: bool) -> None:
        held = sum(self.ledger.holds(o, s.lease) for o, s, _ in self.leases if o == owner)
        assert self.ledger.release(owner, killed=killed) == held
        assert self.ledger.release(owner, killed=killed) == 0

    @precondition(lambda self: self.ledger.quarantined())
    @rule(data=st.data(), again=st.booleans())
    def decide(self, data: st.DataObject, *, again: bool) -> None:
        shard = data.draw(st.sampled_from(self.ledger.quarantined())).shard
        if again:
            self.ledger.retry(shard)
        else:
            self.ledger.skip(shard)
            self.skipped.add(shard)

    @rule()
    def save(self) -> None:
        record = codec.from_json(codec.to_json(self.ledger.checkpoint()), LedgerCheckpoint)
        self.checkpoint = record, self.trained.copy()

    @precondition(lambda self: self.checkpoint is not None)
    @rule()
    def restore(self) -> None:
        """Parameters go back with the queue: what was trained since is forgotten."""
        assert self.checkpoint is not None
        self.ledger.restore(self.checkpoint[0])
        self.trained = self.checkpoint[1].copy()
        assert not any(self.ledger.holds(o, s.lease) for o, s, _ in self.leases)

    @rule()
    def write_record(self) -> None:
        self._drain()
        self.record, self.changes = self.ledger.record(), b""

    @rule()
    def come_back(self) -> None:
        """The job master is killed: what it wrote down is the whole truth."""
        self._drain()
        back = ShardLedger.from_record(codec.from_json(codec.to_json(self.record), LedgerRecord))
        apply_changes(back, self.changes)
        assert (back.record(), back.counts()) == (self.ledger.record(), self.ledger.counts())
        back.changes.keep()
        self.ledger = back

    @invariant()
    def counts_add_up(self) -> None:
        if not hasattr(self, "ledger"):
            return
        counts, split = self.ledger.counts(), self.ledger.split
        parts = (counts.todo, counts.doing, counts.done, counts.quarantined, counts.skipped)
        assert min(parts) >= 0
        assert split.is_open or sum(parts) == split.n_shard
        assert counts.quarantined == len(self.ledger.quarantined())
        assert counts.finished == self.ledger.finished
        assert self.is_closed or counts.skipped == len(self.skipped)
        assert counts.n_sample_done >= 0
        assert counts.n_sample_done + counts.n_sample_skipped <= counts.n_sample_total
        assert len(self.trained) >= counts.n_sample_done

    def teardown(self) -> None:
        """When all workers of the past die, a last one can finish: all but what was given up was trained."""
        if not hasattr(self, "ledger"):
            return
        for owner in ("worker-0", "worker-1", "worker-2"):
            self.ledger.release(owner)
        for told in self.ledger.quarantined():
            self.ledger.retry(told.shard)
        self._end_stream()
        while shard := self.ledger.grant("last"):
            self._mark(shard, shard.end)
            assert self.ledger.complete("last", shard.lease)
        split, counts = self.ledger.split, self.ledger.counts()
        assert self.ledger.finished
        assert split.n_sample is not None or self.is_closed
        if not self.is_closed:
            given_up = {(split.epoch(s), r) for s in self.skipped for r in range(*split.rows(s))}
            first = split.first_row
            rows = {(e, r) for e in range(split.n_epoch) for r in range(first, first + split.n_sample)}
            assert set(self.trained) | given_up >= rows
        assert counts.n_sample_done + counts.n_sample_skipped == counts.n_sample_total

    def _end_stream(self) -> None:
        """Only a stream has to be ended."""

    def _drain(self) -> None:
        self.changes += self.ledger.changes.drain()

    def _mark(self, shard: Shard, n_row: int) -> None:
        for row in range(shard.start + shard.offset, shard.start + n_row):
            self.trained[shard.epoch, row] += 1


class StreamMachine(LedgerMachine):
    """The same of a stream, whose end is told at some time."""

    splits = STREAMS

    @precondition(lambda self: self.ledger.split.is_open)
    @rule(n_row=st.integers(0, 40))
    def close_at(self, n_row: int) -> None:
        split = self.ledger.split
        try:
            self.ledger.close_at(split.first_row + n_row)
        except InvalidValueError:
            return
        whole = n_row // split.shard_size
        self.skipped = {shard for shard in self.skipped if shard < whole}
        self.trained = Counter({at: n for at, n in self.trained.items() if at[1] < split.first_row + n_row})

    def _end_stream(self) -> None:
        if self.ledger.split.is_open:
            seen = [row for _, row in self.trained]
            size, first = self.ledger.split.shard_size, self.ledger.split.first_row
            n_shard = max(((row - first) // size + 1 for row in seen), default=0)
            n_shard = max((n_shard, *(shard + 1 for shard in self.skipped)))
            self.ledger.close_at(first + n_shard * size)


class ClosingMachine(LedgerMachine):
    """The same of a ledger that is closed at some time."""

    @rule()
    def close(self) -> None:
        self.ledger.close()
        self.is_closed = True
        assert self.ledger.grant("worker-0") is None


TestLedgerMachine = LedgerMachine.TestCase
TestStreamMachine = StreamMachine.TestCase
TestClosingMachine = ClosingMachine.TestCase
for case in (TestLedgerMachine, TestStreamMachine, TestClosingMachine):
    case.settings = settings(deadline=None, max_examples=100, stateful_step_count=30)
