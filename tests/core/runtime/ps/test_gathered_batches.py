from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.exchange.push_pull import FinishedRound
from dlrover_nb.core.runtime.ps.global_batch import Gathered, GlobalBatch, weight_of_age
from dlrover_nb.core.runtime.ps.gradient_rounds import Rounds

WIDTH, N_DENSE, N_ROW = 3, 5, 12
SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=6)
AGES = st.integers(0, 40)


class Last:
    """A store that remembers what was pushed last."""

    def push(self, ids, gradients):
        self.rows = np.zeros((N_ROW, WIDTH), np.float32)
        self.rows[ids] = gradients

    def push_dense(self, gradient):
        self.dense = gradient.copy()


def gradients(random):
    ids = random.permutation(N_ROW)[: random.integers(0, N_ROW + 1)].astype(np.int64)
    return (
        ids,
        random.normal(size=(len(ids), WIDTH)).astype(np.float32),
        random.normal(size=N_DENSE).astype(np.float32),
    )


def on_all_rows(step):
    rows = np.zeros((N_ROW, WIDTH), np.float32)
    ids, values, dense = step.gradients
    rows[ids] = values
    return rows, dense


def parts_of(sizes, seed, ages=None):
    random = np.random.default_rng(seed)
    return [
        Gathered(age, n, gradients(random)) for n, age in zip(sizes, ages or [0] * len(sizes), strict=True)
    ]


@settings(deadline=None, max_examples=60)
@given(sizes=SIZES, seed=st.integers(0, 999))
def test_young_gradients_make_the_step_of_a_synchronous_round_bit_for_bit(sizes, seed):
    parts, rounds, batch, store = parts_of(sizes, seed), Rounds(), GlobalBatch(tolerance=0), Last()
    for i, part in enumerate(parts):
        rounds.keep(0, f"w{i}", part.gradients)
    rounds.apply(FinishedRound(0, tuple((f"w{i}", n) for i, n in enumerate(sizes))), store)
    steps = [batch.add(part, sum(sizes)) for part in parts]
    assert steps[:-1] == [None] * (len(parts) - 1)
    rows, dense = on_all_rows(steps[-1])
    np.testing.assert_array_equal(rows, store.rows)
    np.testing.assert_array_equal(dense, store.dense)


@settings(deadline=None, max_examples=60)
@given(sizes=st.lists(st.integers(1, 50), max_size=30), full=st.integers(1, 120), seed=st.integers(0, 99))
def test_every_batch_is_in_exactly_one_step_and_steps_are_full_but_the_flushed_one(sizes, full, seed):
    batch, random = GlobalBatch(tolerance=3), np.random.default_rng(seed)
    taken = []
    for i, n in enumerate(sizes):
        one = np.array([i], np.int64), np.ones((1, WIDTH), np.float32), np.zeros(N_DENSE, np.float32)
        step = batch.add(Gathered(int(random.integers(0, 3)), n, one), full)
        if step is not None:
            assert full <= step.n_row < full + n
            assert batch.n_row == 0
            taken.append(step)
    last = batch.flush()
    assert last is None or 0 < last.n_row < full
    assert batch.flush() is None
    steps = [*taken, *([] if last is None else [last])]
    in_steps = np.concatenate([step.gradients[0] for step in steps]) if steps else np.empty(0)
    np.testing.assert_array_equal(np.sort(in_steps), np.arange(len(sizes)))
    assert sum(step.n_row for step in steps) == sum(sizes)
    for step in steps:  # the shares of a step sum to one
        ids, values, _ = step.gradients
        np.testing.assert_allclose(values[:, 0], np.array(sizes)[ids] / step.n_row, rtol=1e-6)
        np.testing.assert_allclose(values[:, 0].sum(), 1.0, rtol=1e-5)


@settings(deadline=None, max_examples=60)
@given(sizes=SIZES, seed=st.integers(0, 99), tolerance=st.integers(0, 9), data=st.data())
def test_an_old_gradient_lacks_its_part_and_the_others_do_not_count_more(sizes, seed, tolerance, data):
    ages = [data.draw(AGES) for _ in sizes]
    batch, total = GlobalBatch(tolerance=tolerance), sum(sizes)
    parts = parts_of(sizes, seed, ages)
    expected, expected_dense = np.zeros((N_ROW, WIDTH)), np.zeros(N_DENSE)
    for part in parts:
        weight = part.n_row / total * min(1.0, (1 + tolerance) / (1 + part.age))
        expected[part.gradients[0]] += weight * part.gradients[1]
        expected_dense += weight * part.gradients[2]
        step = batch.add(part, total)
    rows, dense = on_all_rows(step)
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    np.testing.assert_allclose(dense, expected_dense, atol=1e-5)


@given(age=AGES, tolerance=st.integers(0, 9))
def test_a_weight_is_whole_up_to_the_tolerance_falls_then_without_a_jump_and_never_to_nothing(age, tolerance):
    weight, following = weight_of_age(age, tolerance), weight_of_age(age + 1, tolerance)
    assert (weight == 1.0) == (age <= tolerance)
    assert 0 < following <= weight <= 1
    assert following >= weight / 2  # the first step beyond a tolerance of none halves it


@settings(deadline=None, max_examples=40)
@given(sizes=SIZES, seed=st.integers(0, 99), ages=st.lists(AGES, min_size=6, max_size=6))
def test_running_averages_take_the_mean_of_all_rows_whatever_their_age(sizes, seed, ages):
    parts = parts_of(sizes, seed, ages[: len(sizes)])
    batch = GlobalBatch(tolerance=1, n_average=2)
    step = [batch.add(part, sum(sizes)) for part in parts][-1]
    mean = sum(part.n_row / sum(sizes) * part.gradients[2][-2:].astype(float) for part in parts)
    np.testing.assert_allclose(step.gradients[2][-2:], mean, atol=1e-5)


def test_a_rate_of_its_own_weighs_a_gradient_and_no_average():
    dense = np.ones(N_DENSE, np.float32)
    part = Gathered(0, 4, (np.array([2]), np.ones((1, WIDTH), np.float32), dense), rate=0.25)
    step = GlobalBatch(tolerance=4, n_average=1).add(part, 4)
    np.testing.assert_array_equal(step.gradients[1], np.full((1, WIDTH), 0.25))
    np.testing.assert_array_equal(step.gradients[2], [0.25] * (N_DENSE - 1) + [1.0])


def test_a_batch_alone_in_its_step_is_applied_as_it_came():
    part = parts_of([7], 1)[0]
    step = GlobalBatch(tolerance=0).add(part, 5)
    assert step.n_row == 7
    assert all(mine is its for mine, its in zip(step.gradients, part.gradients, strict=True))


def test_gradients_do_not_change_in_a_step():
    parts = parts_of([3, 4], 2, [0, 30])
    before = [[array.copy() for array in part.gradients] for part in parts]
    batch = GlobalBatch(tolerance=1, n_average=1)
    assert [batch.add(part, 7) is None for part in parts] == [True, False]
    for part, arrays in zip(parts, before, strict=True):
        for mine, its in zip(part.gradients, arrays, strict=True):
            np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("wrong", [{"age": -1}, {"n_row": 0}])
def test_a_batch_without_rows_or_of_the_future_is_refused(wrong):
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        Gathered(**({"age": 0, "n_row": 1, "gradients": parts_of([1], 0)[0].gradients} | wrong))
