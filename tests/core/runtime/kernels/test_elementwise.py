"""Optimizers of installed packages: the same steps as our own where they compute the same."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import every_kernel  # noqa: F401 - repeats the tests on each kernel
from support.runtime.node_world import SPEC, shard
from support.runtime.single_process import train_single

from dlrover_nb.core import extensions
from dlrover_nb.core.data import make_features
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import job_from, known_values
from dlrover_nb.core.runtime.kernels import kernel, numpy_kernel
from dlrover_nb.core.runtime.kernels.elementwise import ElementwiseOptimizer
from dlrover_nb.core.runtime.kernels.rule import Rule
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer

ADAGRAD = ModelSpec(optimizer=Optimizer.ADAGRAD)


def adagrad(values, state, gradients, model):
    (sums,) = state
    sums += gradients * gradients
    values -= gradients / np.sqrt(sums) * np.float32(model.learning_rate)


def two_moments(values, state, gradients, model):
    """Take a step of two arrays of state, so that they are told apart."""
    first, second = state
    first += gradients
    second *= np.float32(0.5)
    second += first
    values -= np.float32(model.learning_rate) * second


OURS = ElementwiseOptimizer(adagrad, n_state=1, first_state=ADAGRAD.initial_accumulator)
PLAIN = ElementwiseOptimizer(lambda values, _, gradients, __: np.subtract(values, gradients, out=values))
TWO = ElementwiseOptimizer(two_moments, n_state=2)
NOT_ONE = "adagrad, but a string"


@pytest.fixture
def added(monkeypatch):
    """Add optimizers as an installed package does."""
    points = [
        EntryPoint(name, f"{__name__}:{attribute}", extensions.OPTIMIZERS)
        for name, attribute in (("ours", "OURS"), ("plain", "PLAIN"), ("two", "TWO"), ("text", "NOT_ONE"))
    ]
    monkeypatch.setattr(
        extensions, "entry_points", lambda group: points if group == extensions.OPTIMIZERS else []
    )


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), n=st.integers(0, 60), width=st.integers(1, 9))
def test_an_added_adagrad_is_ours_on_rows_and_on_dense_parameters(seed, n, width):
    rng = np.random.default_rng(seed)
    ours, theirs = Rule.of(ADAGRAD), replace(Rule.of(ADAGRAD), optimizer="ours", added=(OURS, ADAGRAD))
    assert (theirs.row_state(width), theirs.dense_state) == (ours.row_state(width), ours.dense_state)
    assert theirs.first_state == ours.first_state
    table = np.abs(rng.normal(size=(80, 2 * width))).astype(np.float32)
    slots = rng.permutation(80)[:n].astype(np.int32)
    gradients = rng.normal(size=(n, width)).astype(np.float32)
    expected = table.copy()
    numpy_kernel.update_rows(expected, slots, gradients, ours, None)
    kernel().update_rows(table, slots, gradients, theirs, None)
    np.testing.assert_array_equal(table, expected)

    dense = np.abs(rng.normal(size=(2, n))).astype(np.float32)
    gradient = rng.normal(size=n).astype(np.float32)
    expected = dense.copy()
    numpy_kernel.update_dense(expected, gradient, ours, None)
    kernel().update_dense(dense, gradient, theirs, None)
    np.testing.assert_array_equal(dense, expected)


def test_arrays_of_state_are_handed_over_in_the_order_in_which_they_lie(added):
    model = ModelSpec(optimizer="two", learning_rate=1.0)
    rule = Rule.of(model)
    row = np.array([[10, 20, 1, 2, 4, 8]], np.float32)  # two values, then first, then second
    kernel().update_rows(row, np.zeros(1, np.int32), np.array([[1, 1]], np.float32), rule, None)
    np.testing.assert_array_equal(row, [[6, 13, 2, 3, 4, 7]])
    dense = np.array([[10, 20], [1, 2], [4, 8]], np.float32)
    kernel().update_dense(dense, np.array([1, 1], np.float32), rule, None)
    np.testing.assert_array_equal(dense, [[6, 13], [2, 3], [4, 7]])


def test_an_optimizer_without_state_has_none(added):
    rule = Rule.of(ModelSpec(optimizer="plain"))
    assert (rule.row_state(5), rule.dense_state) == (0, 0)


@pytest.mark.more
def test_a_job_learns_with_it_and_files_know_its_name(added):
    assert known_values("model.optimizer") == ("sgd", "adagrad", "adam", "ours", "plain", "two", "text")
    spec = job_from({"name": "x", "model": {"optimizer": "ours", "learning_rate": 0.05}})
    model = replace(SPEC.model, optimizer=spec.model.optimizer, learning_rate=spec.model.learning_rate)
    spec = replace(SPEC, model=model)
    shards = [shard(n) for n in range(6)]
    run = train_single(spec, make_features(spec.data, model), shards=shards)
    own = replace(spec, model=replace(model, optimizer=Optimizer.ADAGRAD))
    assert run.losses == train_single(own, make_features(spec.data, model), shards=shards).losses


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adamm", "got 'adamm'; did you mean adam"),
        ("tow", "did you mean two"),
        ("text", "optimizer text must be an ElementwiseOptimizer, got str"),
    ],
)
def test_what_is_no_optimizer_is_refused(added, name, words):
    with pytest.raises(InvalidValueError, match=words):
        Rule.of(ModelSpec(optimizer=name))


def test_a_file_with_an_unknown_name_is_refused_with_the_nearest(added, error_words):
    with error_words(InvalidValueError):
        job_from({"name": "x", "model": {"optimizer": "oars"}})
    with error_words(InvalidValueError):
        job_from({"name": "x", "model": {"optimizer": 3}})
