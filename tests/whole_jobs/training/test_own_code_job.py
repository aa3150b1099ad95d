"""A user's own model and rows in a real job of processes: pickled by value, or named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.driver.real_job import GOOD_AUC, Job, plan
from torch import nn

from dlrover_nb import load_model, trainable
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.more

N_ROW, PIECE, OUTLIER = 6000, 500, 1234
WEIGHTS = np.array([2.0, -1.0])  # a global of this file: it has to travel with the rows


def pieces_from(start: int) -> Iterator[dict[str, Any]]:
    """Yield rows in pieces; `start` is where a piece begins."""
    for at in range(start, N_ROW, PIECE):
        rng = np.random.default_rng([7, at])
        x, site = rng.normal(size=(PIECE, 2)), rng.integers(0, 4, PIECE)
        chance = 1 / (1 + np.exp(-x @ WEIGHTS - 2 * (site - 1.5)))
        yield {"label": (rng.random(PIECE) < chance).astype(int), "x": x, "site": site.astype(str)}


class Clicks:
    """Rows whose label follows from two numbers and a category."""

    n_row = N_ROW

    def read(self, start: int, stop: int) -> dict[str, Any]:
        first = start // PIECE * PIECE
        pieces = [piece for _, piece in zip(range(first, stop, PIECE), pieces_from(first), strict=False)]
        return {
            key: np.concatenate([piece[key] for piece in pieces])[start - first : stop - first]
            for key in pieces[0]
        }


@trainable(loss=nn.functional.binary_cross_entropy_with_logits)
class Net(nn.Module):
    def __init__(self, columns: Any) -> None:
        super().__init__()
        n_input = columns.n_categorical * columns.row_width + columns.n_numeric
        self.deep = nn.Sequential(nn.Linear(n_input, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1))
        self.out = nn.Linear(16, 1)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.deep(torch.cat([embedded.flatten(1), dense], 1)))
        return out.squeeze(1)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs = []

    def begin(
        spoil: Callable[[Path], None] | None = None,
        data: object = Clicks,
        model: object = Net,
        **changes: Any,
    ) -> Job:
        spec = JobSpec(
            "own",
            model=ModelSpec(embedding_dim=4),
            batch_size=64,
            shard_batches=10,
            n_epoch=changes.get("n_epoch", 3),
        )
        prepared = validate_job(spec, model=model, data=data)
        fields = {name: getattr(prepared.spec, name) for name in ("model", "data", "batch_size", "n_epoch")}
        job = Job(tmp_path, prepared.features, shard_batches=10, **(fields | changes))
        job.folder.mkdir(mode=0o700, exist_ok=True)
        prepared.write(job.folder)
        if spoil is not None:
            spoil(job.folder)
        jobs.append(job)
        job.driver.start()
        return job

    yield begin
    for job in jobs:
        job.driver.close()


def test_own_model_and_rows_train_and_survive_a_killed_worker(own: Callable[..., Job]) -> None:
    job = own(plan=plan(2, 1), n_epoch=25)
    job.until(lambda now: now.train.done >= 2)
    job.kill(Role.WORKER)
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == 25 * job.features.n_train
    assert end.evaluation is not None
    assert end.evaluation.auc > 0.85
    assert "log loss" in end.message


def test_code_that_was_changed_in_the_run_folder_ends_the_job_with_the_reason(
    own: Callable[..., Job],
) -> None:
    def spoil(folder: Path) -> None:
        for path in folder.glob("code-*.pickle"):
            path.write_bytes(path.read_bytes() + b"x")

    end = own(spoil).until_end()
    assert end.phase is JobPhase.FAILED
    assert "is not the code that was submitted" in end.message


@pytest.mark.release
def test_the_trained_module_predicts_after_the_job(own: Callable[..., Job]) -> None:
    job = own()
    end = job.until_end()
    model = load_model(job.folder)
    rows = next(pieces_from(0))
    assert model.predict({"x": rows["x"], "site": rows["site"]}).shape == (PIECE,)
    assert end.evaluation is not None
    assert model.evaluate().auc == pytest.approx(end.evaluation.auc, abs=1e-5)


def test_training_that_no_longer_helps_ends_early(own: Callable[..., Job]) -> None:
    rule = EarlyStopping(Metric.LOG_LOSS, min_gain=0.5)  # no pass after the first gains that much
    job = own(plan=plan(2, 1), n_epoch=30, early_stopping=rule)
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.message.startswith("stopped early after pass")
    assert len(end.rounds) == 2
    assert all(each.evaluation.n_sample == job.features.n_eval for each in end.rounds)
    assert end.train.skipped > 0
    assert end.train.n_sample_done + end.train.n_sample_skipped == 30 * job.features.n_train
    assert end.evaluation is not None
    assert load_model(job.folder).evaluate().auc == pytest.approx(end.evaluation.auc, abs=1e-5)


class Outlier(Clicks):
    """Clicks with one row that is far from all others."""

    def read(self, start: int, stop: int) -> dict[str, Any]:
        rows = super().read(start, stop)
        if start <= OUTLIER < stop:
            rows["x"][OUTLIER - start, 0] = 1e30
        return rows


class Fragile(Net):
    """A module that gives NaN for such a row, as an exponential overflows."""

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        return super().forward(embedded, dense) + 0.0 * torch.exp(dense[:, 0] ** 2)


@pytest.mark.release
def test_a_batch_whose_loss_is_nan_is_skipped_with_its_row_named_and_all_else_is_trained(
    own: Callable[..., Job],
) -> None:
    job = own(data=Outlier, model=Fragile, plan=plan(2, 2), n_epoch=25, gradient_clip_norm=10.0)
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == 25 * job.features.n_train
    assert end.evaluation is not None
    assert end.evaluation.auc > GOOD_AUC
    named = f"its loss is nan; the model gives no finite number for row {OUTLIER}"
    assert "25 batches were skipped: " in end.message
    assert named in end.message
    assert job.story_has("worker-", "skipped a batch of 64 rows", named, "1 of at most 10 in pass 1")
    assert load_model(job.folder).evaluate().auc == pytest.approx(end.evaluation.auc, abs=1e-5)


class Feed:
    """Clicks that come piece by piece, as many as there are."""

    n_row = None

    def rows(self, start: int) -> Iterator[dict[str, Any]]:
        first = start // PIECE * PIECE
        for at, piece in zip(range(first, N_ROW, PIECE), pieces_from(first), strict=False):
            low = max(0, start - at)
            yield {key: column[low:] for key, column in piece.items()}


@pytest.mark.release
def test_a_stream_is_trained_to_its_end(own: Callable[..., Job]) -> None:
    job = own(data=Feed, plan=plan(2, 1), n_epoch=1)
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == end.train.n_sample_total == N_ROW
    assert job.story_has(f"the stream ended after {N_ROW} rows")
    rows = next(pieces_from(0))
    assert load_model(job.folder).evaluate(rows).auc > GOOD_AUC
