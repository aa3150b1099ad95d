"""Real loss curves: small models of the product trained on public rows, one evaluation after every pass."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.models.learner import set_threads
from dlrover_nb.core.models.metrics import auc, log_loss
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.runtime.worker.trainer import Trainer
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.training.shards import Lease, Purpose, Shard

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.runtime.single_process import LocalClient, LocalSource, training_shards

N_PASS, N_PER_PASS, N_SCORED = 12, 10, 8_000
MODELS = ("wide_deep", "dcn_v2")
RATES = {"census": (0.005, 0.02), "criteo": (0.02, 0.1), "ipinyou": (0.01, 0.05), "movielens": (0.01, 0.05)}


@dataclass(frozen=True)
class TrainedCurve:
    """One job: mean training loss of each tenth of a pass, and AUC and log loss after each pass."""

    name: str
    losses: tuple[float, ...]
    aucs: tuple[float, ...]
    log_losses: tuple[float, ...]


def data_of(name: str, shared: Path, scratch: Path) -> DataSpec | None:
    """Return the rows, shuffled; None: they are not on this machine."""
    rng = np.random.default_rng(0)
    if name == "census":
        return DataSpec(holdout=0.8)
    if name == "criteo":
        path = shared / "criteo" / "criteo_60k.parquet"
        if not path.exists():
            return None
        numeric, categorical = (tuple(f"{k}{i}" for i in range(1, n)) for k, n in (("I", 14), ("C", 27)))
        return DataSpec(DataFormat.PARQUET, str(path), "label", numeric, categorical, holdout=0.65)
    if name == "ipinyou":
        path, label = shared / "ipinyou" / "train.parquet", "click"
        if not path.exists():
            return None
        rows = pd.read_parquet(path)
    else:
        path, label = shared / "movielens_100k" / "inter.parquet", "label"
        if not path.exists():
            return None
        rows = pd.read_parquet(path)
        rows = rows.merge(pd.read_parquet(path.parent / "user.parquet"), on="user_id")
        rows = rows.assign(label=(rows["rating"] >= 4).astype("int8")).drop(columns=["rating", "timestamp"])
        rows = rows.select_dtypes("number")
    rows = rows.iloc[rng.permutation(len(rows))[:25_000]]
    own = scratch / f"{name}.parquet"
    rows.to_parquet(own)
    return DataSpec(
        DataFormat.PARQUET, str(own), label, (), tuple(c for c in rows.columns if c != label), holdout=0.3
    )


def train(name: str, spec: JobSpec) -> TrainedCurve:
    """Train a job in this process."""
    set_threads(1)
    features = make_features(spec.data, spec.model)
    losses: list[float] = []
    reader = ShardReader(spec.data, features)
    trainer = Trainer(
        replace(spec, overlap=False), features, reader, TimeAccounting(SystemClock()), on_loss=losses.append
    )
    store = ParameterStore(spec.model, features.n_table_row, len(trainer.learner.values))
    store.init_dense(trainer.learner.values)
    client = LocalClient(store)
    means: list[float] = []
    aucs, log_losses = [], []
    shards = list(training_shards(spec, features))
    stop = features.n_train + min(features.n_eval, N_SCORED)
    scored = Shard(Lease(Purpose.EVALUATE, 0, 1), 0, features.n_train, stop)
    for n_pass in range(spec.n_epoch):
        losses.clear()
        trainer.run(LocalSource(reader, [s for s in shards if s.epoch == n_pass], spec.seed), client)
        means += [float(np.mean(part)) for part in np.array_split(losses, N_PER_PASS)]
        held = LocalSource(reader, [scored], spec.seed)
        trainer.run(held, client)
        work = held.last
        scores = np.concatenate(work.scores)
        aucs.append(float(auc(scores, work.labels)))
        log_losses.append(float(log_loss(scores, work.labels)))
    return TrainedCurve(name, tuple(means), tuple(aucs), tuple(log_losses))


def jobs(shared: Path, scratch: Path) -> dict[str, JobSpec]:
    """Return the jobs to train by name."""
    found: dict[str, JobSpec] = {}
    found_rows = {name: data_of(name, shared, scratch) for name in RATES}
    for seed in (0, 1):
        for data, rows in found_rows.items():
            if rows is None:
                continue
            for model in MODELS:
                for rate in RATES[data]:
                    name = f"{data}-{model}-{rate:g}-{seed}"
                    found[name] = JobSpec(
                        name=f"curve-{len(found)}",
                        data=rows,
                        batch_size=512,
                        shard_batches=2,
                        n_epoch=N_PASS,
                        seed=seed,
                        model=ModelSpec(name=model, seed=seed, learning_rate=rate),
                    )
    return found
