"""A batch whose gradients are far above the job's own is skipped, and the model trains on as without it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.node_world import FEATURES, SPEC, shard
from support.runtime.single_process import LocalClient, LocalSource

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.models.wide_deep import WideDeep
from dlrover_nb.core.runtime.allreduce.replica import Replica
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.store import ParameterStore, even_bucket_owner
from dlrover_nb.core.runtime.store.batches import BucketLayout, ShardWork
from dlrover_nb.core.runtime.store.gradients import HARMLESS_NORM, LEAST_NORMS, UsualNorm, unusable
from dlrover_nb.core.runtime.worker.trainer import Trainer
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding, Optimizer

if TYPE_CHECKING:
    from dlrover_nb.core.models.trainable import Columns
    from dlrover_nb.core.structs.training.shards import SkippedBatch

RATES = {Optimizer.SGD: 0.5, Optimizer.ADAGRAD: 0.05, Optimizer.ADAM: 0.005}
N_BATCH = 24


class Fragile(torch.nn.Module):
    """Wide and deep, with gradients `FACTOR` times as large for rows with the numbers `BROKEN`."""

    FACTOR, BROKEN = 1.0, torch.empty(0)

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        model = ModelSpec(embedding_dim=columns.embedding_dim, hidden=(16, 8))
        self.inner = WideDeep(model, columns.n_categorical, columns.n_numeric)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.inner(embedded, dense)
        larger = (self.FACTOR - 1.0) * (logits - logits.detach())  # zero, but not to its gradient
        is_broken = (
            (dense == self.BROKEN).all(1) if len(self.BROKEN) else torch.zeros(len(dense), dtype=torch.bool)
        )
        return logits + torch.where(is_broken, larger, 0.0)


def own(**changes: object) -> object:
    return replace(SPEC.model, name="custom", code="test_outliers:Fragile", **changes)  # type: ignore[arg-type]


def shards(without: int | None = None) -> list[object]:
    """Return shards of one batch each."""
    return [shard(number, n_batch=1) for number in range(N_BATCH) if number != without]


def losses(model: object, without: int | None = None) -> tuple[list[float], list[SkippedBatch]]:
    spec, found = replace(SPEC, model=model), list[float]()  # type: ignore[arg-type]
    reader = ShardReader(spec.data, FEATURES)
    trainer = Trainer(spec, FEATURES, reader, TimeAccounting(SystemClock()), on_loss=found.append)
    store = ParameterStore(spec.model, FEATURES.n_table_row, len(trainer.learner.values))
    store.init_dense(trainer.learner.values)
    source = LocalSource(reader, shards(without), spec.seed)  # type: ignore[arg-type]
    trainer.run(source, LocalClient(store))
    return found, source.skipped


def break_row(patch: pytest.MonkeyPatch, n_batch: int, factor: float) -> None:
    """Let one row of a batch give gradients so many times as large; no other row holds its number."""
    numbers = ShardReader(SPEC.data, FEATURES).read(0, N_BATCH * SPEC.batch_size).dense
    first = n_batch * SPEC.batch_size
    alone = next(row for row in numbers[first:] if (numbers == row).all(1).sum() == 1)
    patch.setattr(Fragile, "BROKEN", torch.tensor(alone))
    patch.setattr(Fragile, "FACTOR", factor)


MORE = pytest.mark.more
CASES = [
    (Optimizer.ADAGRAD, 0),
    (Optimizer.ADAGRAD, 17),
    *(pytest.param(each, n, marks=MORE) for each in Optimizer for n in (1, 4, 9)),
]


@pytest.mark.parametrize(("optimizer", "n_batch"), CASES)
def test_a_model_trains_on_as_without_the_batch_that_one_row_breaks(
    optimizer: Optimizer, n_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = own(optimizer=optimizer, learning_rate=RATES[optimizer], embedding=Embedding.HASH)
    want, _ = losses(model, without=n_batch)
    break_row(monkeypatch, n_batch, 1e12)
    found, (skipped,) = losses(model)
    assert found == want
    assert skipped.n_row == SPEC.batch_size
    assert "far above the usual" in skipped.why
    assert "gradient_clip_norm" in skipped.why


def test_a_model_whose_gradients_are_all_large_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    def squares(_: object, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 1e9 * (logits - labels).square().sum()

    monkeypatch.setattr(Fragile, "loss", squares, raising=False)
    found, skipped = losses(own(optimizer=Optimizer.ADAGRAD, learning_rate=0.05))
    assert len(found) == N_BATCH
    assert not skipped
    assert np.mean(found[-5:]) < np.mean(found[:5])


@pytest.mark.parametrize("n_batch", [0, 7])
def test_a_job_of_replicas_skips_it_too(n_batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    break_row(monkeypatch, n_batch, 1e12)
    replica = Replica(replace(SPEC, model=own()), FEATURES)  # type: ignore[arg-type]
    layout, reader = (
        BucketLayout(np.array(even_bucket_owner(1), np.int64), 1),
        ShardReader(SPEC.data, FEATURES),
    )
    reasons = []
    for each in shards():
        rows = reader.read(each.start, each.stop)  # type: ignore[attr-defined]
        batch = ShardWork(each, rows, seed=SPEC.seed).take(SPEC.batch_size, layout)  # type: ignore[arg-type]
        assert batch is not None
        reasons.append(replica.learn(batch))
    assert [i for i, why in enumerate(reasons) if why] == [n_batch]
    assert "far above the usual" in reasons[n_batch]


# laws

NORMS = st.floats(1e-6, 1e9)
SPREAD = st.lists(st.floats(-1.3, 1.3), min_size=LEAST_NORMS, max_size=80)  # of real click logs, tens to one


def why_skipped(norm: float, usual: UsualNorm) -> str:
    rows = np.full((1, 1), norm, np.float32)
    return unusable(0.5, rows, np.zeros(1, np.float32), clip_norm=None, usual=usual, of_parts=list)


def after(norms: list[float]) -> UsualNorm:
    usual = UsualNorm()
    assert [why_skipped(norm, usual) for norm in norms] == [""] * len(norms)
    return usual


@given(NORMS, SPREAD, st.floats(-0.5, 0.5))
def test_no_batch_is_skipped_where_norms_differ_and_rise_or_fall(
    norm: float, powers: list[float], slope: float
) -> None:
    after([min(norm * 10 ** (power + slope * i / 4), 1e14) for i, power in enumerate(powers)])


@given(NORMS, SPREAD, st.floats(6, 30), st.integers(1, 40))
def test_a_million_times_the_usual_is_skipped_and_stays_unusual(
    norm: float, powers: list[float], power: float, n_outlier: int
) -> None:
    norms = [norm * 10**each for each in powers]
    usual, outlier = after(norms), min(float(np.median(norms[-15:])) * 10**power, 3e38)
    before = usual.value
    for _ in range(n_outlier):
        assert why_skipped(outlier, usual) or outlier <= HARMLESS_NORM
    assert usual.value == before or outlier <= HARMLESS_NORM
    after_it = [why_skipped(each, usual) for each in norms]
    assert after_it == [""] * len(norms)


@given(st.floats(1e-12, HARMLESS_NORM), st.floats(0, HARMLESS_NORM))
def test_a_hard_batch_is_used_where_the_model_has_learnt_all_others(small: float, norm: float) -> None:
    usual = after([small] * 20)
    assert why_skipped(norm, usual) == ""


def test_two_outliers_among_the_first_batches_are_not_the_usual_norm() -> None:
    usual = after([50.0, 90.0, 1.0, 1.0, 1.0])
    assert usual.value == 1.0


@settings(deadline=None)
@given(st.floats(1e3, 1e14), st.lists(st.floats(0.1, 10), min_size=3, max_size=8))
def test_the_first_batch_is_compared_with_its_parts(norm: float, parts: list[float]) -> None:
    usual, rows, none = UsualNorm(), np.full((1, 1), norm, np.float32), np.zeros(1, np.float32)
    broken = unusable(0.5, rows, none, clip_norm=None, usual=usual, of_parts=lambda: [*parts[:-1], norm])
    assert bool(broken) is (norm > 1e3 * float(np.median([*parts[:-1], norm])))
    large = unusable(0.5, rows, none, clip_norm=None, usual=usual, of_parts=lambda: [norm * x for x in parts])
    assert large == ""
