"""The gradients of a batch that is computed as several mini-batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.models.learner import Gradients, Learner
from dlrover_nb.core.runtime.store.batches import PreparedBatch
from dlrover_nb.core.runtime.worker.mini_batches import step_by_parts
from dlrover_nb.core.structs.data.features import SequenceInput
from dlrover_nb.core.structs.job.job import ModelSpec

N_NUMERIC, DIM = 2, 4
HISTORY = SequenceInput("history", 1, 3, target=0)


def prepared(n_row: int, n_slot: int, n_distinct: int, seed: int, *, padded: bool) -> PreparedBatch:
    rng = np.random.default_rng(seed)
    places = rng.integers(0, n_distinct + padded, (n_row, n_slot))  # the last one is that of padding
    places[:, 0] %= n_distinct
    return PreparedBatch(
        np.arange(n_distinct),
        (0, n_distinct),
        places.ravel(),
        rng.normal(size=(n_row, N_NUMERIC)).astype(np.float32),
        rng.integers(0, 2, n_row).astype(np.float32),
    )


@settings(deadline=None, max_examples=40)
@given(
    is_din=st.booleans(),
    n_row=st.integers(2, 40),
    most_at_once=st.integers(1, 45),
    n_distinct=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_they_are_those_of_the_whole_batch(is_din, n_row, most_at_once, n_distinct, seed):
    model = ModelSpec(name="din" if is_din else "wide_deep", embedding_dim=DIM, hidden=(6, 5))
    learner = Learner(model, 2, N_NUMERIC, sequences=(HISTORY,) if is_din else ())
    batch = prepared(n_row, 4 if is_din else 2, n_distinct, seed, padded=is_din)
    rows = np.random.default_rng(seed).normal(size=(n_distinct, DIM + 1)).astype(np.float32)
    whole = learner.step(rows, batch.inverse, batch.dense, batch.labels)
    dense = learner.gradients.copy()
    parts = step_by_parts(learner, rows, batch, most_at_once)
    np.testing.assert_allclose(parts.rows, whole.rows, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learner.gradients, dense, rtol=1e-4, atol=1e-6)
    assert abs(parts.loss - whole.loss) < 1e-5


@given(n_row=st.integers(1, 200), most_at_once=st.integers(1, 220))
def test_mini_batches_are_of_about_one_size_and_none_is_larger_than_it_may_be(n_row, most_at_once):
    class Counting:
        gradients = np.zeros(1, np.float32)
        sizes: list[int]

        def step(self, rows, _inverse, _dense, labels):
            self.sizes.append(len(labels))
            return Gradients(0.0, np.zeros_like(rows))

    learner = Counting()
    learner.sizes = []
    step_by_parts(learner, np.zeros((3, 2), np.float32), prepared(n_row, 1, 3, 0, padded=False), most_at_once)
    assert sum(learner.sizes) == n_row
    assert max(learner.sizes) <= most_at_once
    assert max(learner.sizes) - min(learner.sizes) <= 1
