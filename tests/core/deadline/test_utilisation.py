"""Laws of the weighted utilisation of a cluster: weights of hosts, and U between the lightest and the mean."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.deadline.utilisation import host_load, host_weights, light_hosts, utilisation
from dlrover_nb.core.errors import InvalidValueError

LOADS = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=200, unique=True))
def test_the_lightest_third_of_the_hosts_holds_95_percent_of_the_weight(loads):
    light = np.argsort(loads, kind="stable")[: light_hosts(len(loads))]
    assert host_weights(loads)[light].sum() == pytest.approx(0.95, abs=1e-6)


@given(LOADS)
def test_weights_sum_to_one_and_fall_with_load_and_only_with_load(loads):
    weights = host_weights(loads)
    assert weights.sum() == pytest.approx(1)
    order = np.argsort(loads, kind="stable")
    assert (np.diff(weights[order]) <= 1e-12).all()
    for a, b in pairwise(order):
        assert loads[a] != loads[b] or weights[a] == weights[b]


@given(LOADS, st.randoms())
def test_utilisation_lies_between_the_lightest_and_the_mean_load_whatever_the_order(loads, random):
    found = utilisation(loads)
    assert min(loads) - 1e-9 <= found <= np.mean(loads) + 1e-9
    assert utilisation(random.sample(loads, len(loads))) == pytest.approx(found)


def test_the_load_of_a_host_is_seven_parts_cores_and_three_parts_memory():
    assert host_load(0.5, 0.1) == pytest.approx(0.7 * 0.5 + 0.3 * 0.1)


def test_no_host_has_no_weights():
    with pytest.raises(InvalidValueError, match=">= 1 host"):
        host_weights([])
