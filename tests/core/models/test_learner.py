from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.cases import for_each
from torch.nn import functional

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.built_in import MODELS, dense_parameter_count
from dlrover_nb.core.models.learner import CPU, Learner, device_of
from dlrover_nb.core.structs.data.features import SequenceInput
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Device

N_CATEGORICAL, N_NUMERIC, BATCH = 3, 2, 8
MODEL = ModelSpec(embedding_dim=4, hidden=(6, 5))
HISTORY = SequenceInput(
    "history", 1, 1, target=0
)  # of one item, so that its ids are as many as of a single one


def learner_of(model, n_categorical=N_CATEGORICAL, n_numeric=N_NUMERIC, device=CPU):
    sequences = (HISTORY,) if model.name == "din" else ()
    return Learner(model, n_categorical, n_numeric, sequences=sequences, device=device)


def batch(seed=0, n_row=10):
    rng = np.random.default_rng(seed)
    f4 = np.float32
    return (
        rng.normal(size=(n_row, 5)).astype(f4),
        rng.integers(0, n_row, BATCH * N_CATEGORICAL),
        rng.normal(size=(BATCH, N_NUMERIC)).astype(f4),
        rng.integers(0, 2, BATCH).astype(f4),
    )


@pytest.mark.parametrize("name", sorted(MODELS))
@settings(deadline=None, max_examples=20)
@given(
    dim=st.integers(1, 8),
    hidden=st.lists(st.integers(1, 9), max_size=3),
    n_categorical=st.integers(0, 5),
    n_numeric=st.integers(0, 5),
    depth=st.fixed_dictionaries(
        {
            "cross_layers": st.integers(1, 4),
            "cin": st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
            "attention": st.lists(st.integers(1, 9), max_size=3).map(tuple),
        }
    ),
)
def test_the_count_without_torch_is_the_modules_own(name, dim, hidden, n_categorical, n_numeric, depth):
    model = ModelSpec(name=name, embedding_dim=dim, hidden=tuple(hidden), **depth)
    assume(n_categorical + n_numeric > 0 and (name != "din" or n_categorical > 1))
    learner = learner_of(model, n_categorical, n_numeric)
    rows = np.ones((1, dim + 1), np.float32)
    ids, dense = np.zeros(2 * n_categorical, np.int64), np.ones((2, n_numeric), np.float32)
    assert learner.scores(rows, ids, dense).shape == (2,)
    assert len(learner.values) == dense_parameter_count(model, n_categorical, n_numeric)


def test_counting_does_not_import_torch():
    code = (
        "import sys\nfrom dlrover_nb.core.models.built_in import dense_parameter_count\n"
        "import dlrover_nb.core.models.metrics\n"
        "from dlrover_nb.core.structs.job.job import ModelSpec\nprint(dense_parameter_count(ModelSpec(), 33, 7))\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == (33 * 16 + 7 + 1) * 256 + 257 * 128 + 129 * 64 + 65 + 8


def test_an_unknown_model_names_the_known_ones():
    with pytest.raises(InvalidValueError, match="wide_deep"):
        dense_parameter_count(ModelSpec(name="deep_wide"), 1, 1)


def numerical_gradient(function, array, at, step=1e-2):
    old = array[at]
    array[at] = old + step
    above = function()
    array[at] = old - step
    below = function()
    array[at] = old
    return (above - below) / (2 * step)


@pytest.mark.more
@pytest.mark.parametrize("name", sorted(MODELS))
def test_gradients_are_the_slope_of_the_loss(name):
    model = replace(MODEL, name=name, hidden=(6,), cross_layers=2, cin=(4, 3), attention=())
    learner = learner_of(model)
    rows, inverse, dense, labels = batch()

    def loss():
        return learner.step(rows, inverse, dense, labels).loss

    of_rows = learner.step(rows, inverse, dense, labels).rows.copy()
    of_dense = learner.gradients.copy()
    for at in np.ndindex(rows.shape):
        assert of_rows[at] == pytest.approx(numerical_gradient(loss, rows, at), abs=2e-3)
    for at in range(0, len(of_dense), 3):
        assert of_dense[at] == pytest.approx(numerical_gradient(loss, learner.values, at), abs=2e-3)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_wide_weight_adds_to_the_logit(name):
    learner = learner_of(replace(MODEL, name=name))
    rows, inverse, dense, _ = batch()
    before = learner.scores(rows, inverse, dense)
    rows[:, -1] += 0.5
    after = learner.scores(rows, inverse, dense)
    np.testing.assert_allclose(logit(after) - logit(before), 0.5 * N_CATEGORICAL, atol=1e-4)


def logit(p):
    return np.log(p / (1 - p))


def test_one_seed_gives_one_model_and_leaves_the_global_generator_alone():
    torch.manual_seed(11)
    first = torch.rand(1)
    torch.manual_seed(11)
    learner = Learner(MODEL, N_CATEGORICAL, N_NUMERIC)
    assert torch.rand(1) == first
    np.testing.assert_array_equal(learner.values, Learner(MODEL, N_CATEGORICAL, N_NUMERIC).values)


def test_read_only_rows_of_a_message_are_taken():
    learner = Learner(MODEL, N_CATEGORICAL, N_NUMERIC)
    rows, inverse, dense, labels = batch()
    rows.flags.writeable = False
    assert np.isfinite(learner.step(rows, inverse, dense, labels).loss)


SECOND = torch.device("cpu", 0)  # as a device with a memory of its own: another one than "cpu", and computed


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_device_computes_what_the_cpu_does(name):
    model = replace(MODEL, name=name)
    here, there = learner_of(model), learner_of(model, device=SECOND)
    for seed in range(3):
        rows, inverse, dense, labels = batch(seed)
        here.values += np.float32(0.01)  # as a pull from the PS writes them
        there.values[:] = here.values
        one, two = here.step(rows, inverse, dense, labels), there.step(rows, inverse, dense, labels)
        assert one.loss == two.loss
        np.testing.assert_array_equal(one.rows, two.rows)
        np.testing.assert_array_equal(here.gradients, there.gradients)
        np.testing.assert_array_equal(here.values, there.values)
        np.testing.assert_array_equal(here.scores(rows, inverse, dense), there.scores(rows, inverse, dense))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_all_of_a_batch_is_on_the_device(name):
    learner = learner_of(replace(MODEL, name=name), device=torch.device("meta"))
    # It has no numbers, so that it gets as far as those: din's history, else the loss. A mixture of devices is
    # another error.
    at = "register_meta function for torch.nonzero" if name == "din" else "copy out of meta tensor"
    with pytest.raises(NotImplementedError, match=at):
        learner.step(*batch())
    rows, inverse, dense, _ = batch()
    with pytest.raises(NotImplementedError, match=at):
        learner.logits(rows, inverse, dense)


def test_on_the_cpu_values_and_gradients_are_those_of_the_module_and_rows_are_not_copied(monkeypatch):
    learner, places = learner_of(MODEL), []
    rows, inverse, dense, _ = batch()
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *_: pytest.fail("a copy"))

    original = functional.embedding

    def embedding(places_, rows_):
        places.append(rows_.data_ptr())
        return original(places_, rows_)

    monkeypatch.setattr("dlrover_nb.core.models.inputs.functional.embedding", embedding)
    learner.logits(rows, inverse, dense)
    assert places == [rows.ctypes.data]


@for_each(
    ("choice", "n_gpu", "has_cuda", "kind"),
    [
        (Device.AUTO, 0, True, "cpu"),
        (Device.AUTO, 1, True, "cuda"),
        (Device.AUTO, 1, False, "cpu"),
        (Device.CPU, 1, True, "cpu"),
        (Device.CUDA, 0, True, "cuda"),
    ],
)
def test_a_worker_computes_on_the_gpu_that_it_has(monkeypatch, choice, n_gpu, has_cuda, kind):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    assert device_of(choice, n_gpu).type == kind


def test_a_job_that_insists_on_a_gpu_is_told_what_is_missing(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        InvalidValueError, match=r"device cuda needs a GPU .* plan.worker.gpu: 1, or device: auto"
    ):
        device_of(Device.CUDA, 1)


def test_scores_are_probabilities_of_the_same_logits_as_the_loss():
    learner = Learner(MODEL, N_CATEGORICAL, N_NUMERIC)
    rows, inverse, dense, labels = batch()
    p = learner.scores(rows, inverse, dense)
    loss = -np.mean(np.where(labels > 0.5, np.log(p), np.log1p(-p)))
    assert learner.step(rows, inverse, dense, labels).loss == pytest.approx(loss, rel=1e-5)
