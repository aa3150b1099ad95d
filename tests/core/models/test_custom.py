"""A user's module: the contract of `trainable`, and one line for each way to break it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.cases import for_each
from torch import nn

from dlrover_nb import trainable
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.models.custom import Checked, build, check
from dlrover_nb.core.models.learner import Learner
from dlrover_nb.core.models.trainable import Columns
from dlrover_nb.core.structs.data.features import SequenceInput
from dlrover_nb.core.structs.job.job import Averages, ModelSpec
from dlrover_nb.core.usercode import pack

COLUMNS = Columns(3, 2, 4)
N_INPUT = 3 * 5 + 2


@trainable
class Logistic(nn.Module):
    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.out = nn.Linear(columns.n_categorical * columns.row_width + columns.n_numeric, 1)

    def forward(self, embedded, dense):
        return self.out(torch.cat([embedded.flatten(1), dense], 1)).squeeze(1)


class Dropping(Logistic):
    def forward(self, embedded, dense):
        return super().forward(embedded, nn.functional.dropout(dense, 0.5, self.training))


@trainable(loss=lambda logits, labels: (logits - labels).square().mean())
class Squares(Logistic):
    pass


class OwnLoss(Logistic):
    def loss(self, logits, labels):
        return (logits - labels).abs().mean()


class Column(Logistic):
    def forward(self, embedded, dense):
        return super().forward(embedded, dense).unsqueeze(1)


class Squeezed(Logistic):  # right for every batch but that of one row
    def forward(self, embedded, dense):
        return self.out(torch.cat([embedded.flatten(1), dense], 1)).squeeze()


class Running(Logistic):
    def __init__(self, columns):
        super().__init__(columns)
        self.norm = nn.BatchNorm1d(columns.n_numeric)

    def forward(self, embedded, dense):
        return super().forward(embedded, self.norm(dense))


class Fixed(Running):
    def __init__(self, columns):
        super().__init__(columns)
        self.norm = nn.LayerNorm(columns.n_numeric)


class Spectral(Logistic):
    def __init__(self, columns):
        super().__init__(columns)
        self.deep = nn.utils.parametrizations.spectral_norm(
            nn.Linear(columns.n_categorical * columns.row_width, 16)
        )

    def forward(self, embedded, dense):
        return super().forward(embedded, dense) + self.deep(embedded.flatten(1)).sum(1)


class OwnAverage(Logistic):
    def __init__(self, columns):
        super().__init__(columns)
        self.register_buffer("mean", torch.zeros(columns.n_numeric))

    def forward(self, embedded, dense):
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * dense.mean(0))
        return super().forward(embedded, dense - self.mean)


class LazyNorm(Logistic):
    def __init__(self, columns):
        super().__init__(columns)
        self.norm = nn.LazyBatchNorm1d(affine=False)


class Company(Running):
    def __init__(self, columns):
        super().__init__(columns)
        self.norm = nn.BatchNorm1d(columns.n_numeric, track_running_stats=False)


class Masked(Logistic):
    def __init__(self, columns):
        super().__init__(columns)
        self.register_buffer("mask", torch.ones(columns.n_numeric))


class Narrow(Logistic):
    def forward(self, embedded, dense):
        return self.out(torch.cat([embedded[:, 0], dense], 1)).squeeze(1)


class Lazy(Logistic):
    def __init__(self, columns):
        super().__init__(columns)
        self.more = nn.LazyLinear(1)


class Double(Logistic):
    def __init__(self, columns):
        super().__init__(columns)
        self.double()


class Vector(Logistic):
    def loss(self, logits, labels):
        return logits - labels


class Endless(Logistic):
    def loss(self, logits, labels):
        return (logits - labels).sum() / 0


class Sparse(Logistic):
    def __init__(self, columns):
        super().__init__(columns)
        self.more = nn.Embedding(2, 1, sparse=True)

    def forward(self, embedded, dense):
        return super().forward(embedded, dense) + self.more(
            torch.zeros(len(dense), dtype=torch.int64)
        ).squeeze(1)


class OfLists(Logistic):  # as models of other libraries are built
    def __init__(self, columns, deep_columns):
        super().__init__([*columns, *deep_columns])


class OfOne(Logistic):
    def forward(self, inputs):
        return super().forward(*inputs)


class Named(Logistic):
    def forward(self, embedded, dense):
        return {"y_pred": super().forward(embedded, dense)}


def no_module(columns):
    return columns


def raising(columns):
    raise RuntimeError("no data today\nreally")


@for_each("factory", [Logistic, Dropping, Squares, OwnLoss, Fixed, Masked])
def test_what_keeps_to_the_contract_is_counted(factory):
    expected = N_INPUT + 1 + (4 if factory is Fixed else 0)
    assert check(factory, COLUMNS, [8, 2]) == Checked(expected)


def test_running_statistics_are_counted_apart():
    assert check(Running, COLUMNS, [8, 1]) == Checked(N_INPUT + 1 + 4 + 4, averages=(Averages(4, 0.1),))


def test_a_model_that_returns_probabilities_is_said(words):
    class Sure(Logistic):
        def forward(self, embedded, dense):
            return super().forward(embedded, dense).sigmoid()

    class Silent(Logistic):
        def forward(self, embedded, dense):
            return 0 * super().forward(embedded, dense)

    (warning,) = check(Sure, COLUMNS, [8]).warnings
    assert warning == words
    assert "return logits" in warning
    assert check(Silent, COLUMNS, [8]).warnings == ()


@for_each(
    ("factory", "message"),
    [
        (
            Column,
            r"Column must return float32 logits of shape \(8,\) for 8 rows, got .*\(8, 1\); add \.squeeze\(1\)",
        ),
        (Squeezed, r"float32 logits of shape \(1,\) for 1 rows, got torch.float32 of shape \(\)"),
        (
            Spectral,
            r"changes its buffer deep\.parametrizations.* only running_mean and running_var of nn.Batch",
        ),
        (OwnAverage, r"OwnAverage changes its buffer mean in training.* make it a parameter, or compute it"),
        (LazyNorm, r"norm.running_mean of LazyNorm has no size yet; initialize lazy layers first"),
        (Company, r"Company on 1 sample rows failed: ValueError: Expected more than 1 value per channel"),
        (Narrow, r"Narrow on 8 sample rows failed: RuntimeError: .* \(line \d+, in forward\)"),
        (Lazy, r"more.weight of Lazy has no size yet"),
        (Double, r"parameter out.weight of Double must be float32 on the CPU, got torch.float64"),
        (Vector, r"the loss of Vector must be one number as a tensor, got torch.float32 of shape \(8,\)"),
        (Endless, r"the loss of Endless on random rows must be finite"),
        (Sparse, r"gradients of Sparse must be dense, but more.weight has sparse ones"),
        (
            OfLists,
            r"OfLists must take \(columns\): missing .*'deep_columns'; wrap it",
        ),
        (OfOne, r"forward of OfOne must take \(embedded, dense\): too many .*; wrap it"),
        (Named, r"Named must return .* got dict; return the logits alone"),
        (no_module, r"no_module\(columns\) must return a torch.nn.Module, got Columns"),
        (raising, r"raising\(columns\) failed: RuntimeError: no data today \(line \d+, in raising\)"),
        (3, r"expected a class or function that makes a module, got int"),
    ],
)
def test_what_does_not_is_one_line(factory, message):
    with pytest.raises(InvalidValueError, match=message) as caught:
        check(factory, COLUMNS, [8])
    assert "\n" not in str(caught.value)


def test_the_losses_are_the_users():
    logits, labels = torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0])
    assert build(Squares, COLUMNS).loss(logits, labels) == pytest.approx(2.5)
    assert build(OwnLoss, COLUMNS).loss(logits, labels) == pytest.approx(1.5)
    default = build(Logistic, COLUMNS).loss(logits, labels)
    assert default == pytest.approx(float(nn.functional.binary_cross_entropy_with_logits(logits, labels)))


def learner(tmp_path, factory):
    packed = pack(factory)
    packed.write(tmp_path)
    model = ModelSpec(name="custom", code=packed.code, embedding_dim=4, n_dense=N_INPUT + 1)
    assert dense_parameter_count(model, 3, 2) == N_INPUT + 1
    return Learner(model, 3, 2, folder=tmp_path)


def rows():
    rng = np.random.default_rng(1)
    f4 = np.float32
    labels = rng.integers(0, 2, 8).astype(f4)
    return (
        rng.normal(size=(6, 5)).astype(f4),
        rng.integers(0, 6, 24),
        rng.normal(size=(8, 2)).astype(f4),
        labels,
    )


def test_a_learner_trains_the_users_module_from_the_run_folder(tmp_path):
    learns = learner(tmp_path, Squares)
    assert len(learns.values) == N_INPUT + 1
    first = learns.step(*rows()).loss
    learns.values[:] -= 0.1 * learns.gradients
    assert learns.step(*rows()).loss < first


def test_dropout_is_on_in_training_and_off_in_scoring(tmp_path):
    learns = learner(tmp_path, Dropping)
    torch.manual_seed(0)
    assert len({learns.step(*rows()).loss for _ in range(5)}) > 1
    scores = [learns.scores(*rows()[:3]).tolist() for _ in range(3)]
    assert scores[0] == scores[1] == scores[2]
    assert len({learns.step(*rows()).loss for _ in range(5)}) > 1


HISTORY = SequenceInput("history", 1, 5, target=0)
WITH_HISTORY = Columns(3, 2, 4, (HISTORY,))


class Attending(nn.Module):
    """Takes the items of a history, by their likeness to the target."""

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.out = nn.Linear(N_INPUT + columns.row_width, 1)

    def forward(self, embedded, dense, sequences):
        items, is_item = sequences["history"]
        likeness = self.weights((items * embedded[:, :1]).sum(2), is_item)
        pooled = (likeness[:, :, None] * items).sum(1)
        return self.out(torch.cat([embedded.flatten(1), dense, pooled], 1)).squeeze(1)

    def weights(self, likeness, is_item):
        return likeness * is_item


class OverNothing(Attending):
    def weights(self, likeness, is_item):
        return likeness.masked_fill(~is_item, -torch.inf).softmax(1)


class OtherName(Attending):
    def forward(self, embedded, dense, lists):
        return super().forward(embedded, dense, lists)


def test_a_module_that_takes_sequences_gets_the_items_of_each_row(tmp_path):
    assert check(Attending, WITH_HISTORY, [8, 1]).n_dense == N_INPUT + 5 + 1
    packed = pack(Attending)
    packed.write(tmp_path)
    model = ModelSpec("custom", embedding_dim=4, code=packed.code, seed=3)
    learns = Learner(model, 3, 2, sequences=(HISTORY,), folder=tmp_path)
    torch.manual_seed(model.seed)
    module = Attending(WITH_HISTORY)
    table, dense = torch.randn(6, 5), torch.ones(2, 2)
    places = np.array([[0, 1, 2, 6, 6, 6, 3], [4, 6, 6, 6, 6, 6, 5]])  # 6 is padding
    none = torch.zeros(5)
    bags = [[table[0], (table[1] + table[2]) / 2, table[3]], [table[4], none, table[5]]]
    items = [[table[1], table[2], none, none, none], [none] * 5]
    is_item = torch.tensor([[True, True, False, False, False], [False] * 5])
    sequences = {"history": (torch.stack([*map(torch.stack, items)]), is_item)}
    want = module(torch.stack([*map(torch.stack, bags)]), dense, sequences)
    got = learns.logits(table.numpy(), places.ravel(), dense.numpy())
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-5, atol=1e-6)


class Normed(Attending):
    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.norm = nn.BatchNorm1d(columns.row_width)

    def weights(self, likeness, is_item):
        return super().weights(likeness, is_item).tanh()

    def forward(self, embedded, dense, sequences):
        items, is_item = sequences["history"]
        normed = self.norm(items.flatten(0, 1)).view_as(items)
        return super().forward(embedded, dense, {"history": (normed, is_item)})


def test_items_may_be_normalized_by_their_batch(tmp_path):
    checked = check(Normed, WITH_HISTORY, [8, 1])
    packed = pack(Normed)
    packed.write(tmp_path)
    model = ModelSpec(
        "custom", embedding_dim=4, code=packed.code, n_dense=checked.n_dense, averages=checked.averages
    )
    learns = Learner(model, 3, 2, sequences=(HISTORY,), folder=tmp_path)
    places = np.array([[0, 1, 2, 6, 6, 6, 3], [4, 6, 6, 6, 6, 6, 5]])  # 6 is padding
    table = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    items = np.vstack([table, np.zeros((1, 5), np.float32)])[places[:, 1:6]].reshape(-1, 5)
    learns.step(table, places.ravel(), np.ones((2, 2), np.float32), np.array([0, 1], np.float32))
    want = [items.mean(0), items.var(0, ddof=1)]
    np.testing.assert_allclose(learns.shares, 0.1 * np.concatenate(want), rtol=1e-5, atol=1e-7)


class NormedItems(Normed):
    def forward(self, embedded, dense, sequences):
        items, is_item = sequences["history"]
        normed = torch.zeros_like(items)
        normed[is_item] = self.norm(items[is_item])
        return Attending.forward(self, embedded, dense, {"history": (normed, is_item)})


def test_one_item_in_all_lists_is_normalized_by_the_running_statistics_and_trained(tmp_path):
    checked = check(NormedItems, WITH_HISTORY, [8, 2, 1])  # the last ones have one item, and none
    packed = pack(NormedItems)
    packed.write(tmp_path)
    model = ModelSpec(
        "custom", embedding_dim=4, code=packed.code, n_dense=checked.n_dense, averages=checked.averages
    )
    learns = Learner(model, 3, 2, sequences=(HISTORY,), folder=tmp_path)
    averages = learns.values[-10:]
    averages[:5], averages[5:] = 1, 4
    places = np.array([[0, 1, 6, 6, 6, 6, 3], [4, 6, 6, 6, 6, 6, 5]])  # 6 is padding
    table = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    gradients = learns.step(table, places.ravel(), np.ones((2, 2), np.float32), np.array([0, 1], np.float32))
    np.testing.assert_allclose(learns.shares, 0.1 * averages, rtol=1e-6)
    assert np.isfinite(gradients.rows).all()
    assert gradients.rows[1].any()
    assert learns._module.norm.training


def test_a_module_that_knows_no_sequences_gets_their_bags():
    assert check(Logistic, WITH_HISTORY, [8, 1]) == Checked(N_INPUT + 1)


@for_each(
    ("module", "columns", "words"),
    [
        (OverNothing, WITH_HISTORY, "the loss of OverNothing on random rows must be finite, got nan"),
        (OtherName, WITH_HISTORY, r"forward of OtherName must take \(embedded, dense\): missing a required"),
        (Attending, COLUMNS, "Attending on 8 sample rows failed: KeyError: 'history'"),
    ],
)
def test_a_module_that_cannot_take_the_lists_is_one_line(module, columns, words):
    with pytest.raises(InvalidValueError, match=words):
        check(module, columns, [8])


def test_a_forward_whose_arguments_cannot_be_known_is_called_and_its_error_is_one_line() -> None:
    class Opaque(nn.Module):
        forward = staticmethod(max)  # a builtin without a signature

    with pytest.raises(InvalidValueError, match="on 8 sample rows failed"):
        check(lambda _: Opaque(), COLUMNS, [8])
