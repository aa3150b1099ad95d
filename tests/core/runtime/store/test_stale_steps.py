"""Factors of steps by the age of their gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runtime.kernel_world import needs_c

from dlrover_nb.core.runtime.kernels import VARIABLE
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.runtime.store.stale_steps import normalised_factor, normalised_factors
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer
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


@pytest.mark.parametrize("optimizer", Optimizer)
@pytest.mark.parametrize("kernel", ["numpy", pytest.param("c", marks=needs_c)])
def test_a_scaled_rate_is_that_of_a_model_with_that_rate(monkeypatch, optimizer, kernel):
    """From one step on, by single calls and by exchanges, whatever the steps before."""
    monkeypatch.setenv(VARIABLE, kernel)
    rng = np.random.default_rng(0)
    ids, out = np.arange(5), [(np.empty((5, 5), np.float32), np.empty(7, np.float32)) for _ in range(2)]
    model = ModelSpec(embedding_dim=4, optimizer=optimizer, learning_rate=0.25)
    stores = [ParameterStore(each, 10, 7) for each in (model, replace(model, learning_rate=0.5))]
    for store in stores:
        store.init_dense(np.linspace(-1, 1, 7, dtype=np.float32))
    stores[0].scale_rate(2.0)
    for turn in range(4):
        rows, dense = (
            rng.standard_normal((5, 5)).astype(np.float32),
            rng.standard_normal(7).astype(np.float32),
        )
        for store, each in zip(stores, out, strict=True):
            if turn % 2 or store.exchange(1, (ids, rows, dense), ids, each) is None:
                store.push(ids, rows)
                store.push_dense(dense)
        np.testing.assert_array_equal(*(store.pull(ids) for store in stores))
        np.testing.assert_array_equal(*(store.dense for store in stores))
