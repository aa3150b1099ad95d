from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import FinishedRound
from dlrover_nb.core.runtime.ps.gradient_rounds import Rounds

WIDTH, N_DENSE, N_ROW = 3, 4, 12
BATCHES = st.lists(
    st.tuples(st.sets(st.integers(0, N_ROW - 1)), st.integers(1, 50)), min_size=1, max_size=4
)  # rows that each worker touched, rows of its batch


class Sums:
    """A store that adds up what is pushed."""

    def __init__(self):
        self.rows, self.dense, self.n_push = np.zeros((N_ROW, WIDTH)), np.zeros(N_DENSE), 0

    def push(self, ids, gradients):
        assert len(np.unique(ids)) == len(ids)
        self.rows[ids] += gradients
        self.n_push += 1

    def push_dense(self, gradient):
        self.dense += gradient


@settings(deadline=None, max_examples=50)
@given(batches=BATCHES, seed=st.integers(0, 99))
def test_a_round_is_one_push_of_the_mean_over_all_rows_of_all_batches(batches, seed):
    random, rounds, store = np.random.default_rng(seed), Rounds(), Sums()
    rows, dense, total = np.zeros((N_ROW, WIDTH)), np.zeros(N_DENSE), sum(n for _, n in batches)
    for i, (touched, n) in enumerate(batches):
        ids = random.permutation(np.array(sorted(touched), np.int64))
        gradients = random.normal(size=(len(ids), WIDTH)).astype(np.float32)
        gradient = random.normal(size=N_DENSE).astype(np.float32)
        rounds.keep(0, f"w{i}", (ids, gradients, gradient))
        rows[ids] += n / total * gradients
        dense += n / total * gradient
    rounds.keep(
        0, "dead", (np.arange(N_ROW), np.ones((N_ROW, WIDTH), np.float32), np.ones(N_DENSE, np.float32))
    )
    done = FinishedRound(0, tuple((f"w{i}", n) for i, (_, n) in enumerate(batches)))
    assert rounds.apply(done, store)
    assert not rounds.apply(done, store)
    assert store.n_push == 1
    np.testing.assert_allclose(store.rows, rows, atol=1e-5)
    np.testing.assert_allclose(store.dense, dense, atol=1e-5)


@settings(deadline=None, max_examples=50)
@given(batches=BATCHES, skips=st.lists(st.booleans(), min_size=4, max_size=4), seed=st.integers(0, 99))
def test_a_round_with_skipped_batches_is_that_of_the_others_alone(batches, skips, seed):
    with_all, others, stores = Rounds(), Rounds(), (Sums(), Sums())
    contributors = [(f"w{i}", n) for i, (_, n) in enumerate(batches)]
    for i, ((touched, _), is_skipped) in enumerate(zip(batches, skips, strict=False)):
        random = np.random.default_rng([seed, i])
        ids = np.array(sorted(touched), np.int64)
        gradients = random.normal(size=(len(ids), WIDTH)).astype(np.float32)
        kept = None if is_skipped else (ids, gradients, random.normal(size=N_DENSE).astype(np.float32))
        with_all.keep(0, f"w{i}", kept)
        if kept is not None:
            others.keep(0, f"w{i}", kept)
    assert with_all.apply(FinishedRound(0, tuple(contributors)), stores[0])
    left = tuple(c for c, is_skipped in zip(contributors, skips, strict=False) if not is_skipped)
    assert stores[0].n_push == bool(left)
    assert not left or others.apply(FinishedRound(0, left), stores[1])
    np.testing.assert_array_equal(stores[0].rows, stores[1].rows)
    np.testing.assert_array_equal(stores[0].dense, stores[1].dense)


def test_a_round_is_not_applied_in_part():
    rounds, store = Rounds(), Sums()
    rounds.keep(0, "w0", (np.array([1]), np.ones((1, WIDTH), np.float32), np.ones(N_DENSE, np.float32)))
    with pytest.raises(WireError, match="w1"):
        rounds.apply(FinishedRound(0, (("w0", 4), ("w1", 4))), store)
    assert store.n_push == 0
    assert rounds.apply(FinishedRound(0, (("w0", 4),)), store)


def test_gradients_of_a_round_that_is_over_are_not_kept():
    rounds, store = Rounds(), Sums()
    part = (np.array([1]), np.ones((1, WIDTH), np.float32), np.ones(N_DENSE, np.float32))
    rounds.keep(3, "w0", part)
    rounds.apply(FinishedRound(3, (("w0", 4),)), store)
    rounds.keep(3, "late", part)
    with pytest.raises(WireError):
        rounds.apply(FinishedRound(4, (("late", 4),)), store)
