from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto.dominance import FEW, hypervolume, layers, non_dominated


def brute_force(cost, gain) -> list[int]:
    """Indices that nothing beats, cheapest first; of equal points the first."""
    points = list(zip(cost, gain, strict=True))
    kept = [
        i
        for i, (c, g) in enumerate(points)
        if not any((a <= c and b >= g) and ((a, b) != (c, g) or j < i) for j, (a, b) in enumerate(points))
    ]
    return sorted(kept, key=lambda i: points[i][0])


few_values = st.integers(0, 9).map(float)
wild_values = st.one_of(few_values, st.floats(-1e300, 1e300), st.floats(0, 1e-300))


@settings(deadline=None)
@given(st.lists(st.tuples(few_values, few_values), max_size=40))
def test_front_equals_brute_force_with_ties_and_duplicates(points):
    cost, gain = (np.array([p[i] for p in points], dtype=float) for i in (0, 1))
    assert non_dominated(cost, gain).tolist() == brute_force(cost, gain)


@settings(deadline=None)
@given(st.lists(st.tuples(wild_values, wild_values), max_size=40))
def test_front_equals_brute_force_at_any_scale(points):
    cost, gain = (np.array([p[i] for p in points], dtype=float) for i in (0, 1))
    assert non_dominated(cost, gain).tolist() == brute_force(cost, gain)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    n_value=st.sampled_from([3, 100, 10**9]),
    slope=st.sampled_from([-1.0, 0.0, 0.5, 1.0]),
    outlier=st.sampled_from([0.0, 1e12]),
)
def test_front_of_many_points_equals_sorting_all_of_them(seed, n_value, slope, outlier):
    """Thinning out must not change the result: neither indices nor their order."""
    rng = np.random.default_rng(seed)
    cost = rng.integers(0, n_value, 3 * FEW) / n_value
    gain = slope * cost + rng.integers(0, n_value, 3 * FEW) / n_value
    cost[0] += outlier
    order = np.lexsort((-gain, cost))
    before = np.concatenate(([-np.inf], np.maximum.accumulate(gain[order])[:-1]))
    assert non_dominated(cost, gain).tolist() == order[gain[order] > before].tolist()


@for_each("bad", [np.nan, np.inf, -np.inf])
@for_each("n", [3, 2 * FEW])
def test_point_without_a_finite_place_is_refused(bad, n):
    good, spoilt = np.arange(float(n)), np.arange(float(n))
    spoilt[n // 2] = bad
    with pytest.raises(InvalidValueError, match="finite"):
        non_dominated(good, spoilt)
    with pytest.raises(InvalidValueError, match="finite"):
        non_dominated(spoilt, good)


def test_no_points_have_no_front():
    assert non_dominated(np.empty(0), np.empty(0)).tolist() == []


@settings(deadline=None)
@given(st.lists(st.tuples(few_values, few_values), min_size=1, max_size=40), st.integers(0, 40))
def test_layers_peel_front_after_front(points, least):
    cost, gain = (np.array([p[i] for p in points], dtype=float) for i in (0, 1))
    found = layers(cost, gain, least)
    assert len(set(found.tolist())) == len(found) >= min(least, len(points))
    if least:
        first = brute_force(cost, gain)
        assert found[: len(first)].tolist() == first


@settings(deadline=None)
@given(st.lists(st.tuples(few_values, few_values), min_size=1, max_size=30))
def test_hypervolume_is_the_area_that_points_cover(points):
    cost, gain = (np.array([p[i] for p in points], dtype=float) for i in (0, 1))
    cells = {(x, y) for c, g in points for x in range(int(c), 9) for y in range(int(g))}
    assert hypervolume(cost, gain, worst=(9.0, 0.0)) == pytest.approx(len(cells))
