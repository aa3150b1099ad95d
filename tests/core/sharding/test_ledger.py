"""Laws of the shard ledger: nothing lost, nothing counted twice, whatever happens in which order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dlrover_nb.core import codec
from dlrover_nb.core.errors import CheckpointError, InvalidValueError
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import LedgerCheckpoint, Split
from dlrover_nb.core.structs.shards import Lease, Purpose, Shard

SPLITS = st.builds(
    Split,
    n_sample=st.integers(0, 60),
    batch_size=st.integers(1, 7),
    shard_batches=st.integers(1, 4),
    n_epoch=st.integers(1, 3),
    seed=st.integers(0, 5),
    first_row=st.sampled_from([0, 100]),
)
OWNERS = st.sampled_from(["worker-0", "worker-1", "worker-2"])


@settings(deadline=None, max_examples=100)
@given(SPLITS)
def test_shards_of_a_pass_cover_every_row_once(split: Split) -> None:
    for epoch in range(split.n_epoch):
        rows = [row for shard in split.order(epoch) for row in range(*split.rows(int(shard)))]
        assert sorted(rows) == list(range(split.first_row, split.first_row + split.n_sample))
    assert split.n_shard_per_epoch == math.ceil(split.n_sample / (split.batch_size * split.shard_batches))


def test_a_lone_worker_gets_the_passes_in_order_and_each_in_another_order() -> None:
    ledger = ShardLedger(Split(1000, 10, 5, n_epoch=2, seed=3))
    shards = [ledger.grant("worker-0") for _ in range(40)]
    assert [s.epoch for s in shards if s] == [0] * 20 + [1] * 20
    starts = [s.start for s in shards if s]
    assert starts[:20] != starts[20:]
    assert starts[:20] != sorted(starts[:20])
    assert ledger.grant("worker-0") is None
    again = ShardLedger(ledger.split)
    assert shards == [again.grant("worker-0") for _ in range(40)]


def test_done_is_ceil_n_over_bm_and_samples_are_exact() -> None:
    ledger = ShardLedger(Split(179_569, 512, 20))
    while shard := ledger.grant("worker-0"):
        assert ledger.complete("worker-0", shard.lease)
    counts = ledger.counts()
    assert counts.done == 18  # ceil(179569 / 10240)
    assert (counts.n_sample_done, counts.finished, ledger.finished) == (179_569, True, True)


def test_a_returned_shard_keeps_acknowledged_rows_and_comes_first() -> None:
    ledger = ShardLedger(Split(100, 10, 5))
    shard = _granted(ledger)
    assert ledger.progress("worker-0", shard.lease, 30)
    assert ledger.release("worker-0") == 1
    again = ledger.grant("worker-1")
    assert again is not None
    assert (again.start, again.offset, again.lease.grant) == (shard.start, 30, 2)
    assert ledger.counts().n_sample_done == 30


def test_late_and_double_reports_are_refused_and_counted() -> None:
    ledger = ShardLedger(Split(100, 10, 5))
    shard = _granted(ledger)
    ledger.release("worker-0")
    again = ledger.grant("worker-0")
    assert again is not None
    assert not ledger.complete("worker-0", shard.lease)
    assert not ledger.complete("worker-1", again.lease)
    assert ledger.complete("worker-0", again.lease)
    assert not ledger.complete("worker-0", again.lease)
    assert not ledger.progress("worker-0", Lease(Purpose.TRAIN, 99, 1), 1)
    assert (ledger.counts().refused, ledger.counts().done) == (4, 1)


def test_a_returned_shard_that_a_restored_checkpoint_knows_as_done_is_not_handed_out_again() -> None:
    ledger = ShardLedger(Split(100, 10, 5))
    empty = ledger.checkpoint()
    shard = _granted(ledger)
    ledger.complete("worker-0", shard.lease)
    one_done = ledger.checkpoint()
    ledger.restore(empty)
    assert _granted(ledger).start == shard.start
    ledger.release("worker-0")
    ledger.restore(one_done)
    assert _granted(ledger).start != shard.start
    assert ledger.grant("worker-0") is None


def test_an_empty_split_is_finished() -> None:
    ledger = ShardLedger(Split(0, 10, 5, purpose=Purpose.EVALUATE))
    assert ledger.finished
    assert ledger.grant("worker-0") is None
    ledger.restore(ledger.checkpoint())
    assert ledger.finished


def test_a_checkpoint_of_another_split_is_refused() -> None:
    with pytest.raises(CheckpointError, match="goes on only with the data"):
        ShardLedger(Split(100, 10, 5)).restore(ShardLedger(Split(100, 10, 4)).checkpoint())


def test_a_split_refuses_a_batch_of_nothing() -> None:
    with pytest.raises(InvalidValueError, match="batch_size must be >= 1"):
        Split(100, 0, 5)


def _granted(ledger: ShardLedger) -> Shard:
    shard = ledger.grant("worker-0")
    assert shard is not None
    return shard


class LedgerMachine(RuleBasedStateMachine):
    """Any sequence of grants, reports, deaths and restores, beside a plain model of what was trained."""

    @initialize(split=SPLITS)
    def begin(self, split: Split) -> None:
        self.ledger = ShardLedger(split)
        self.trained = np.zeros((split.n_epoch, split.first_row + split.n_sample), int)
        self.leases: list[tuple[str, Shard, int]] = []
        self.checkpoint: tuple[LedgerCheckpoint, np.ndarray] | None = None

    @rule(owner=OWNERS)
    def grant(self, owner: str) -> None:
        shard = self.ledger.grant(owner)
        if shard:
            assert not any(s.lease == shard.lease for _, s, _ in self.leases)
            self.leases.append((owner, shard, shard.offset))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), n_row=st.integers(0, 30))
    def train(self, data: st.DataObject, n_row: int) -> None:
        """A holder, late or not, trains some rows and reports them."""
        at = data.draw(st.integers(0, len(self.leases) - 1))
        owner, shard, done = self.leases[at]
        reached = min(done + n_row, self.ledger.split.n_row(shard.lease.shard))
        self._mark(shard, reached)
        self.leases[at] = (owner, shard, reached)
        self.ledger.progress(owner, shard.lease, reached)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        owner, shard, _ = data.draw(st.sampled_from(self.leases))
        held = self.ledger.holds(owner, shard.lease)
        self._mark(shard, self.ledger.split.n_row(shard.lease.shard))
        assert self.ledger.complete(owner, shard.lease) == held
        assert not self.ledger.complete(owner, shard.lease)

    @rule(owner=OWNERS)
    def release(self, owner: str) -> None:
        held = sum(self.ledger.holds(o, s.lease) for o, s, _ in self.leases if o == owner)
        assert self.ledger.release(owner) == held
        assert self.ledger.release(owner) == 0

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

    @invariant()
    def counts_add_up(self) -> None:
        counts, split = self.ledger.counts(), self.ledger.split
        assert counts.todo + counts.doing + counts.done == split.n_shard
        assert min(counts.todo, counts.doing, counts.done) >= 0
        assert 0 <= counts.n_sample_done <= counts.n_sample_total == split.n_sample * split.n_epoch
        assert int(np.count_nonzero(self.trained)) >= counts.n_sample_done

    def teardown(self) -> None:
        """When all workers of the past die, a last one can finish: every row was trained in each pass."""
        if not hasattr(self, "ledger"):
            return
        for owner in ("worker-0", "worker-1", "worker-2"):
            self.ledger.release(owner)
        while shard := self.ledger.grant("last"):
            self._mark(shard, self.ledger.split.n_row(shard.lease.shard))
            assert self.ledger.complete("last", shard.lease)
        split = self.ledger.split
        assert self.ledger.finished
        assert (self.trained[:, split.first_row :] >= 1).all()
        assert self.ledger.counts().n_sample_done == split.n_sample * split.n_epoch

    def _mark(self, shard: Shard, n_row: int) -> None:
        self.trained[shard.epoch, shard.start + shard.offset : shard.start + n_row] += 1


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(deadline=None, max_examples=120, stateful_step_count=30)
