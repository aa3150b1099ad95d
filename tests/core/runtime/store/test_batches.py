from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dlrover_nb.core.data import Batch
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.runtime.store.batches import BucketLayout, ShardWork, prepare_batch
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.shards import Lease, Purpose, Shard

IDS = hnp.arrays(np.int64, st.tuples(st.integers(1, 20), st.integers(0, 4)), elements=st.integers(0, 2000))


def layout(n_ps):
    return BucketLayout(np.array(even_bucket_owner(n_ps)), n_ps)


@settings(deadline=None, max_examples=100)
@given(ids=IDS, n_ps=st.integers(1, 5))
def test_a_prepared_batch_has_each_row_once_at_its_owner(ids, n_ps):
    n = len(ids)
    batch = prepare_batch(ids, np.zeros((n, 1), np.float32), np.zeros(n, np.float32), layout(n_ps))
    np.testing.assert_array_equal(batch.rows[batch.inverse], ids.ravel())
    assert len(np.unique(batch.rows)) == len(batch.rows)
    assert (batch.bounds[0], batch.bounds[-1], len(batch.bounds)) == (0, len(batch.rows), n_ps + 1)
    for i in range(n_ps):
        mine = batch.rows[batch.bounds[i] : batch.bounds[i + 1]]
        assert np.all(mine % N_BUCKET % n_ps == i)


def work(n, *, purpose=Purpose.TRAIN, start=0, epoch=0, seed=0, offset=0, until=None):
    data = Batch(np.arange(n)[:, None], np.zeros((n, 1), np.float32), np.arange(n, dtype=np.float32))
    shard = Shard(Lease(purpose, 0, 1), epoch, start, start + n, offset, until)
    return ShardWork(shard, data, seed=seed)


def order(work, batch_size):
    batches = iter(lambda: work.take(batch_size, layout(2)), None)
    return [batch.labels for batch in batches]


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(1, 100), batch_size=st.integers(1, 30), start=st.integers(0, 1000), seed=st.integers(-5, 5)
)
def test_batches_hold_every_row_once_in_an_order_that_only_the_seed_and_place_decide(
    n, batch_size, start, seed
):
    batches = order(work(n, start=start, seed=seed), batch_size)
    assert [len(b) for b in batches[:-1]] == [batch_size] * (len(batches) - 1)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(n))
    again = order(work(n, start=start, seed=seed, offset=batch_size), batch_size)
    for one, other in zip(batches[1:], again, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 60), cuts=st.lists(st.integers(0, 60), max_size=3), data=st.data())
def test_pieces_of_a_shard_hold_its_rows_once_whatever_the_batch_size_of_each(n, cuts, data):
    bounds = [0, *sorted(min(c, n) for c in cuts), n]
    rows = []
    for offset, until in itertools.pairwise(bounds):
        piece = work(n, offset=offset, until=until)
        rows += order(piece, data.draw(st.integers(1, 20)))
        piece.acknowledge(until - offset)
        assert (piece.finished, piece.n_row_done) == (True, until)
    np.testing.assert_array_equal(np.concatenate(rows), np.concatenate(order(work(n), 10)))


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 60), sizes=st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1))
def test_the_size_of_batches_may_change_and_what_was_not_done_is_taken_again(n, sizes):
    shard, rows = work(n), []
    for size, is_done in sizes:
        batch = shard.take(size, layout(1))
        if batch is not None and is_done:
            rows.append(batch.labels)
            shard.acknowledge(len(batch.labels))
        shard.rewind()
    whole = np.concatenate(order(work(n), 7))
    assert shard.finished == (shard.n_row_done == n)
    np.testing.assert_array_equal(np.concatenate([*rows, whole[:0]]), whole[: shard.n_row_done])


def test_passes_and_shards_are_shuffled_differently():
    orders = [np.concatenate(order(work(50, start=s, epoch=e, seed=d), 10)) for s, e, d in SOME_PLACES]
    assert len({o.tobytes() for o in orders}) == len(SOME_PLACES)


SOME_PLACES = [(0, 0, 0), (50, 0, 0), (0, 1, 0), (0, 0, 1)]


def test_evaluation_rows_stay_in_their_order_and_start_at_the_beginning():
    evaluation = work(25, purpose=Purpose.EVALUATE, offset=20)
    assert evaluation.n_row_done == 0
    np.testing.assert_array_equal(np.concatenate(order(evaluation, 10)), np.arange(25))
    assert work(25, offset=20).n_row_done == 20
    assert work(25, offset=25).finished
