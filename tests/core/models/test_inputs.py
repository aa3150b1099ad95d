"""Bags and items of sequences against torch's own bags, and padding that nothing is learnt from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from dlrover_nb.core.data.encode import PADDING, padded
from dlrover_nb.core.models.inputs import gathered, split_inputs, summed_by_index, summed_by_product
from dlrover_nb.core.models.layers import divided
from dlrover_nb.core.models.learner import Learner
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.runtime.store.batches import BucketLayout, prepare_batch
from dlrover_nb.core.structs.data.features import SequenceInput
from dlrover_nb.core.structs.job.job import ModelSpec

LENGTH, DIM = 4, 3
MODEL = ModelSpec(embedding_dim=DIM, hidden=(5,))
HISTORY = SequenceInput("history", 1, LENGTH, target=0)
lists = st.lists(st.lists(st.integers(0, 9), max_size=LENGTH), min_size=1, max_size=6)


def ids_of(histories: list[list[int]]) -> np.ndarray:
    """Return ids [n, 1 + LENGTH + 1]: a target, the history, and another single id."""
    rows = np.repeat(np.arange(len(histories)), [len(each) for each in histories])
    flat = np.array([i for each in histories for i in each], np.int64)
    items = padded(rows, flat, (len(histories), LENGTH))
    single = np.arange(len(histories))[:, None] % 10
    return np.hstack([single, items, single + 10])


def batch(histories: list[list[int]], n_ps: int = 1):
    n = len(histories)
    layout = BucketLayout(np.array(even_bucket_owner(n_ps), np.int64), n_ps)
    return prepare_batch(
        ids_of(histories), np.ones((n, 2), np.float32), (np.arange(n) % 2).astype(np.float32), layout
    )


@settings(deadline=None, max_examples=30)
@given(
    n_place=st.integers(1, 300), n_row=st.integers(1, 50), width=st.integers(1, 20), seed=st.integers(0, 99)
)
def test_both_ways_to_sum_by_row_give_the_same_bits(n_place: int, n_row: int, width: int, seed: int) -> None:
    """A worker takes one at first and the other later: its parameters must not tell when."""
    random = torch.Generator().manual_seed(seed)
    places = torch.randint(0, n_row, (n_place,), generator=random)
    each = torch.randn(n_place, width, generator=random) * 10 ** torch.randn(n_place, 1, generator=random)
    by_index = summed_by_index(each, places, n_row)
    assert by_index.numpy().tobytes() == summed_by_product(each, places, n_row).numpy().tobytes()


@settings(deadline=None, max_examples=30)
@given(histories=lists, n_ps=st.integers(1, 3))
def test_padding_is_looked_up_nowhere_and_all_else_is(histories: list[list[int]], n_ps: int) -> None:
    prepared, ids = batch(histories, n_ps), ids_of(histories)
    assert sorted(prepared.rows.tolist()) == sorted({*ids.ravel().tolist()} - {PADDING})
    again = np.append(prepared.rows, PADDING)[prepared.inverse].reshape(ids.shape)
    assert np.array_equal(again, ids)
    assert prepared.bounds[-1] == len(prepared.rows)


@settings(deadline=None, max_examples=30)
@given(histories=lists, seed=st.integers(0, 99))
def test_a_bag_is_the_mean_that_torch_makes_and_so_are_its_gradients(
    histories: list[list[int]], seed: int
) -> None:
    torch.manual_seed(seed)
    prepared, n = batch(histories), len(histories)
    rows = torch.randn(len(prepared.rows), DIM + 1, requires_grad=True)
    places = torch.from_numpy(prepared.inverse).view(n, -1)
    embedded, items = split_inputs(rows, places, 3, (HISTORY,))
    table = rows.detach().clone().requires_grad_()
    flat = torch.tensor([int(x) for row in places[:, 1:-1] for x in row if x < len(rows)], dtype=torch.int64)
    starts = torch.tensor([0, *np.cumsum([len(each) for each in histories])[:-1].tolist()])
    bags = functional.embedding_bag(flat, table, starts, mode="mean")
    want = torch.stack(
        [functional.embedding(places[:, 0], table), bags, functional.embedding(places[:, -1], table)], 1
    )
    torch.testing.assert_close(embedded, want)
    weights = torch.randn_like(want)
    (embedded * weights).sum().backward()
    (want * weights).sum().backward()
    torch.testing.assert_close(rows.grad, table.grad)
    history, is_item = items["history"]
    assert history.shape == (n, LENGTH, DIM + 1)
    assert is_item.sum(1).tolist() == [len(each) for each in histories]
    assert not history[~is_item].any()


def test_a_batch_of_empty_lists_alone_is_trained() -> None:
    prepared = prepare_batch(
        np.full((2, LENGTH), PADDING),
        np.ones((2, 1), np.float32),
        np.ones(2, np.float32),
        BucketLayout(np.array(even_bucket_owner(2), np.int64), 2),
    )
    assert len(prepared.rows) == 0
    learner = Learner(MODEL, 1, 1, sequences=(SequenceInput("h", 0, LENGTH),))
    none = np.empty((0, DIM + 1), np.float32)
    gradients = learner.step(none, prepared.inverse, prepared.dense, prepared.labels)
    assert np.isfinite(gradients.loss)
    assert gradients.rows.shape == (0, DIM + 1)


def test_an_item_that_comes_several_times_has_one_gradient() -> None:
    prepared = batch([[3, 3, 3], [3, 0]])
    learner = Learner(MODEL, 3, 2, sequences=(HISTORY,))
    rows = np.random.default_rng(0).normal(size=(len(prepared.rows), DIM + 1)).astype(np.float32)
    gradients = learner.step(rows, prepared.inverse, prepared.dense, prepared.labels)
    assert len(set(prepared.rows.tolist())) == len(prepared.rows) == len(gradients.rows)


@given(st.integers(1, 9), st.integers(0, 40), st.integers(1, 6), st.integers(0, 2**31))
def test_gradients_of_a_row_are_those_of_all_places_where_it_stands(n_row, n_place, width, seed):
    chance = torch.Generator().manual_seed(seed)
    rows = torch.randn(n_row, width, generator=chance, requires_grad=True)
    places = torch.randint(n_row, (n_place, 2), generator=chance)
    of_each = torch.randn(n_place, 2, width, generator=chance)
    each = gathered(rows, places)
    assert torch.equal(each, rows[places])
    (gradient,) = torch.autograd.grad(each, rows, of_each)
    sums = torch.zeros(n_row, width, dtype=torch.float64)
    sums.index_add_(0, places.reshape(-1), of_each.reshape(-1, width).double())
    assert torch.allclose(gradient.double(), sums, atol=1e-5)


@pytest.mark.parametrize("uses", ["both", "embeddings", "wide"])
def test_parts_of_a_row_have_the_gradients_of_slices(uses):
    embedded = torch.randn(5, 3, 9, requires_grad=True)
    weight = torch.randn(5, 3, 8)

    def value(embeddings, wide):
        own = {"embeddings": (embeddings * weight).sum(), "wide": (wide**2).sum()}
        return sum(own.values()) if uses == "both" else own[uses]

    (now,) = torch.autograd.grad(value(*divided(embedded, 8)), embedded)
    (before,) = torch.autograd.grad(value(embedded[:, :, :8], embedded[:, :, 8].sum(1)), embedded)
    assert torch.equal(now, before)
