"""A hash map that grows in steps is a dictionary at every moment, on each kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_world import every_kernel  # noqa: F401

from dlrover_nb.core.runtime.kernels import kernel, maps
from dlrover_nb.core.runtime.kernels.mixing import splitmix64
from dlrover_nb.core.runtime.store import ParameterStore, StorePart
from dlrover_nb.core.structs.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.job import Embedding, ModelSpec

laws = settings(deadline=None, max_examples=20)
FIRST_PLACES = 16
MODEL = ModelSpec(embedding_dim=2, hidden=(4,), embedding=Embedding.HASH, seed=3)


def ids_of_homes(homes, n_place, n):
    """Return ids whose home in a table of `n_place` is one of `homes`."""
    ids = np.arange(n * n_place // len(homes) * 2)
    return ids[np.isin(splitmix64(ids.astype(np.uint64)) & np.uint64(n_place - 1), homes)][:n]


POOLS = {
    "all": np.concatenate([np.arange(3000), np.arange(100) * 2**55 + 3000, [2**63 - 1]]),
    "runs across the end": ids_of_homes([0, 1, 254, 255], 256, 400),  # and of each smaller table
}


@pytest.fixture(autouse=True, scope="module")
def slow_growth():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "_STEP", 1)
        patch.setattr(maps, "_FIRST_PLACES", FIRST_PLACES)
        yield


def grows(slots):
    return slots._front < len(slots._old)


def check(slots, expected, absent):
    asked = np.array([*expected, *absent], np.int64)
    found = slots.find(asked).tolist()
    assert found == [expected.get(i, -1) for i in asked.tolist()]


@pytest.mark.parametrize("pool", POOLS)
@settings(laws, max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_a_growing_map_is_a_dictionary(pool, seed):
    rng, slots, expected, gone, n_slot, n_growing = (
        np.random.default_rng(seed),
        kernel().hash_map(),
        {},
        [],
        0,
        0,
    )
    ids = rng.permutation(POOLS[pool])
    largest = rng.choice([1, 3, 9])
    while len(ids) > 50 and len(expected) < 400:
        if rng.random() < 0.7:
            new = [*ids[: rng.integers(0, largest + 1)].tolist(), *gone[: rng.integers(0, 2)]]
            ids, gone = ids[len(new) :], [i for i in gone if i not in new]
            slots.insert(np.array(new, np.int64), n_slot)
            expected.update(zip(new, range(n_slot, n_slot + len(new)), strict=True))
            n_slot += len(new)
        elif expected:
            some = rng.choice([*expected], rng.integers(0, min(10, len(expected)) + 1), replace=False)
            others = np.where(rng.random(len(some)) < 0.4, -1, rng.integers(0, 10**6, len(some))).astype(
                np.int32
            )
            slots.replace(some, others)
            gone += some[others < 0].tolist()
            expected.update(zip(some.tolist(), others.tolist(), strict=True))
            expected = {i: slot for i, slot in expected.items() if slot >= 0}
        n_growing += grows(slots)
        check(slots, expected, [*gone, *ids[:20].tolist()])
    assert n_growing > 5


@laws
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=60), seed=st.integers(0, 2**32))
def test_work_per_call_is_bounded_by_its_own_ids_and_growth_ends_before_the_next(sizes, seed):
    slots, n, moved, left = kernel().hash_map(), 0, [], []
    move, begin = slots._move, slots._begin_growth
    slots._move = lambda start, stop, *, wrapped: (
        moved.append((stop - start) * (not wrapped)),
        move(start, stop, wrapped=wrapped),
    )
    slots._begin_growth = lambda: (left.append(len(slots._old) - slots._front), begin())
    ids = np.random.default_rng(seed).permutation(2**16)
    for size in sizes:
        moved.clear()
        slots.insert(ids[n : n + size], n)
        n += size
        longest_run = 64  # at most 5/8 of the places are taken
        assert sum(moved) <= 2 * (max(1, maps._STEP_PER_ID * size) + longest_run)
        assert np.count_nonzero(slots._new.array[:, 0]) <= len(slots._new) // 2
        assert np.count_nonzero(slots._old.array[:, 0]) <= max(0.63 * len(slots._old), 10)
    assert not any(left)
    check(slots, {int(i): slot for slot, i in enumerate(ids[:n])}, ids[n : n + 100].tolist())


def test_look_ups_alone_end_a_growth_and_free_the_old_table():
    slots, ids = kernel().hash_map(), np.arange(128)
    slots.insert(ids, 0)
    while not grows(slots) or len(slots._old) == FIRST_PLACES:
        slots.insert(np.array([len(ids)]), len(ids))
        ids = np.arange(len(ids) + 1)
    before = slots.n_byte
    for _ in range(len(slots._old)):
        np.testing.assert_array_equal(slots.find(ids), ids)
    assert not grows(slots)
    assert slots.n_byte < before


def test_a_map_whose_rows_go_and_come_takes_no_more_memory():
    slots, n = kernel().hash_map(), 0
    slots.insert(np.arange(100), 0)
    for first in range(100, 20_000, 50):
        slots.replace(np.arange(first - 100, first - 50), np.full(50, -1, np.int32))
        slots.insert(np.arange(first, first + 50), first)
        n = max(n, slots.n_byte)
    assert n <= 2 * 16 * 512
    check(slots, {i: i for i in range(19_900, 20_000)}, range(19_800, 19_900))


@pytest.mark.parametrize("n_wrapped", [20, 700])
def test_memory_behind_the_front_is_returned_and_no_id_is_lost(monkeypatch, n_wrapped):
    monkeypatch.setattr(maps, "_KEPT", 256)
    monkeypatch.setattr(maps, "_RETURNED_BYTES", 4096)
    n_place = 1 << 12
    wrapped = ids_of_homes([n_place - 1], n_place, n_wrapped)
    others = np.setdiff1d(np.arange(n_place), wrapped)[: n_place // 2 - n_wrapped]
    slots, ids = kernel().hash_map(), np.concatenate([wrapped, others])
    slots._new = maps.Places(n_place)
    slots.insert(ids, 0)
    n_byte = []
    for new in range(10**7, 10**7 + 600):
        slots.insert(np.array([new]), len(ids))
        ids = np.append(ids, new)
        if new % 20 == 0:
            np.testing.assert_array_equal(slots.find(ids), np.arange(len(ids)))
        n_byte.append(slots.n_byte - slots._new.n_byte)
    returned = n_byte[0] - min(n_byte[: n_byte.index(16)])
    assert returned == 0 if n_wrapped > maps._KEPT else returned >= 8 * 4096


@laws
@given(seed=st.integers(0, 2**32))
def test_each_row_is_saved_and_moved_once_while_the_map_grows(seed):
    rng, store, trained, n_growing = np.random.default_rng(seed), ParameterStore(MODEL, 0, 0), set(), 0
    moving = rng.random(N_BUCKET) < 0.5
    moved = ParameterStore(MODEL, 0, 0)
    store.begin_move(moving)
    for _ in range(60):
        ids = rng.choice(5000, rng.integers(1, 30), replace=False)
        store.push(ids, rng.normal(size=(len(ids), MODEL.row_width)).astype(np.float32))
        trained |= set(ids.tolist())
        moved.absorb(store.take_pending(rng.integers(0, 40)))
        n_growing += grows(store._rows._map)
        part = store.export()
        assert sorted(part.ids.tolist()) == sorted(trained)
        np.testing.assert_array_equal(store.pull(part.ids), part.table[:, : MODEL.row_width])
    assert n_growing > 5
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
