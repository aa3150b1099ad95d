"""Pushes with a factor of the learning rate, on each kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import every_kernel  # noqa: F401 - repeats the tests on each kernel

from dlrover_nb.core.runtime.kernels import rates
from dlrover_nb.core.runtime.kernels.elementwise import ElementwiseOptimizer
from dlrover_nb.core.runtime.kernels.rule import Rule
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer

N_DENSE, IDS = 7, np.arange(20)
MODEL = ModelSpec(embedding_dim=3, seed=5)


def store_of(model: ModelSpec) -> ParameterStore:
    store = ParameterStore(model, 100, N_DENSE)
    store.init_dense(np.linspace(-1, 1, N_DENSE, dtype=np.float32))
    return store


def push(store: ParameterStore, seed: int, *rate: float) -> None:
    random = np.random.default_rng(seed)
    store.push(IDS, random.normal(size=(len(IDS), MODEL.row_width)).astype(np.float32), *rate)
    store.push_dense(random.normal(size=N_DENSE).astype(np.float32), *rate)


def parameters(store: ParameterStore) -> list[np.ndarray]:
    part = store.export()
    return [part.table.copy(), part.dense.copy()]


@pytest.mark.parametrize("optimizer", Optimizer)
@pytest.mark.parametrize("factor", [0.5, 2.0, 0.3])
def test_a_push_with_a_factor_is_one_of_a_model_with_that_rate(optimizer: str, factor: float) -> None:
    model = replace(MODEL, optimizer=optimizer)
    ours, theirs = store_of(model), store_of(replace(model, learning_rate=model.learning_rate * factor))
    for seed in range(3):
        push(ours, seed, factor)
        push(theirs, seed)
    for mine, other in zip(parameters(ours), parameters(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(Optimizer), st.lists(st.sampled_from([1.0, 0.5, 0.25]), min_size=1, max_size=1200))
def test_factors_change_how_far_parameters_move_and_nothing_else(
    optimizer: str, factors: list[float]
) -> None:
    """State is that of pushes without factors; a factor of 1 gives the same bits."""
    model = replace(MODEL, optimizer=optimizer)
    with_factors, plain = store_of(model), store_of(model)
    for seed, factor in enumerate(factors):
        push(with_factors, seed, factor)
        push(plain, seed)
    width = MODEL.row_width
    (mine, my_dense), (other, other_dense) = parameters(with_factors), parameters(plain)
    np.testing.assert_array_equal(mine[:, width:], other[:, width:])
    np.testing.assert_array_equal(my_dense[1:], other_dense[1:])
    if set(factors) == {1.0}:
        np.testing.assert_array_equal(mine, other)


def test_an_added_optimizer_sees_the_rate_in_its_model() -> None:
    seen = []
    added = ElementwiseOptimizer(lambda _v, _s, _g, model: seen.append(model.learning_rate))
    rule = replace(Rule.of(MODEL), optimizer="theirs", added=(added, MODEL))
    found, corrections = rates.Rates(rule).step(0.5)
    assert corrections is None
    assert found.added is not None
    found.added[0].update(*[np.zeros(1, np.float32)] * 3, found.added[1])
    assert seen == [MODEL.learning_rate / 2]


def test_a_job_with_ever_new_factors_keeps_few_of_them() -> None:
    kept = rates.Rates(Rule.of(replace(MODEL, optimizer=Optimizer.ADAM)))
    for n in range(1, 3 * rates.MOST_KEPT):
        rule, table = kept.step(1 / n)
        assert rule.learning_rate == pytest.approx(MODEL.learning_rate / n)
        assert table is not None
    assert len(kept._others) == rates.MOST_KEPT
