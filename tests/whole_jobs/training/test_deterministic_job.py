"""Deterministic jobs of processes: the same bits over deaths, changes of plan, restarts and other plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from support.driver.real_job import Job, plan, training_slowed_from
from support.runtime.trained_parameters import parameters_in
from torch import nn

from dlrover_nb import elastic, trainable
from dlrover_nb.core.rundir.checkpoint_folder import newest_manifest
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.job.job import DataSpec, JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Migration, Optimizer, Sync
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.more

FIXED = {"sync": Sync.BSP, "deterministic": True}
CENSUS = {"n_epoch": 3, "batch_size": 512, "global_batch": 1536, "shard_batches": 7, **FIXED}


def result(job: Job) -> tuple[Any, ...]:
    """Return the bits of all parameters of a job that succeeded, and its quality."""
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == job.features.n_train * job.spec.n_epoch
    manifest = newest_manifest(str(job.folder / "checkpoints"))
    assert manifest is not None
    parameters = parameters_in(manifest.files, job.spec, job.features)
    return [each.tobytes() for each in parameters], end.evaluation


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, features: Any) -> tuple[Any, ...]:
    job = Job(tmp_path_factory.mktemp("undisturbed"), features, plan=plan(1, 1), **CENSUS)
    job.driver.start()
    try:
        return result(job)
    finally:
        job.close()


@pytest.mark.release_variants("restart")
@pytest.mark.parametrize("migration", list(Migration))
def test_kills_moves_and_checkpoints_change_no_bit(
    start: Callable[..., Job], undisturbed: tuple[Any, ...], migration: Migration
) -> None:
    job = start(plan=plan(2, 1), checkpoint_every_s=0.5, migration=migration, **CENSUS)
    n_row = job.features.n_train
    with training_slowed_from(2 * n_row):
        job.until(lambda now: now.running and now.train.n_sample_done > n_row // 4)
        killed = job.kill(Role.WORKER)
        job.until(lambda now: job.story_has(f"{killed} was lost") and now.train.n_sample_done > n_row // 2)
        job.scale(plan(3, 2))
        job.until(lambda now: now.running == plan(3, 2) and now.train.n_sample_done > n_row)
        assert any((job.folder / "checkpoints").glob("*/manifest.json"))
        killed = job.kill(Role.PS)
        job.until(lambda now: job.story_has(f"{killed} was lost") and now.running == plan(3, 2))
        job.scale(plan(1, 1))
        job.until(lambda now: now.running == plan(1, 1))
    assert result(job) == undisturbed


class Net(nn.Module):
    """A module whose batches depend on what torch draws, and whose averages on the order of batches."""

    def __init__(self, columns: Any) -> None:
        super().__init__()
        n_input = columns.n_categorical * columns.row_width + columns.n_numeric
        self.deep = nn.Sequential(nn.Linear(n_input, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3))
        self.out = nn.Linear(16, 1)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(self.deep(torch.cat([embedded.flatten(1), dense], 1)))
        return logits.squeeze(1)


class Tables(nn.Module):
    """A module with tables of its own, and a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(40, 8), nn.Embedding(20, 8, padding_idx=0)
        self.out, self.drop = nn.Linear(17, 1), nn.Dropout(0.2)

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        parts = [self.users(ids[:, 0]), self.items(ids[:, 1]), numbers]
        logits: torch.Tensor = self.out(self.drop(torch.cat(parts, 1)))
        return logits


def _clicks(path: Path) -> str:
    """Write rows whose label follows from a user, an item and an age; return where."""
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 40, 4000), rng.integers(0, 20, 4000)
    age = rng.normal(size=4000).astype(np.float32)
    label = (user % 3 + item % 2 + age > 1.5).astype(int)
    pd.DataFrame({"user": user, "item": item, "age": age, "label": label}).to_parquet(path)
    return str(path)


def _model(kind: str) -> Any:
    if kind == "tables":
        torch.manual_seed(0)
        return elastic(Tables(), ids=["user", "item"], numbers=["age"])
    return trainable(loss=nn.functional.binary_cross_entropy_with_logits)(Net)


def _own(folder: Path, kind: str, n_worker: int, n_ps: int) -> tuple[Any, ...]:
    folder.mkdir()
    data = DataSpec(DataFormat.PARQUET, _clicks(folder / "rows.parquet"), categorical=("user", "item"))
    model = ModelSpec(embedding_dim=8, optimizer=Optimizer.ADAM, learning_rate=0.01)
    spec = JobSpec("own", data=data, model=model, batch_size=100, global_batch=300, **FIXED)
    prepared = validate_job(spec, model=_model(kind))
    (folder / "run").mkdir(mode=0o700)
    prepared.write(folder / "run")
    fields = {name: getattr(prepared.spec, name) for name in ("model", "data", "batch_size", "global_batch")}
    job = Job(folder, prepared.features, plan=plan(n_worker, n_ps), n_epoch=2, **fields, **FIXED)
    job.driver.start()
    try:
        return result(job)
    finally:
        job.close()


@pytest.mark.release_variants("tables")
@pytest.mark.parametrize("kind", ["averages and dropout", "tables"])
def test_modules_of_users_have_the_same_bits_too(tmp_path: Path, kind: str) -> None:
    one = _own(tmp_path / "one", kind, 1, 1)
    assert _own(tmp_path / "many", kind, 3, 2) == one
