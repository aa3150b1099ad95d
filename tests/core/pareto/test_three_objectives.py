"""The front of cost, gain and loss against its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dlrover_nb.core.pareto.dominance import non_dominated, non_dominated_of_three

values = st.integers(0, 6).map(float)
points = st.integers(1, 40).flatmap(lambda n: arrays(np.float64, (3, n), elements=values))


def dominates(a: np.ndarray, b: np.ndarray) -> bool:
    is_as_good = a[0] <= b[0] and a[1] >= b[1] and a[2] <= b[2]
    return bool(is_as_good and (a != b).any())


@given(points)
def test_what_is_returned_is_dominated_by_nothing_and_all_else_by_something(rows: np.ndarray):
    cost, gain, loss = rows
    best = non_dominated_of_three(cost, gain, loss).tolist()
    assert len(set(best)) == len(best)
    for i in range(rows.shape[1]):
        is_beaten = any(dominates(rows[:, j], rows[:, i]) for j in range(rows.shape[1]))
        if is_beaten:
            assert i not in best
        else:
            assert any((rows[:, j] == rows[:, i]).all() for j in best)


@given(points)
def test_with_one_loss_it_is_the_front_of_two(rows: np.ndarray):
    cost, gain = rows[:2]
    three = non_dominated_of_three(cost, gain, np.zeros(len(cost)))
    assert three.tolist() == non_dominated(cost, gain).tolist()
