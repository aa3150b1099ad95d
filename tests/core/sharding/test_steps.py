"""Steps of deterministic training: which shards make which, and when one is complete."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.sharding.changes import apply_changes
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import Split
from dlrover_nb.core.sharding.steps import Steps

splits = st.builds(
    Split,
    n_sample=st.integers(0, 60),
    batch_size=st.integers(1, 7),
    shard_batches=st.just(1),
    n_epoch=st.integers(1, 4),
    seed=st.integers(0, 5),
    step_shards=st.integers(1, 5),
    block_shards=st.integers(1, 4),
)


def order_of(split):
    return [int(shard) for epoch in range(split.n_epoch) for shard in split.order(epoch)]


@given(splits)
def test_steps_are_consecutive_shards_of_the_seeded_order(split):
    steps, order, size = Steps(split), order_of(split), split.step_shards
    n_step = -(-len(order) // size)
    assert [shard for step in range(n_step) for shard in steps.shards(step)] == order
    assert all(len(steps.shards(step)) == size for step in range(n_step - 1))
    assert steps.shards(n_step) == ()
    for number, shard in enumerate(order):
        assert (steps.unit(shard).number, steps.unit(shard).step) == (number, number // size)


@given(splits)
def test_shards_are_disjoint_parts_of_their_blocks_and_blocks_are_whole_in_the_order(split):
    if not split.n_shard:
        return
    ledger, trained, blocks = ShardLedger(split), [], []
    while (shard := ledger.grant("a")) is not None:
        assert 0 <= shard.offset < shard.end <= shard.stop - shard.start
        trained += [(shard.epoch, shard.start, place) for place in range(shard.offset, shard.end)]
        if not blocks or blocks[-1] != (shard.epoch, shard.start, shard.stop):
            blocks.append((shard.epoch, shard.start, shard.stop))
        ledger.complete("a", shard.lease)
    assert len(blocks) == len(set(blocks))
    assert len(set(trained)) == len(trained) == split.n_sample * split.n_epoch
    assert sum(stop - start for _, start, stop in blocks) == split.n_sample * split.n_epoch


@given(splits, st.integers(0, 60))
def test_rows_of_a_block_before_a_shard_count_for_nothing(split, n_more):
    ledger = ShardLedger(split)
    while (shard := ledger.grant("a")) is not None:
        assert ledger.progress("a", shard.lease, shard.offset)
        before = ledger.counts().n_sample_done
        n_row = shard.end - shard.offset
        assert ledger.progress("a", shard.lease, shard.offset + n_more)
        assert ledger.counts().n_sample_done - before == min(n_more, n_row)
        assert ledger.let_go("a", shard.lease, shard.end)
        assert ledger.counts().n_sample_done - before == n_row
    assert ledger.finished


class Played:
    """A ledger with workers that do what is drawn, and all that must be true of it meanwhile."""

    def __init__(self, split):
        self.ledger, self.order, self.size = ShardLedger(split), order_of(split), split.step_shards
        self.ledger.changes.keep()
        self.done, self.log = set(), b""

    def held(self, worker):
        return list(self.ledger.held(worker))

    def grant(self, worker):
        held = [unit for each in "abc" for unit in self.held(each)]
        shard = self.ledger.grant(worker)
        todo = [each for each in self.order if each not in self.done]
        free = [each for each in todo if each not in {other.lease.shard for other in held}]
        assert (shard is None) == (not free)
        if shard is not None:
            assert shard.lease.shard == free[0]  # so nothing of a later step before what is left of this one

    def complete(self, worker):
        open_ = [each for each in self.held(worker) if each.unit.step == self.ledger.n_step]
        if open_:
            assert self.ledger.complete(worker, open_[0].lease)
            self.done.add(open_[0].lease.shard)

    def release(self, worker):
        self.ledger.release(worker)

    def reopen(self, _worker):
        n_step = self.ledger.n_step
        whole = set(self.order[: n_step * self.size])
        assert self.ledger.reopen_step() == len(self.done - whole)
        assert self.ledger.n_step == n_step
        self.done &= whole

    def check(self):
        n_step = self.ledger.n_step
        assert set(self.order[: n_step * self.size]) <= self.done
        following = self.order[n_step * self.size :][: self.size]
        assert not following or not set(following) <= self.done
        counts = self.ledger.counts()
        assert counts.done == len(self.done)
        assert counts.n_sample_done == sum(map(self.ledger.split.n_row, self.done))
        assert counts.todo + counts.doing + counts.done == len(self.order)
        self.log += self.ledger.changes.drain()


@settings(deadline=None)
@given(splits, st.lists(st.tuples(st.sampled_from("gggcccrO"), st.sampled_from("abc")), max_size=60))
def test_whatever_workers_do_steps_are_complete_one_after_the_other(split, events):
    played = Played(split)
    act = {"g": played.grant, "c": played.complete, "r": played.release, "O": played.reopen}
    for event, worker in events:
        act[event](worker)
        played.check()
    replayed = ShardLedger(split)
    apply_changes(replayed, played.log)
    assert replayed.record() == played.ledger.record()
    again = ShardLedger.from_record(played.ledger.record())
    assert (again.n_step, again.counts()) == (played.ledger.n_step, played.ledger.counts())


def test_a_checkpoint_that_is_restored_opens_the_step_that_was_open_then():
    split = Split(40, 5, 1, step_shards=2)
    ledger = ShardLedger(split)
    for _ in range(4):
        ledger.complete("a", ledger.grant("a").lease)
    before = ledger.checkpoint()
    for _ in range(4):
        ledger.complete("a", ledger.grant("a").lease)
    assert ledger.n_step == 4
    ledger.restore(before)
    assert ledger.n_step == 2
    assert ledger.grant("b").unit.number == 4


def test_a_skipped_shard_keeps_no_step_open():
    ledger = ShardLedger(Split(20, 5, 1, step_shards=2))
    poison = ledger.grant("a").lease.shard
    ledger.release("a", killed=True)
    while not ledger.quarantined():
        name = f"w{ledger.counts().returned}"
        assert ledger.grant(name).lease.shard == poison
        ledger.release(name, killed=True)
    ledger.complete("b", ledger.grant("b").lease)
    assert ledger.n_step == 0
    ledger.skip(poison)
    assert ledger.n_step == 1


def test_who_dies_is_blamed_for_the_unit_that_it_computed_and_not_for_one_that_waits():
    ledger = ShardLedger(Split(20, 5, 1, step_shards=1))
    first, later = ledger.grant("a"), ledger.grant("b")
    ledger.release("a")
    assert ledger.grant("b").lease.shard == first.lease.shard  # beside the later one, which it got before
    killed = ["b"]
    ledger.release("b", killed=True)
    while not ledger.quarantined():
        killed.append(f"w{len(killed)}")
        ledger.grant(killed[-1])
        ledger.release(killed[-1], killed=True)
    (isolated,) = ledger.quarantined()
    assert (isolated.shard, list(isolated.killed)) == (first.lease.shard, killed)
    assert later.lease.shard != isolated.shard


def test_a_stream_has_no_steps(error_words):
    with error_words(InvalidValueError):
        Split(None, 5, 1, is_stream=True, step_shards=2)
