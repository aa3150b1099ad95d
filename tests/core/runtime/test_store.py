from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.runtime.store import (
    ParameterStore,
    dense_slice,
    even_bucket_owner,
    initial_rows,
    owned_buckets,
)
from dlrover_nb.core.structs.job import ModelSpec
from dlrover_nb.core.structs.messages import N_BUCKET

MODEL = ModelSpec(embedding_dim=3, seed=5)
N_TABLE, N_DENSE = 5_000, 37


def make(index=0, n_ps=1):
    store = ParameterStore(MODEL, N_TABLE, N_DENSE, index=index, n_ps=n_ps)
    store.init_dense(np.linspace(-1, 1, N_DENSE, dtype=np.float32)[store.dense_range])
    return store


class Cluster:
    """Stores that share the buckets, used like one."""

    def __init__(self, stores):
        self.stores = stores
        self.owner = np.array(even_bucket_owner(len(stores)))

    def parts(self, rows):
        return [self.owner[rows % N_BUCKET] == i for i in range(len(self.stores))]

    def push(self, rows, gradients, dense):
        for store, mine in zip(self.stores, self.parts(rows), strict=True):
            store.push(rows[mine], gradients[mine])
            store.push_dense(dense[store.dense_range])

    def pull(self, rows):
        values = np.empty((len(rows), MODEL.row_width), np.float32)
        for store, mine in zip(self.stores, self.parts(rows), strict=True):
            values[mine] = store.pull(rows[mine])
        return values, np.concatenate([store.dense for store in self.stores])


def step(seed, n=200):
    rng = np.random.default_rng(seed)
    rows = rng.choice(N_TABLE, n, replace=False).astype(np.int64)
    return rows, rng.normal(size=(n, 4)).astype(np.float32), rng.normal(size=N_DENSE).astype(np.float32)


ALL = np.arange(N_TABLE)
SEEDS = st.lists(st.integers(0, 2**32), min_size=1, max_size=5)


@settings(deadline=None, max_examples=20)
@given(seeds=SEEDS, n_ps=st.integers(1, 7))
def test_any_number_of_ps_equals_one_bit_for_bit(seeds, n_ps):
    one, many = Cluster([make()]), Cluster([make(i, n_ps) for i in range(n_ps)])
    for seed in seeds:
        one.push(*step(seed))
        many.push(*step(seed))
    for a, b in zip(one.pull(ALL), many.pull(ALL), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (
        sum(s.n_row for s in many.stores)
        == one.stores[0].n_row
        == len(np.unique([step(s)[0] for s in seeds]))
    )


@settings(deadline=None, max_examples=20)
@given(seeds=SEEDS, before=st.integers(1, 5), after=st.integers(1, 5))
def test_what_n_ps_export_m_ps_load(seeds, before, after):
    old = Cluster([make(i, before) for i in range(before)])
    for seed in seeds:
        old.push(*step(seed))
    new = Cluster([ParameterStore(MODEL, N_TABLE, N_DENSE, index=i, n_ps=after) for i in range(after)])
    for i, store in enumerate(new.stores):
        for part in old.stores:
            store.load(part.export(), owned_buckets(even_bucket_owner(after), i))
        assert store.dense_ready
    for cluster in (old, new):
        cluster.push(*step(99))  # the optimizer's sums came along, so the next step is the same
    for a, b in zip(old.pull(ALL), new.pull(ALL), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_the_order_of_distinct_rows_does_not_matter(seed):
    one, other = make(), make()
    rows, gradients, _ = step(seed)
    one.push(rows, gradients)
    order = np.random.default_rng(seed).permutation(len(rows))
    other.push(rows[order], gradients[order])
    np.testing.assert_array_equal(one.pull(ALL), other.pull(ALL))


def test_updates_are_those_of_torch_adagrad():
    torch = pytest.importorskip("torch")
    store = make()
    rows = np.arange(10, 60)
    weight = torch.nn.Parameter(torch.from_numpy(store.pull(rows)))
    dense = torch.nn.Parameter(torch.from_numpy(store.dense))
    optimizer = torch.optim.Adagrad(
        [weight, dense], lr=MODEL.learning_rate, initial_accumulator_value=MODEL.initial_accumulator, eps=0
    )
    for seed in range(20):
        _, gradients, dense_gradient = step(seed, 50)
        weight.grad, dense.grad = torch.from_numpy(gradients), torch.from_numpy(dense_gradient)
        optimizer.step()
        store.push(rows, gradients)
        store.push_dense(dense_gradient)
    np.testing.assert_allclose(store.pull(rows), weight.detach().numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(store.dense, dense.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_pulling_allocates_nothing_and_pushing_only_what_is_touched():
    store = make()
    store.pull(ALL)
    assert store.n_row == 0
    before = store.n_byte
    store.push(ALL, np.zeros((N_TABLE, 4), np.float32))
    assert store.n_row == N_TABLE
    grown = store.n_byte - before
    assert (N_TABLE - 1024) * 32 <= grown <= N_TABLE * 32 * 1.25
    np.testing.assert_array_equal(store.pull(ALL), make().pull(ALL))


def test_first_values_are_small_and_independent_of_their_neighbours():
    values = initial_rows(np.arange(20_000), 17, 3)
    assert np.all(values[:, -1] == 0)
    embedding = values[:, :-1]
    assert abs(embedding.mean()) < 1e-4
    assert embedding.std() == pytest.approx(0.01, rel=0.01)
    assert np.abs(np.corrcoef(embedding.T) - np.eye(16)).max() < 0.05
    np.testing.assert_array_equal(values[[7, 3]], initial_rows(np.array([7, 3]), 17, 3))
    assert not np.array_equal(values[:5], initial_rows(np.arange(5), 17, 4))
    assert not np.array_equal(values[:5], initial_rows(np.arange(5), 17, -3))


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


@pytest.mark.parametrize("row", [-1, N_TABLE, 2**62])
def test_a_row_outside_the_table_is_refused_and_changes_nothing(row):
    store = make()
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
    part = make().export()
    other = ParameterStore(ModelSpec(embedding_dim=9), N_TABLE, N_DENSE)
    with pytest.raises(CheckpointError, match="rows of 10"):
        other.load(part, owned_buckets(even_bucket_owner(1), 0))
    store = make()
    store.push(*step(1)[:2])
    small = ParameterStore(MODEL, 10, N_DENSE)
    with pytest.raises(CheckpointError, match="outside a table"):
        small.load(store.export(), owned_buckets(even_bucket_owner(1), 0))
