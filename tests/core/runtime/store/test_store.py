from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import every_kernel, push_as_requests_do  # noqa: F401 - the first repeats tests on each kernel

from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.runtime.kernels import kernel
from dlrover_nb.core.runtime.store import (
    ParameterStore,
    StorePart,
    dense_slice,
    even_bucket_owner,
    owned_buckets,
    pending,
    rows,
)
from dlrover_nb.core.runtime.store import store as store_module
from dlrover_nb.core.structs.job.job import Averages, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding, Optimizer
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

N_TABLE, N_DENSE = 5_000, 37
SPREAD = 1_844_674_407_370_955  # between the ids of a hashed table: so they reach 2**63
MODEL = ModelSpec(embedding_dim=3, seed=5)
AVERAGED = replace(MODEL, n_dense=N_DENSE, averages=(Averages(5, 0.1), Averages(4, 0.5)))
MODELS = [
    replace(AVERAGED, optimizer=optimizer, embedding=embedding)
    for optimizer in Optimizer
    for embedding in Embedding
]
ID = "{0.optimizer}-{0.embedding}".format
models = pytest.mark.parametrize("model", MODELS, ids=ID)
laws = settings(deadline=None, max_examples=10)


def make(model=MODEL, index=0, n_ps=1):
    store = ParameterStore(model, N_TABLE, N_DENSE, index=index, n_ps=n_ps)
    store.init_dense(np.linspace(-1, 1, N_DENSE, dtype=np.float32)[dense_slice(N_DENSE, index, n_ps)])
    return store


def ids_of(model, rows):
    return rows * SPREAD if model.embedding is Embedding.HASH else rows


def all_ids(model):
    return ids_of(model, np.arange(N_TABLE))


class Cluster:
    """Stores that share the buckets, used like one."""

    def __init__(self, stores):
        self.stores = stores
        self.owner = np.array(even_bucket_owner(len(stores)))

    def parts(self, ids):
        return [self.owner[ids % N_BUCKET] == i for i in range(len(self.stores))]

    def push(self, ids, gradients, dense):
        for i, (store, mine) in enumerate(zip(self.stores, self.parts(ids), strict=True)):
            store.push(ids[mine], gradients[mine])
            store.push_dense(dense[dense_slice(N_DENSE, i, len(self.stores))])

    def pull(self, ids):
        values = np.empty((len(ids), MODEL.row_width), np.float32)
        for store, mine in zip(self.stores, self.parts(ids), strict=True):
            values[mine] = store.pull(ids[mine])
        return values, np.concatenate([store.dense for store in self.stores])


def step(seed, model=MODEL, n=200):
    rng = np.random.default_rng(seed)
    ids = ids_of(model, rng.choice(N_TABLE, n, replace=False).astype(np.int64))
    return ids, rng.normal(size=(n, 4)).astype(np.float32), rng.normal(size=N_DENSE).astype(np.float32)


def assert_same(a, b, model):
    for x, y in zip(a.pull(all_ids(model)), b.pull(all_ids(model)), strict=True):
        np.testing.assert_array_equal(x, y)


def held(store):
    """Rows with state, by id."""
    part = store.export()
    return {int(i): row.tobytes() for i, row in zip(part.ids, part.table, strict=True)}


def in_order(store, gone):
    """Rows with state in the order of their ids, without those of buckets that are gone: quick to compare."""
    part = store.export()
    order = np.argsort(part.ids)
    order = order[~gone[part.ids[order] % N_BUCKET]]
    return part.ids[order].tobytes(), part.table[order].tobytes()


SEEDS = st.lists(st.integers(0, 2**32), min_size=1, max_size=5)


@pytest.mark.more
@models
@laws
@given(seeds=SEEDS, n_ps=st.integers(1, 7))
def test_any_number_of_ps_equals_one_bit_for_bit(model, seeds, n_ps):
    one, many = Cluster([make(model)]), Cluster([make(model, i, n_ps) for i in range(n_ps)])
    for seed in seeds:
        one.push(*step(seed, model))
        many.push(*step(seed, model))
    assert_same(one, many, model)
    n_trained = len(np.unique([step(s, model)[0] for s in seeds]))
    assert sum(s.n_row for s in many.stores) == one.stores[0].n_row == n_trained


@pytest.mark.more
@models
@laws
@given(seeds=SEEDS, before=st.integers(1, 5), after=st.integers(1, 5))
def test_what_n_ps_export_m_ps_load(model, seeds, before, after):
    old = Cluster([make(model, i, before) for i in range(before)])
    for seed in seeds:
        old.push(*step(seed, model))
    new = Cluster([ParameterStore(model, N_TABLE, N_DENSE, index=i, n_ps=after) for i in range(after)])
    for i, store in enumerate(new.stores):
        for part in old.stores:
            store.load(part.export(), owned_buckets(even_bucket_owner(after), i))
        assert store.export().dense.size
    for cluster in (old, new):
        cluster.push(*step(99, model))  # the optimizer's state came along, so the next step is the same
    assert_same(old, new, model)


BUCKETS = st.sets(st.integers(0, N_BUCKET - 1)).map(lambda chosen: np.isin(np.arange(N_BUCKET), list(chosen)))


@pytest.mark.more
@models
@laws
@given(before=SEEDS, during=SEEDS, moved=BUCKETS, limit=st.integers(1, 150))
def test_rows_that_move_during_training_arrive_as_if_they_had_stayed(model, before, during, moved, limit):
    source, target, stayed = make(model), make(model), make(model)
    for seed in before:
        push_as_requests_do(source, *step(seed, model)[:2])
        stayed.push(*step(seed, model)[:2])
    assert source.begin_move(moved) == sum(moved[i % N_BUCKET] for i in held(source))
    for seed in during:  # training goes on between two chunks
        target.absorb(source.take_pending(limit))
        push_as_requests_do(source, *step(seed, model)[:2])
        stayed.push(*step(seed, model)[:2])
    while source.n_pending:
        n_pending = source.n_pending
        target.absorb(source.take_pending(limit))
        assert source.n_pending == max(0, n_pending - limit)
    expected = held(stayed)
    leaving = {i: row for i, row in expected.items() if moved[i % N_BUCKET]}
    assert held(target) == leaving
    assert source.drop(moved) == len(leaving)
    assert held(source) == {i: row for i, row in expected.items() if i not in leaving}
    ids, gradients, _ = step(99, model)
    gone = moved[ids % N_BUCKET]
    source.push(ids[~gone], gradients[~gone])
    target.push(ids[gone], gradients[gone])
    stayed.push(ids, gradients)
    assert held(source) | held(target) == held(stayed)


@models
def test_rows_are_pending_again_whoever_changes_them(model, monkeypatch):
    monkeypatch.setattr(pending, "_SCAN", 100)
    served, single = make(model), make(model)
    for seed in range(4):
        for store in (served, single):
            store.push(*step(seed, model)[:2])
    for store in (served, single):
        store.begin_move(np.arange(N_BUCKET) % 3 > 0)
    n_served = 0
    for seed in range(3, 12):
        mine, theirs = (store.take_pending(90) for store in (served, single))
        np.testing.assert_array_equal(mine.ids, theirs.ids)
        np.testing.assert_array_equal(mine.table, theirs.table)
        n_served += push_as_requests_do(served, *step(seed, model)[:2])
        single.push(*step(seed, model)[:2])
        assert served.n_pending == single.n_pending
    mine, theirs = (store.take_pending(N_TABLE) for store in (served, single))
    np.testing.assert_array_equal(mine.ids, theirs.ids)
    assert n_served == 9 * (kernel().NAME == "c")
    assert held(served) == held(single)


@pytest.mark.more
@pytest.mark.release_variants(*(ID(model) for i, model in enumerate(MODELS) if i % 3))
@models
@laws
@given(
    before=SEEDS,
    during=SEEDS,
    gone=BUCKETS,
    most=st.integers(1, 150),
    searched=st.sampled_from((1, 60, 9999)),
)
def test_rows_dropped_little_by_little_are_out_of_the_way_at_each_step(
    model, before, during, gone, most, searched
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_MOST_SEARCHED", searched)
        patch.setattr(store_module, "_DROP", most)
        drop_by_steps(model, before, during, gone)


def drop_by_steps(model, before, during, gone):
    store, stayed = make(model), make(model)
    for seed in before:
        store.push(*step(seed, model)[:2])
        stayed.push(*step(seed, model)[:2])
    stayed.drop(gone)
    store.begin_drop(gone)
    seeds, has_more = [*during], True
    while has_more:
        has_more = store.drop_some()
        for seed in seeds[:1]:  # what stays is trained meanwhile
            ids, gradients, _ = step(seed, model)
            stays = ~gone[ids % N_BUCKET]
            store.push(ids[stays], gradients[stays])
            stayed.push(ids[stays], gradients[stays])
        seeds = seeds[1:]
        assert in_order(store, gone) == in_order(stayed, gone)
    assert held(store) == held(stayed)
    ids, gradients, _ = step(98, model)  # rows that come back begin anew
    store.push(ids, gradients)
    stayed.push(ids, gradients)
    assert held(store) == held(stayed)
    np.testing.assert_array_equal(store.pull(ids), stayed.pull(ids))


@models
def test_a_step_of_a_drop_searches_and_moves_few_rows_of_a_large_table(model, monkeypatch):
    monkeypatch.setattr(rows, "_MOST_SEARCHED", 50)
    store = make(model)
    store.push(all_ids(model), np.ones((N_TABLE, 4), np.float32))
    table, gone = store._rows, np.arange(N_BUCKET) == 9
    store.begin_drop(gone)
    has_more, n_step = True, 0
    while has_more:
        front, before, ids = table._front, table.n, table.ids[: table.n].copy()
        has_more = table.remove_some(100)
        assert table._front <= front + 50
        assert 0 <= before - table.n <= 100
        assert np.count_nonzero(table.ids[: table.n] != ids[: table.n]) <= before - table.n
        n_step += 1
    assert n_step > 10
    assert not gone[store.export().ids % N_BUCKET].any()
    store.begin_drop(gone)  # nothing is left of it
    assert not table.remove_some(100)
    assert table._front == 0


@models
def test_a_drop_of_all_amid_one_in_steps_leaves_nothing(model, monkeypatch):
    monkeypatch.setattr(store_module, "_DROP", 1000)
    store = make(model)
    store.push(all_ids(model), np.ones((N_TABLE, 4), np.float32))
    store.begin_drop(np.arange(N_BUCKET) >= 16)
    assert store.drop_some()
    store.drop(np.ones(N_BUCKET, np.bool_))
    while store.drop_some():
        assert store.n_row == 0
    assert held(store) == {}
    np.testing.assert_array_equal(store.pull(all_ids(model)), make(model).pull(all_ids(model)))


@models
def test_a_pushed_row_is_pending_again_and_a_cancelled_move_leaves_all_here(model):
    store = make(model)
    ids, gradients, _ = step(1, model)
    store.push(ids, gradients)
    store.begin_move(np.ones(N_BUCKET, np.bool_))
    store.take_pending(10**6)
    assert store.n_pending == 0
    store.push(ids[:3], gradients[:3])
    store.push(ids[:3], gradients[:3])
    assert store.n_pending == 3
    assert sorted(store.take_pending(10).ids) == sorted(ids[:3])
    store.push(ids[:3], gradients[:3])
    store.cancel_move()
    assert store.n_pending == 0
    store.push(ids, gradients)
    assert (store.n_pending, store.n_row) == (0, len(ids))


@models
def test_what_is_dropped_frees_its_memory(model):
    store = make(model)
    empty = store.n_byte
    ids = all_ids(model)
    store.push(ids, np.ones((N_TABLE, 4), np.float32))
    full, n_row = store.n_byte, store.n_row
    row = 4 * store.export().table.shape[1] + 8 + 2
    assert full - empty >= n_row * row
    kept = held(store)
    gone = np.arange(N_BUCKET) >= 16
    assert store.drop(gone) == n_row - store.n_row > 0
    assert store.n_byte == empty + store.n_row * row
    assert held(store) == {i: row for i, row in kept.items() if i % N_BUCKET < 16}
    np.testing.assert_array_equal(
        store.pull(ids)[ids % N_BUCKET >= 16], make(model).pull(ids)[ids % N_BUCKET >= 16]
    )


@models
@laws
@given(seeds=SEEDS, before=st.integers(1, 5), after=st.integers(1, 5), index=st.integers(0, 4))
def test_a_dense_slice_is_placed_anew_from_what_others_held(model, seeds, before, after, index):
    index %= after
    old = Cluster([make(model, i, before) for i in range(before)])
    for seed in seeds:
        old.push(*step(seed, model))
    store = old.stores[0]
    store.place_dense(index, after)
    for other in old.stores[1:]:
        store.load_dense(other.export())
    whole = make(model)
    for seed in seeds:
        whole.push_dense(step(seed)[2])
    placed = dense_slice(N_DENSE, index, after)
    assert store.export().dense_offset == placed.start
    gradient = step(99)[2]
    whole.push_dense(gradient)
    store.push_dense(gradient[placed])
    np.testing.assert_array_equal(store.export().dense, whole.export().dense[:, placed])


def test_a_dense_slice_is_ready_only_when_all_of_it_is_there():
    stores = [make(index=i, n_ps=3) for i in range(3)]
    whole = ParameterStore(MODEL, N_TABLE, N_DENSE)
    for i, store in enumerate(stores):
        assert whole.export().dense.shape == (2, 0)
        whole.load_dense(store.export())
        assert (whole.export().dense.shape == (2, N_DENSE)) is (i == 2)


@laws
@given(seed=st.integers(0, 2**32))
def test_the_order_of_distinct_rows_does_not_matter(seed):
    one, other = make(), make()
    rows, gradients, _ = step(seed)
    one.push(rows, gradients)
    order = np.random.default_rng(seed).permutation(len(rows))
    other.push(rows[order], gradients[order])
    np.testing.assert_array_equal(one.pull(np.arange(N_TABLE)), other.pull(np.arange(N_TABLE)))


def torch_optimizer(torch, model, parameters):
    rate = model.learning_rate
    match model.optimizer:
        case Optimizer.SGD:
            return torch.optim.SGD(parameters, lr=rate)
        case Optimizer.ADAGRAD:
            first = model.initial_accumulator
            return torch.optim.Adagrad(parameters, lr=rate, initial_accumulator_value=first, eps=0)
        case Optimizer.ADAM:
            return torch.optim.Adam(parameters, lr=rate, betas=(model.beta1, model.beta2), eps=model.epsilon)


@pytest.mark.more
@models
@pytest.mark.parametrize("n_step", [1, 20])
def test_updates_are_those_of_torch(model, n_step):
    torch = pytest.importorskip("torch")
    store = make(replace(model, averages=()))
    ids = ids_of(model, np.arange(10, 60))
    weight = torch.nn.Parameter(torch.from_numpy(store.pull(ids)))
    dense = torch.nn.Parameter(torch.from_numpy(store.dense))
    optimizer = torch_optimizer(torch, model, [weight, dense])
    for seed in range(n_step):
        _, gradients, dense_gradient = step(seed, n=50)
        weight.grad, dense.grad = torch.from_numpy(gradients), torch.from_numpy(dense_gradient)
        optimizer.step()
        store.push(ids, gradients)
        store.push_dense(dense_gradient)
    np.testing.assert_allclose(store.pull(ids), weight.detach().numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(store.dense, dense.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_a_row_counts_its_own_steps():
    """Adam on rows is lazy: a row that waited is updated as if the steps between had not been."""
    model = replace(MODEL, optimizer=Optimizer.ADAM)
    busy, waiting = make(model), make(model)
    ids, gradients, _ = step(1, model)
    for _ in range(50):
        busy.push(ids + 1, gradients)
    for store in (busy, waiting):
        store.push(ids[ids % 2 == 0], gradients[ids % 2 == 0])
    fresh = np.setdiff1d(ids[ids % 2 == 0], ids + 1)
    np.testing.assert_array_equal(busy.pull(fresh), waiting.pull(fresh))


def test_pulling_allocates_nothing_and_pushing_only_what_is_touched():
    store = make()
    store.pull(np.arange(N_TABLE))
    assert store.n_row == 0
    before = store.n_byte
    store.push(np.arange(N_TABLE), np.zeros((N_TABLE, 4), np.float32))
    assert store.n_row == N_TABLE
    row = 8 * 4 + 8 + 2
    assert store.n_byte - before == N_TABLE * row
    np.testing.assert_array_equal(store.pull(np.arange(N_TABLE)), make().pull(np.arange(N_TABLE)))


def test_first_values_are_small_and_independent_of_their_neighbours():
    values = kernel().initial_rows(np.arange(20_000), 17, 3)
    assert np.all(values[:, -1] == 0)
    embedding = values[:, :-1]
    assert abs(embedding.mean()) < 1e-4
    assert embedding.std() == pytest.approx(0.01, rel=0.01)
    assert np.abs(np.corrcoef(embedding.T) - np.eye(16)).max() < 0.05
    np.testing.assert_array_equal(values[[7, 3]], kernel().initial_rows(np.array([7, 3]), 17, 3))
    assert not np.array_equal(values[:5], kernel().initial_rows(np.arange(5), 17, 4))
    assert not np.array_equal(values[:5], kernel().initial_rows(np.arange(5), 17, -3))


@given(length=st.integers(0, 1000), n_ps=st.integers(1, 20))
def test_dense_slices_cover_the_vector_without_overlap(length, n_ps):
    slices = [dense_slice(length, i, n_ps) for i in range(n_ps)]
    assert [s.start for s in slices] == [0, *(s.stop for s in slices[:-1])]
    assert slices[-1].stop == length


def test_the_first_dense_values_win():
    store = make()
    before = store.dense
    assert not store.init_dense(np.zeros(N_DENSE, np.float32))
    np.testing.assert_array_equal(store.dense, before)


@models
@pytest.mark.parametrize("row", [-1, N_TABLE, 2**62])
def test_a_row_outside_the_table_is_refused_and_changes_nothing(model, row):
    store = make(model)
    if row >= 0 and model.embedding is Embedding.HASH:
        assert store.pull(np.array([row])).shape == (1, 4)
        return
    with pytest.raises(WireError, match="rows must be in"):
        store.pull(np.array([row]))
    with pytest.raises(WireError, match="rows must be in"):
        store.push(np.array([1, row]), np.ones((2, 4), np.float32))
    assert store.n_row == 0


def test_gradients_of_another_shape_are_refused():
    store = make()
    with pytest.raises(WireError, match="gradients"):
        store.push(np.array([1]), np.ones((1, 5), np.float32))
    with pytest.raises(WireError, match="dense slice"):
        store.push_dense(np.ones(3, np.float32))
    with pytest.raises(WireError, match="dense slice"):
        store.init_dense(np.ones(3, np.float32))


def test_a_checkpoint_of_another_model_is_refused():
    store = make()
    store.push(*step(1)[:2])
    part, everything = store.export(), owned_buckets(even_bucket_owner(1), 0)
    other = ParameterStore(replace(MODEL, embedding_dim=9), N_TABLE, N_DENSE)
    with pytest.raises(CheckpointError, match="rows of 20"):
        other.load(part, everything)
    with pytest.raises(CheckpointError, match="another table"):
        ParameterStore(MODEL, 10, N_DENSE).load(part, everything)
    sgd = ParameterStore(replace(MODEL, optimizer=Optimizer.SGD), N_TABLE, N_DENSE)
    with pytest.raises(CheckpointError, match="rows of 4"):
        sgd.load(part, everything)
    with pytest.raises(CheckpointError, match="each dense parameter"):
        sgd.load(StorePart(part.ids[:0], part.table[:0, :4], 0, part.dense), everything)


@pytest.mark.parametrize("count", [-1.0, -np.inf, np.nan, np.inf, 2.0**24 + 2])
def test_counts_of_steps_that_are_none_are_refused(count, error_words):
    """A kernel would read beyond its table of step sizes."""
    store = make(replace(MODEL, optimizer=Optimizer.ADAM))
    store.push(*step(1)[:2])
    before, everything = store.export(), owned_buckets(even_bucket_owner(1), 0)
    ids, table, dense = (each.copy() for each in (before.ids, before.table, before.dense))
    bad_table, bad_dense = table.copy(), dense.copy()
    bad_table[1:2, -1], bad_dense[-1, 1:2] = count, count
    for take in (store.absorb, lambda part: store.load(part, everything)):
        with error_words(CheckpointError):
            take(StorePart(ids, bad_table, 0, dense))
    with error_words(CheckpointError):
        store.load(StorePart(ids, table, 0, bad_dense), everything)
    after = store.export()
    for mine, theirs in zip((ids, table, dense), (after.ids, after.table, after.dense), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@models
@pytest.mark.parametrize("row", [1, 500])  # that it has, and a new one
def test_a_part_that_repeats_a_row_is_refused_before_any_row_changes(model, row):
    store = make(model)
    store.push(*step(1)[:2])
    store.create_rows(np.array([row]) if row == 1 else np.array([], np.int64))
    before = store.export()
    ids, table, dense = (each.copy() for each in (before.ids, before.table, before.dense))
    repeated = StorePart(np.array([row, 2, row]), np.ones((3, table.shape[1]), np.float32), 0, dense)
    with pytest.raises(CheckpointError, match=f"got {row} more than once"):
        store.absorb(repeated)
    with pytest.raises(CheckpointError, match=f"got {row} more than once"):
        store.load(repeated, owned_buckets(even_bucket_owner(1), 0))
    after = store.export()
    for mine, theirs in zip((ids, table, dense), (after.ids, after.table, after.dense), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_rows_that_move_are_refused_where_one_comes_again_far_behind(error_words):
    store = make(replace(MODEL, embedding=Embedding.HASH))
    ids = np.arange(100_000)
    ids[-1] = 7
    repeated = StorePart(ids, np.ones((len(ids), 8), np.float32), 0, store.export().dense)
    with error_words(CheckpointError):
        store.absorb(repeated)
    assert store.n_row == 0
