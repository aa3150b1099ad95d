"""A torch module with tables of its own in a real job: one worker trains what the module's own loop does."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from support.driver.real_job import Job, plan
from support.runtime.elastic_runs import job_of, train_plain
from torch import nn
from torch.nn import functional

from dlrover_nb import elastic, load_model
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.more

N_ROW = 3000


class Net(nn.Module):
    """Two embeddings and a linear part."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(40, 8), nn.Embedding(20, 8, padding_idx=0)
        self.linear = nn.Embedding(40, 1)
        self.out = nn.Linear(17, 1)

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        parts = [self.users(ids[:, 0]), self.items(ids[:, 1]), numbers]
        logits: torch.Tensor = self.out(torch.cat(parts, 1)) + self.linear(ids[:, 0])
        return logits


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 40, N_ROW), rng.integers(0, 20, N_ROW)
    age = rng.normal(size=N_ROW).astype(np.float32)
    label = (user % 3 + item % 2 + age > 1.5).astype(int)
    return pd.DataFrame({"user": user, "item": item, "age": age, "label": label})


def begun(tmp_path: Path, module: nn.Module, n_worker: int, n_ps: int, **changes: object) -> Job:
    spec = job_of(rows(), tmp_path, optimizer="adagrad")
    prepared = validate_job(spec, model=elastic(module, ids=["user", "item"], numbers=["age"]))
    fields = {name: getattr(prepared.spec, name) for name in ("model", "data", "batch_size")}
    settings = {**fields, "plan": plan(n_worker, n_ps), "overlap": False, **changes}
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    prepared.write(folder)
    job = Job(tmp_path, prepared.features, shard_batches=10, **settings)
    job.driver.start()
    return job


def test_the_trained_tables_are_those_of_the_modules_own_loop(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Net()
    job = begun(tmp_path, module, 1, 2)
    try:
        end = job.until_end()
    finally:
        job.driver.close()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    model, own = load_model(job.folder), copy.deepcopy(module)

    def loss(
        ids: torch.Tensor, numbers: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mean = functional.binary_cross_entropy_with_logits(own(ids, numbers).squeeze(1), labels)
        return mean, mean

    train_plain(own, model, loss)
    state = model.state_dict()
    for name, value in own.state_dict().items():
        torch.testing.assert_close(state[name], value, atol=1e-4, rtol=1e-3)
    assert not torch.equal(own.users.weight, module.users.weight)
    module.load_state_dict(state)
    table = rows().head(100)
    ids, numbers = (
        torch.from_numpy(table[["user", "item"]].to_numpy().copy()),
        torch.from_numpy(table[["age"]].to_numpy().copy()),
    )
    with torch.no_grad():
        scores = torch.sigmoid(module(ids, numbers)).squeeze(1).numpy()
    np.testing.assert_allclose(model.predict(table), scores, atol=1e-5)


def test_it_survives_a_killed_worker(tmp_path: Path) -> None:
    job = begun(tmp_path, Net(), 2, 1, n_epoch=20)
    try:
        job.until(lambda now: now.train.done >= 2)
        job.kill(Role.WORKER)
        end = job.until_end()
    finally:
        job.driver.close()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == 20 * job.features.n_train
    assert end.evaluation is not None
    assert end.evaluation.auc > 0.9
