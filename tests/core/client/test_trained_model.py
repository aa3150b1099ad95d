"""The model of a job that has ended, in another process, from its run folder alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.driver.real_job import Job, plan

from dlrover_nb import api, load_model
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.codec import from_checked_json, to_checked_json
from dlrover_nb.core.data import make_features
from dlrover_nb.core.data.source import CENSUS_FILE
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.errors import CheckpointError, InvalidValueError, NotFoundError
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.commands import Commands
from dlrover_nb.widgets.live.browser.poller import Poller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.more

N_ROW = 300
MODEL = ModelSpec(embedding_dim=4, hidden=(16,), embedding=Embedding.HASH)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("trained")
    job = Job(folder, make_features(DataSpec(), MODEL), plan=plan(1, 2, worker_cpu=1.0), model=MODEL)
    job.driver.start()
    job.until_end()
    yield job
    job.driver.close()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pq.read_table(CENSUS_FILE).slice(1000, N_ROW), path)
    return path


def test_another_process_finds_the_quality_that_the_job_told(ended: Job) -> None:
    program = "import sys; from dlrover_nb import load_model; print(repr(load_model(sys.argv[1]).evaluate()))"
    told = subprocess.run(
        [sys.executable, "-c", program, str(ended.folder)], capture_output=True, text=True, check=True
    ).stdout
    found, end = load_model(ended.folder).evaluate(), ended.now.evaluation
    assert repr(found) == told.strip()
    assert end is not None
    assert found.n_sample == end.n_sample
    assert found.auc == pytest.approx(end.auc, abs=1e-5)
    assert found.log_loss == pytest.approx(end.log_loss, abs=1e-5)


def test_rows_score_the_same_in_every_form(ended: Job, rows: Path) -> None:
    model, table = load_model(ended.folder), pq.read_table(rows)
    want = model.predict(rows)
    assert want.shape == (N_ROW,)
    assert ((want > 0) & (want < 1)).all()
    for form in (str(rows), table, table.drop_columns(["label"]), table.to_pandas()):
        np.testing.assert_array_equal(model.predict(form), want)
    assert model.evaluate(rows) == model.evaluate(table)
    assert model.predict(table.slice(0, 0)).shape == (0,)
    np.testing.assert_allclose(model.predict(table.slice(7, 1)), want[7:8], rtol=1e-5)


def test_a_job_of_the_api_predicts_with_the_last_checkpoint(ended: Job, rows: Path) -> None:
    job = api.Job(JobHandle("real", ended.driver, user="ada"), Poller())
    np.testing.assert_array_equal(job.predict(rows), load_model(ended.folder).predict(rows))


def test_the_verb_writes_scores_and_finds_the_job_by_its_name(
    ended: Job, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    jobs_folder().mkdir(parents=True)
    (jobs_folder() / "real-20260102T030405-001").mkdir()
    (jobs_folder() / "real-20260102T030405-678").symlink_to(ended.folder)
    (jobs_folder() / "real-2-20270102T030405-678").mkdir()  # of another job
    out = tmp_path / "scores.parquet"
    note = Commands().run(GRAMMAR.parse(["predict", "real", str(rows), "-o", str(out)]))
    assert f"probabilities of {N_ROW} rows" in str(note)
    scores = pq.read_table(out)["probability"].to_numpy()
    np.testing.assert_array_equal(scores, load_model(ended.folder).predict(rows))
    with pytest.raises(InvalidValueError, match="exists already; use --force"):
        Commands().run(GRAMMAR.parse(["predict", "real", str(rows), "-o", str(out)]))


def test_rows_that_do_not_fit_are_refused_with_the_reason(ended: Job, rows: Path, error_words) -> None:
    model, table = load_model(ended.folder), pq.read_table(rows)
    with error_words(InvalidValueError):
        model.predict(table.drop_columns(["age"]))
    with error_words(InvalidValueError):
        model.predict(table.set_column(table.column_names.index("age"), "age", [["young"] * N_ROW]))
    with pytest.raises(NotFoundError, match="no data file"):
        model.predict("/nowhere.parquet")


def test_a_job_that_is_not_there_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_words
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with error_words(NotFoundError):
        load_model("nothing")


def test_a_damaged_checkpoint_is_never_predicted_with(ended: Job, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", str(ended.folder), str(copy)], check=True)
    for path in copy.glob("checkpoints/*/manifest.json"):
        manifest = from_checked_json(path.read_bytes(), Manifest)
        files = tuple((url.replace(str(ended.folder), str(copy)), sha256) for url, sha256 in manifest.files)
        path.write_bytes(to_checked_json(replace(manifest, files=files)))
    assert load_model(copy).evaluate() == load_model(ended.folder).evaluate()
    part = max(copy.glob("checkpoints/*/*"), key=lambda p: (p.name != "manifest.json", p.stat().st_mtime))
    flip_last_bit(part)
    with pytest.raises(CheckpointError, match=part.name):
        load_model(copy)
    flip_last_bit(part)
    for path in copy.glob("checkpoints/*/manifest.json"):
        path.write_bytes(path.read_bytes().replace(b'"number":', b'"nunber":'))
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged: .*; use another checkpoint"):
        load_model(copy)


def flip_last_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.release
def test_a_checkpoint_kept_elsewhere_is_found_there(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'elsewhere'}"
    job = Job(
        tmp_path, make_features(DataSpec(), MODEL), model=MODEL, plan=plan(worker_cpu=1.0), checkpoint_url=url
    )
    job.driver.start()
    end = job.until_end()
    assert not list(job.folder.glob("checkpoints/*"))
    assert end.evaluation is not None
    assert load_model(job.folder).evaluate().auc == pytest.approx(end.evaluation.auc, abs=1e-5)
