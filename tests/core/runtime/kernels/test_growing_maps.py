"""A hash map that splits its pieces is a dictionary at every moment, on each kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import every_kernel, pieces_of  # noqa: F401 - the first repeats tests on each kernel

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.kernels import kernel, maps
from dlrover_nb.core.runtime.kernels.mixing import splitmix64
from dlrover_nb.core.runtime.store import ParameterStore, StorePart
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

laws = settings(deadline=None, max_examples=20)
N_LINE = 4
MODEL = ModelSpec(embedding_dim=2, hidden=(4,), embedding=Embedding.HASH, seed=3)
MIXED = splitmix64(np.arange(200_000).astype(np.uint64))


POOLS = {
    "all": np.concatenate([np.arange(3000), np.arange(100) * 2**55 + 3000, [2**63 - 1]]),
    "all of one line": np.flatnonzero(MIXED >> np.uint64(8) & np.uint64(N_LINE - 1) == N_LINE - 1)[:1000],
    "all of one tag": np.flatnonzero(MIXED.astype(np.uint8) == 0)[:700],
    "alike in their first bits": np.flatnonzero(MIXED >> np.uint64(56) == 77)[:700],
}


@pytest.fixture(autouse=True, scope="module")
def small_pieces():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "N_LINE", N_LINE)
        yield


class Table:
    """A map, and the id of each slot."""

    def __init__(self, most=100):
        self.slots, self.held, self.n = kernel().hash_map(most), np.zeros(10_000, np.int64), 0

    def insert(self, ids):
        self.held[self.n : self.n + len(ids)] = ids
        self.slots.insert(np.array(ids, np.int64), self.n, self.held)
        self.n += len(ids)

    def move(self, slots, to):
        ids = self.held[slots]
        self.slots.move(ids, slots.astype(np.int32), to.astype(np.int32))
        self.held[to[to >= 0]] = ids[to >= 0]

    def drop(self, slots):
        """Drop these rows, and move the last ones to their places."""
        self.move(slots, np.full(len(slots), -1))
        n = self.n - len(slots)
        stay = np.setdiff1d(np.arange(n, self.n), slots)
        self.move(stay, slots[slots < n])
        self.n = n

    @property
    def pieces(self):
        return pieces_of(self.slots)


@pytest.mark.more
@pytest.mark.parametrize("pool", POOLS)
@settings(laws, max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_a_growing_map_is_a_dictionary(pool, seed):
    rng, table, pool = np.random.default_rng(seed), Table(), POOLS[pool]
    largest = rng.choice([1, 3, 30])
    for _ in range(80):
        held = table.held[: table.n]
        if rng.random() < 0.8:
            table.insert(rng.permutation(np.setdiff1d(pool, held))[: rng.integers(0, largest + 1)])
        else:
            n_gone = rng.integers(0, min(table.n, largest) + 1)
            table.drop(np.sort(rng.choice(table.n, n_gone, replace=False)))
        held = table.held[: table.n]
        np.testing.assert_array_equal(table.slots.find(held, table.held), np.arange(table.n))
        assert (table.slots.find(np.setdiff1d(pool, held), table.held) == -1).all()
        assert table.pieces.n_row.sum() == table.n
        assert (table.pieces.n_row <= table.pieces.most).all()
    table.drop(np.arange(table.n))
    assert not table.pieces.lines["tags"].any()
    assert not table.pieces.lines["n_passed"].any()


@laws
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=60), seed=st.integers(0, 2**32))
def test_an_insertion_moves_rows_of_full_pieces_only_and_those_fit_in_one(sizes, seed):
    table, split, moved = Table(), [], []
    ids = np.random.default_rng(seed).permutation(2**16)
    whole, place = table.slots._split, table.slots._place
    table.slots._split = lambda piece, held: (split.append(piece), whole(piece, held))
    table.slots._place = lambda ids, slots: (moved.append(len(ids)), place(ids, slots))
    for size in sizes[:30]:
        before = table.pieces.n_row.copy()
        n_piece = len(before)
        split.clear()
        moved.clear()
        table.insert(ids[table.n : table.n + size])
        assert max(moved[:-1], default=0) <= table.pieces.most
        assert len(table.pieces.n_row) == n_piece + len(split)
        untouched = np.setdiff1d(np.arange(n_piece), split)
        assert (table.pieces.n_row[untouched] >= before[untouched]).all()
        assert set(table.pieces.directory.tolist()) == set(range(n_piece + len(split)))
    np.testing.assert_array_equal(table.slots.find(ids[: table.n], table.held), np.arange(table.n))


def test_a_map_whose_rows_go_and_come_takes_no_more_memory():
    table, n_byte = Table(), []
    table.insert(np.arange(100))
    for first in range(100, 20_000, 50):
        table.drop(np.flatnonzero(table.held[: table.n] < first - 50))
        table.insert(np.arange(first, first + 50))
        n_byte.append(table.slots.n_byte)
    assert n_byte[-1] <= 1.3 * n_byte[100]
    assert max(n_byte) <= 12 * 64 * N_LINE


def test_ids_that_were_made_to_agree_are_refused_and_nothing_is_lost(error_words):
    store = ParameterStore(MODEL, 0, 0)
    made = unmixed((np.arange(200) | 5 << 50).astype(np.uint64)).view(np.int64)
    made = made[made >= 0]
    ids = np.arange(30)
    store.push(ids, np.ones((30, MODEL.row_width), np.float32))
    before = store.pull(ids)
    with error_words(WireError):
        store.push(made, np.ones((len(made), MODEL.row_width), np.float32))
    np.testing.assert_array_equal(store.pull(ids), before)
    assert store.n_row == 30
    store.push(ids + 30, np.ones((30, MODEL.row_width), np.float32))
    assert sorted(store.export().ids.tolist()) == list(range(60))


def unmixed(x):
    """Return the numbers that SplitMix64 mixes to these."""

    def shifted(x, n):
        y = x
        for _ in range(64 // n):
            y = x ^ (y >> np.uint64(n))
        return y

    with np.errstate(over="ignore"):
        x = shifted(x, 31) * np.uint64(pow(0x94D049BB133111EB, -1, 2**64))
        x = shifted(x, 27) * np.uint64(pow(0xBF58476D1CE4E5B9, -1, 2**64))
        return shifted(x, 30) - np.uint64(0x9E3779B97F4A7C15)


@pytest.mark.more
@laws
@given(seed=st.integers(0, 2**32))
def test_each_row_is_saved_and_moved_once_while_the_map_grows(seed):
    rng, store, trained = np.random.default_rng(seed), ParameterStore(MODEL, 0, 0), set()
    moving = rng.random(N_BUCKET) < 0.5
    moved = ParameterStore(MODEL, 0, 0)
    store.begin_move(moving)
    for _ in range(60):
        ids = rng.choice(5000, rng.integers(1, 30), replace=False)
        store.push(ids, rng.normal(size=(len(ids), MODEL.row_width)).astype(np.float32))
        trained |= set(ids.tolist())
        moved.absorb(store.take_pending(rng.integers(0, 40)))
        part = store.export()
        assert sorted(part.ids.tolist()) == sorted(trained)
        np.testing.assert_array_equal(store.pull(part.ids), part.table[:, : MODEL.row_width])
    assert len(store._rows._map._n_row) > 5
    while store.n_pending:
        moved.absorb(store.take_pending(100))
    given_away = np.array(sorted(i for i in trained if moving[i % N_BUCKET]), np.int64)
    assert sorted(moved.export().ids.tolist()) == given_away.tolist()
    np.testing.assert_array_equal(moved.pull(given_away), store.pull(given_away))
    copy = ParameterStore(MODEL, 0, 0)
    copy.load(_copied(store.export()), ~moving)
    store.begin_drop(moving)
    while store.drop_some():
        pass
    kept = np.array(sorted(trained - set(given_away.tolist())), np.int64)
    for each in (store, copy):
        assert sorted(each.export().ids.tolist()) == kept.tolist()
    np.testing.assert_array_equal(store.pull(kept), copy.pull(kept))


def _copied(part):
    return StorePart(part.ids.copy(), part.table.copy(), part.dense_offset, part.dense.copy())
