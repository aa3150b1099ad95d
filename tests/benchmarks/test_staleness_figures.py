"""Figures of the benchmark of staleness: intervals of medians, and errors of predictions."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).parents[2] / "benchmarks"
VALUES = st.lists(st.floats(-1, 1), min_size=2, max_size=20)


@pytest.fixture(scope="module")
def staleness():
    """Return the benchmark; its folder is on the path while these tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("staleness")


@given(VALUES)
def test_an_interval_holds_the_median_and_reaches_no_further_than_the_values(staleness, values):
    middle, low, high = staleness.interval(values)
    assert min(values) <= low <= middle <= high <= max(values)


@pytest.mark.parametrize(("n", "left"), [(5, 0), (8, 1), (10, 1), (20, 5)])
def test_an_interval_leaves_out_as_many_as_ninety_percent_allow(staleness, n, left):
    assert staleness.interval(range(n))[1:] == (left, n - 1 - left)


def test_points_that_are_measured_less_exactly_than_the_target_count_apart(staleness):
    rows = [
        {"error": 0.0002, "holds": 1.0, "own_error": 0.0001},
        {"error": 0.0004, "holds": 0.0, "own_error": 0.0002},
        {"error": 0.03, "holds": 1.0, "own_error": 0.01},
    ]
    figures = staleness.errors(rows, "")
    assert figures["auc_error"] == pytest.approx(0.0003)
    assert figures["auc_error_median"] == pytest.approx(0.0003)
    assert figures["bands_hold"] == 0.5
    assert figures["auc_error_all"] == pytest.approx(0.0306 / 3)
    assert figures["n_point"] == [2, 3]
    assert staleness.errors([], "")["auc_error"] is None
