"""A module whose tables live on parameter servers trains what its own loop does."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from support.runtime.elastic_runs import job_of, train_elastic, train_plain
from torch import nn
from torch.nn import functional

import dlrover_nb
from dlrover_nb.core.client.trained_model import TrainedModel

N_ROW, N_USER, N_ITEM, N_STEP = 3800, 50, 30, 100


def rows():
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, N_USER, N_ROW), rng.integers(0, N_ITEM, N_ROW)
    age = rng.normal(size=N_ROW).astype(np.float32)
    label = (user % 3 + item % 2 + age > 1.5).astype(int)
    return pd.DataFrame({"user": user, "item": item, "age": age, "label": label})


class Net(nn.Module):
    """Two embeddings of one width, a linear part, numbers."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(N_USER, 8), nn.Embedding(N_ITEM, 8)
        self.bias_of_user = nn.Embedding(N_USER, 1)
        self.deep = nn.Sequential(nn.Linear(17, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids, numbers):
        user, item = ids.unbind(1)
        each = torch.cat([self.users(user), self.items(item), numbers], 1)
        return self.deep(each).squeeze(1) + self.bias_of_user(user).squeeze(1)


class OneTable(nn.Module):
    """One table for all columns, with offsets, as factorization machines are written."""

    def __init__(self):
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, N_USER]))
        self.table, self.linear = nn.Embedding(N_USER + N_ITEM, 6), nn.Embedding(N_USER + N_ITEM, 1)

    def forward(self, ids, numbers):
        ids = ids + self.offsets
        each = self.table(ids)
        crossed = 0.5 * (each.sum(1) ** 2 - (each**2).sum(1)).sum(1)
        return crossed + self.linear(ids).sum((1, 2)) + 0.1 * numbers.squeeze(1)


class Widths(nn.Module):
    """Different widths, a padded row, a table of two columns, sparse gradients."""

    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(N_USER, 12, padding_idx=0, sparse=True)
        self.items = nn.Embedding(N_USER, 3)
        self.deep = nn.Linear(12 + 3 + 3 + 1, 1)

    def forward(self, ids, numbers):
        user, item = ids[:, 0], ids[:, 1]
        parts = [self.users(user), self.items(item), self.items(user), numbers]
        return self.deep(torch.cat(parts, 1))


class Bags(nn.Module):
    """Bags of both columns, in two modes."""

    def __init__(self):
        super().__init__()
        self.both = nn.EmbeddingBag(N_USER, 5, mode="mean", padding_idx=3)
        self.one = nn.EmbeddingBag(N_ITEM, 4, mode="sum", sparse=True)
        self.out = nn.Linear(10, 1)

    def forward(self, ids, numbers):
        item = ids[:, 1].contiguous()
        one = self.one(item, torch.arange(len(item)), per_sample_weights=numbers[:, 0])
        return self.out(torch.cat([self.both(ids), one, numbers], 1))


def plain_loss(module):
    def loss(ids, numbers, labels):
        logits = module(ids, numbers).reshape(-1)
        mean = functional.binary_cross_entropy_with_logits(logits, labels)
        return mean, mean

    return loss


def made(kind):
    torch.manual_seed(0)
    return kind()


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("kind", [Net, OneTable, Widths, Bags])
def test_losses_are_those_of_the_modules_own_loop(kind, optimizer, tmp_path):
    module = made(kind)
    if optimizer == "adagrad":  # torch's own takes sparse gradients only without an accumulator's value
        for each in module.modules():
            if isinstance(each, nn.Embedding | nn.EmbeddingBag):
                each.sparse = False
    model = dlrover_nb.elastic(module, ids=["user", "item"], numbers=["age"])
    run = train_elastic(model, job_of(rows(), tmp_path, optimizer=optimizer), tmp_path)
    own = copy.deepcopy(module)
    losses = train_plain(own, run.job, plain_loss(own))
    assert len(losses) >= N_STEP
    assert np.ptp(losses) > 0.1
    np.testing.assert_allclose(run.losses, losses, atol=1e-5, rtol=0)
    trained = TrainedModel(run.job.spec, run.job.features, run.store, tmp_path)
    state, of_own = trained.state_dict(), own.state_dict()
    assert state.keys() == of_own.keys()
    for name, value in of_own.items():
        torch.testing.assert_close(state[name], value, atol=1e-4, rtol=1e-3)
    module.load_state_dict(state)


def test_a_job_file_names_such_a_model_of_installed_code(tmp_path, monkeypatch):
    code = ModuleType("installed_code")
    code.model = dlrover_nb.elastic(made(Net), ids=["user", "item"], numbers=["age"])
    monkeypatch.setitem(sys.modules, "installed_code", code)
    spec = job_of(rows(), tmp_path, optimizer="adagrad")
    named = replace(spec, model=replace(spec.model, name="custom", code="installed_code:model"))
    by_name, by_object = (
        train_elastic(None, named, tmp_path),
        train_elastic(code.model, spec, tmp_path),
    )
    assert by_name.losses == by_object.losses


def test_lists_and_own_inputs_reach_the_module(tmp_path):
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = nn.Embedding(N_ITEM, 4, padding_idx=0)

        def forward(self, item, past):
            weights = (past != 0).float()
            return ((self.items(past) * self.items(item)[:, None]).sum(2) * weights).sum(1)

    rng = np.random.default_rng(1)
    table = rows()
    table["past"] = [rng.integers(1, N_ITEM, rng.integers(0, 5)).tolist() for _ in range(N_ROW)]
    module = made(Attends)
    model = dlrover_nb.elastic(
        module,
        ids=["item", "past"],
        lists={"past": 3},
        inputs=lambda columns: (columns["item"], columns["past"]),
    )
    run = train_elastic(model, job_of(table, tmp_path, optimizer="sgd"), tmp_path)
    own = copy.deepcopy(module)

    def loss(ids, numbers, labels):
        assert numbers.shape[1] == 0
        mean = functional.binary_cross_entropy_with_logits(own(ids[:, 0], ids[:, 1:]), labels)
        return mean, mean

    np.testing.assert_allclose(run.losses, train_plain(own, run.job, loss), atol=1e-5, rtol=0)


def test_probabilities_are_taken_for_logits_where_they_are_said_to_be(tmp_path):
    class Sigmoid(Net):
        def forward(self, ids, numbers):
            return torch.sigmoid(super().forward(ids, numbers))

    spec, columns = job_of(rows(), tmp_path, optimizer="sgd"), {"ids": ["user", "item"], "numbers": ["age"]}
    logits = train_elastic(dlrover_nb.elastic(made(Net), **columns), spec, tmp_path)
    model = dlrover_nb.elastic(made(Sigmoid), probabilities=True, **columns)
    for old in tmp_path.glob("first-*"):
        old.unlink()
    np.testing.assert_allclose(train_elastic(model, spec, tmp_path).losses, logits.losses, atol=1e-5)
