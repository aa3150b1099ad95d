"""Factors of steps by the age of their gradients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.runtime.store.stale_steps import normalised_factor, normalised_factors
from dlrover_nb.core.structs.training.gradient_ages import N_CLASS, class_of

AGES = st.integers(0, 1 << 20)


@given(age=AGES, other=AGES)
def test_an_older_gradient_never_takes_the_longer_step(age, other):
    young, old = sorted((age, other))
    assert 0 < normalised_factor(old) <= normalised_factor(young) <= 1


@given(age=AGES)
def test_the_factor_of_an_age_is_that_of_its_class(age):
    assert normalised_factor(age) == normalised_factors()[class_of(age)]


@pytest.mark.parametrize(("age", "factor"), [(0, 1.0), (1, 2**-0.5), (3, 0.5), (15, 13**-0.5)])
def test_a_step_is_divided_by_the_root_of_its_age(age, factor):
    assert normalised_factor(age) == pytest.approx(factor)


def test_there_is_a_factor_for_each_class():
    assert len(normalised_factors()) == N_CLASS
