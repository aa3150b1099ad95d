"""One module trained twice on the same batches: in a loop of its own, and with its tables on a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.runtime.exchange.push_pull import BatchShare
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.runtime.store.batches import BucketLayout
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from support.runtime.single_process import LocalSource, train_single, training_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from dlrover_nb.core.client.trained_model import TrainedModel
    from dlrover_nb.core.models.elastic.elastic_model import ElasticModel
    from dlrover_nb.core.runtime.node.preflight import ValidatedJob
    from dlrover_nb.core.runtime.store import ParameterStore

RATE, ACCUMULATOR = 0.05, 0.1


@dataclass(frozen=True, slots=True)
class ElasticRun:
    """Losses, scores of held-out rows and the parameters of a run with tables on a store."""

    job: ValidatedJob
    losses: tuple[float, ...]
    scores: NDArray[np.float32]
    store: ParameterStore


def job_of(rows: pd.DataFrame, folder: Path, **model: Any) -> JobSpec:
    """Return a job on rows with the column `label`, in batches of 32."""
    path = folder / "rows.parquet"
    rows.to_parquet(path)
    settings = {"learning_rate": RATE, "initial_accumulator": ACCUMULATOR, **model}
    return JobSpec(
        "mine",
        data=DataSpec("parquet", str(path), "label", holdout=0.1),
        model=ModelSpec(**settings),
        batch_size=32,
        shard_batches=10,
    )


def train_elastic(model: ElasticModel | None, spec: JobSpec, folder: Path) -> ElasticRun:
    """Train a job with a module's tables on a store of this process; None: the job names it."""
    job = validate_job(spec, model=model)
    job.write(folder)
    assert job.first is not None
    run = train_single(job.spec, job.features, store=job.first, folder=folder)
    assert not run.skipped
    return ElasticRun(job, run.losses, run.scores, job.first)


def batches_of(job: ValidatedJob | TrainedModel) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield the batches of a run in its order: ids as the data has them, numbers, labels."""
    spec, features = job.spec, job.features
    source = LocalSource(ShardReader(spec.data, features), training_shards(spec, features), spec.seed)
    layout, n_number = BucketLayout(np.array(even_bucket_owner(1), np.int64), 1), len(features.numeric)
    while (task := source.take(BatchShare(spec.batch_size), layout)) is not None:
        source.finish(task.work)
        values = torch.from_numpy(task.batch.dense)
        yield values[:, n_number:].long(), values[:, :n_number], torch.from_numpy(task.batch.labels)


def train_plain(
    module: torch.nn.Module,
    job: ValidatedJob | TrainedModel,
    loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> list[float]:
    """Train a module on the same batches by torch alone; return the losses.

    `loss` gives, of ids, numbers and labels, what is shown and what is trained.
    """
    model = job.spec.model
    rate, parameters = model.learning_rate, list(module.parameters())
    optimizer: torch.optim.Optimizer = torch.optim.SGD(parameters, rate)
    if model.optimizer == "adagrad":
        optimizer = torch.optim.Adagrad(parameters, rate, initial_accumulator_value=model.initial_accumulator)
    losses = []
    module.train()
    for ids, numbers, labels in batches_of(job):
        optimizer.zero_grad()
        shown, trained = loss(ids, numbers, labels)
        torch.autograd.backward(trained)
        optimizer.step()
        losses.append(float(shown.detach()))
    return losses
