"""Running statistics of a module: what a learner pushes for them, and that they are those of a plain loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.batch_norms import BatchNorms
from dlrover_nb.core.models.custom import check
from dlrover_nb.core.models.learner import Learner, set_threads
from dlrover_nb.core.models.trainable import Columns
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.job import Averages, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding, Optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

COLUMNS = Columns(n_categorical=3, n_numeric=2, embedding_dim=4)
N_ID = 50


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    set_threads(1)


class Deep(nn.Module):
    """A deep part with batch normalizations of two momenta, as DeepFM and DCN have them."""

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        n_input = columns.n_categorical * columns.row_width + columns.n_numeric
        self.first = nn.BatchNorm1d(n_input, momentum=0.3)
        self.deep = nn.Sequential(nn.Linear(n_input, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.deep(self.first(torch.cat([embedded.flatten(1), dense], 1)))
        return logits.squeeze(1)


class Numbers(nn.Module):
    """A batch normalization of the numbers alone: its statistics follow from the batch."""

    N_CALL, MOMENTUM, SCALE = 1, 0.1, 1.0

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(columns.n_numeric, momentum=self.MOMENTUM)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        logits = embedded.sum((1, 2))
        for n in range(self.N_CALL):
            logits = logits + self.norm(self.SCALE * dense + n).sum(1)
        return logits


class Twice(Numbers):
    N_CALL = 2


class Never(Numbers):
    N_CALL = 0


class Still(Numbers):
    MOMENTUM = 0.0


class Huge(Numbers):
    """Its variances overflow, and its outputs do not: all are divided by infinity."""

    SCALE = 1e30


def model_of(factory: type[nn.Module], **changes: Any) -> ModelSpec:
    checked = check(factory, COLUMNS, [8])
    model = ModelSpec(
        name="custom",
        code=f"test_batch_norms:{factory.__name__}",
        embedding_dim=4,
        embedding=Embedding.HASH,
        n_dense=checked.n_dense,
        averages=checked.averages,
    )
    return replace(model, **changes)


def learner(factory: type[nn.Module], **changes: Any) -> Learner:
    return Learner(model_of(factory, **changes), 3, 2)


def batches(n: int, n_row: int = 16) -> Iterator[tuple[NDArray[np.int64], Floats, Floats]]:
    """Yield ids [n_row, 3], numbers [n_row, 2] and labels."""
    rng = np.random.default_rng(5)
    for _ in range(n):
        numbers = rng.normal(3.0, 20.0, (n_row, 2)).astype(np.float32)
        yield rng.integers(0, N_ID, (n_row, 3)), numbers, rng.integers(0, 2, n_row).astype(np.float32)


def step(learns: Learner, store: ParameterStore, ids: Any, numbers: Floats, labels: Floats) -> None:
    learns.values[:] = store.dense
    rows, inverse = np.unique(ids, return_inverse=True)
    gradients = learns.step(store.pull(rows), inverse.ravel(), numbers, labels)
    store.push(rows, gradients.rows)
    store.push_dense(learns.gradients)


def store_of(learns: Learner, model: ModelSpec) -> ParameterStore:
    store = ParameterStore(model, 0, len(learns.values))
    store.init_dense(learns.values)
    return store


def means(numbers: Floats) -> Floats:
    return np.concatenate([numbers.mean(0), numbers.var(0, ddof=1)])


FIRST = np.float32([0, 0, 1, 1])  # means and variances as built


def test_one_worker_ends_with_the_statistics_of_a_plain_loop_over_the_same_batches() -> None:
    model = model_of(Deep, optimizer=Optimizer.SGD, learning_rate=0.5)
    learns = Learner(model, 3, 2)
    store = store_of(learns, model)
    plain = Deep(COLUMNS)
    plain.load_state_dict(learns._module.state_dict(), strict=True)
    table = nn.Parameter(torch.from_numpy(store.pull(np.arange(N_ID))))
    optimizer = torch.optim.SGD([table, *plain.parameters()], lr=0.5)
    for ids, numbers, labels in batches(30):
        step(learns, store, ids, numbers, labels)
        optimizer.zero_grad()
        logits = plain(table[torch.from_numpy(ids)], torch.from_numpy(numbers))
        nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels)).backward()
        optimizer.step()
    learns.values[:] = store.dense
    trained = learns._module.state_dict()
    for name, expected in plain.state_dict().items():
        if "running" in name:
            torch.testing.assert_close(trained[name], expected, rtol=1e-4, atol=1e-5, msg=name)
    ids, numbers, _ = next(batches(1))
    with torch.inference_mode():
        expected = plain.eval()(table[torch.from_numpy(ids)], torch.from_numpy(numbers)).sigmoid()
    scores = learns.scores(store.pull(ids.ravel()), np.arange(ids.size), numbers)
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_statistics_of_the_numbers_are_those_of_torch_up_to_rounding() -> None:
    model = model_of(Numbers)
    learns, plain = Learner(model, 3, 2), nn.BatchNorm1d(2)
    store = store_of(learns, model)
    for ids, numbers, labels in batches(50):
        step(learns, store, ids, numbers, labels)
        plain(torch.from_numpy(numbers))
    expected = torch.cat([plain.running_mean, plain.running_var])
    np.testing.assert_allclose(store.dense[-4:], expected, rtol=2e-6)


def test_a_step_leaves_the_values_as_they_are() -> None:
    learns = learner(Deep)
    before = learns.values.copy()
    for ids, numbers, labels in batches(3):
        learns.step(np.ones((ids.size, 5), np.float32), np.arange(ids.size), numbers, labels)
        assert np.abs(learns.shares).max() > 0
    np.testing.assert_array_equal(learns.values, before)


@pytest.mark.parametrize("optimizer", Optimizer)
def test_no_optimizer_and_no_rate_touches_averages(optimizer: Optimizer) -> None:
    model = model_of(Numbers, optimizer=optimizer, learning_rate=0.9)
    learns = Learner(model, 3, 2)
    store = store_of(learns, model)
    (ids, numbers, labels), *_ = batches(1)
    learns.step(store.pull(ids.ravel()), np.arange(ids.size), numbers, labels)
    first = store.export().dense[:, -4:].copy()
    store.push_dense(learns.gradients, 0.25)
    last = store.export().dense[:, -4:]
    np.testing.assert_allclose(last[0], 0.9 * FIRST + 0.1 * means(numbers), rtol=1e-6)
    np.testing.assert_array_equal(last[1:], first[1:])  # state of the optimizer


def shares(learns: Learner, numbers: Floats) -> Floats:
    n_row = len(numbers)
    learns.step(
        np.ones((3 * n_row, 5), np.float32), np.arange(3 * n_row), numbers, np.ones(n_row, np.float32)
    )
    return learns.shares.copy()


def test_a_share_is_that_of_the_batch_whatever_was_pulled() -> None:
    (_, numbers, _), *_ = batches(1)
    learns = learner(Numbers)
    for pulled in (FIRST, np.float32([7, -8, 90, 1000])):
        learns.values[-4:] = pulled
        np.testing.assert_allclose(shares(learns, numbers), 0.1 * means(numbers), rtol=1e-4)


def test_a_layer_that_is_called_twice_counts_as_one_batch_later_calls_more() -> None:
    (_, numbers, _), *_ = batches(1)
    calls = means(numbers), means(numbers + 1)
    expected = 0.1 * (0.9 * calls[0] + calls[1]) / 1.9
    np.testing.assert_allclose(shares(learner(Twice), numbers), expected, rtol=1e-5)


def test_a_layer_that_is_not_called_leaves_its_averages() -> None:
    (_, numbers, _), *_ = batches(1)
    np.testing.assert_allclose(shares(learner(Never), numbers), 0.1 * FIRST, rtol=1e-6)


def test_one_row_is_normalized_by_the_running_statistics_and_leaves_them() -> None:
    learns = learner(Numbers)
    learns.values[-4:] = [1, 2, 4, 9]
    np.testing.assert_allclose(shares(learns, np.float32([[3, 5]])), 0.1 * learns.values[-4:], rtol=1e-6)
    assert learns._module.norm.training
    loss = learns.step(
        np.zeros((3, 5), np.float32), np.arange(3), np.float32([[3, 5]]), np.ones(1, "f4")
    ).loss
    assert loss == pytest.approx(np.log1p(np.exp(-2.0)), rel=1e-4)  # (3-1)/2 + (5-2)/3 = 2
    assert check(Numbers, COLUMNS, [8, 1]) == check(Numbers, COLUMNS, [8])


class Channels(Numbers):
    """A batch normalization of channels that have several values in each row."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.norm = nn.BatchNorm1d(1, momentum=self.MOMENTUM)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = embedded.sum((1, 2)) + self.norm(dense[:, None]).sum((1, 2))
        return logits


def test_one_row_of_several_values_is_normalized_by_these_as_torch_does() -> None:
    numbers = np.float32([[3, 5]])
    np.testing.assert_allclose(shares(learner(Channels), numbers), 0.1 * means(numbers.T), rtol=1e-5)


def test_averages_are_the_last_elements_in_the_order_of_the_layers() -> None:
    model, learns = model_of(Deep), learner(Deep)
    n_input = 3 * 5 + 2
    assert model.averages == (Averages(2 * n_input, 0.3), Averages(2 * 8, 0.1))
    state = learns._module.state_dict()
    learns.values[-model.n_average :] = np.arange(model.n_average)
    order = [f"{layer}.running_{which}" for layer in ("first", "deep.1") for which in ("mean", "var")]
    torch.testing.assert_close(torch.cat([state[name] for name in order]), torch.arange(50.0))
    Deep(COLUMNS).load_state_dict(state, strict=True)
    assert model_of(Still).averages == ()


def test_an_average_without_a_fixed_weight_is_refused(error_words) -> None:
    class Cumulative(Numbers):
        MOMENTUM = None  # type: ignore[assignment]

    with error_words(InvalidValueError):
        BatchNorms(Cumulative(COLUMNS))


def test_code_with_other_averages_than_were_submitted_does_not_train(error_words) -> None:
    with error_words(InvalidValueError):
        learner(Numbers, averages=(Averages(4, 0.2),))
