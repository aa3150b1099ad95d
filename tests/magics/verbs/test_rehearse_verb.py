"""The verb `rehearse`: a file, a cell, flags or a job by its name; what people and programs read of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from IPython.core.error import UsageError
from support.words import lines_with

import dlrover_nb
from dlrover_nb.core.history.stores.quality_curves import CurveStore
from dlrover_nb.core.structs.training.quality import CurveOrigin

SHORT = ("--workers", "1,4", "--rows", "2000", "--seeds", "2")


@pytest.fixture
def clicks(tmp_path):
    generator = np.random.default_rng(3)
    user, price = generator.integers(0, 50, 4000), generator.normal(size=4000)
    clicked = (generator.random(4000) < 1 / (1 + np.exp(price - np.sin(user)))).astype(int)
    path = tmp_path / "clicks.csv"
    rows = [f"{u},{p:.3f},{c}" for u, p, c in zip(user, price, clicked, strict=True)]
    path.write_text("\n".join(["user,price,clicked", *rows]) + "\n")
    return path


@pytest.fixture
def job_file(tmp_path, clicks):
    path = tmp_path / "job.yaml"
    path.write_text(
        f"name: ads\ndata: {{path: {clicks}, label: clicked, categorical: [user]}}\n"
        "model: {embedding_dim: 4, hidden: [8]}\nbatch_size: 32\n"
    )
    return str(path)


def test_a_job_file_is_rehearsed_before_anything_starts_and_its_curve_is_kept(run, memory, job_file):
    code, out, _ = run("rehearse", "--staleness", job_file, *SHORT)
    assert code == 0
    assert "What staleness costs ads" in out
    assert "Against one worker" in out
    assert not memory.connected
    store = CurveStore()
    (kept,) = store.curves_of("ads")
    store.close()
    assert (kept.curve.way, kept.curve.origin, kept.curve.batch_size) == ("asp", CurveOrigin.REHEARSAL, 32)
    assert kept.traits.model == "wide_deep"


def test_json_has_a_row_for_each_point_and_each_run(run, job_file):
    code, out, _ = run("rehearse", job_file, *SHORT, "--ways", "asp,normalised", "--json")
    content = json.loads(out)
    assert code == 0
    assert (content["job"], content["n_seed"], content["overlap"]) == ("ads", 2, True)
    assert [(row["way"], row["n_worker"]) for row in content["points"]] == [("asp", 4), ("normalised", 4)]
    assert len(content["runs"]) == 2 * 2 * 2


def test_flags_override_the_file_and_a_cell_is_a_job_too(run, shell, job_file, clicks, words):
    code, out, _ = run(
        "rehearse", job_file, *SHORT, "--batch-size", "64", "--optimizer", "adam", "--variation", "0.5"
    )
    assert code == 0
    assert lines_with(out, "adam") == words
    cell = f"name: cell\ndata: {{path: {clicks}, label: clicked}}\nbatch_size: 32\n"
    shown = shell.run_cell_magic("dlrover", f"rehearse {' '.join(SHORT)}", cell)
    assert shown.result.job == "cell"
    assert "<svg" in shown._repr_mimebundle_()["text/html"]


def test_a_mistake_is_one_line_that_says_what_is_right(shell, run, job_file, tmp_path, words):
    code, _, err = run("rehearse", "no-such-job", *SHORT)
    assert code == 2
    assert "no job" in err
    code, _, err = run("rehearse", job_file, *SHORT, "--ways", "gbA")
    assert code == 2
    assert "did you mean gba" in err
    code, _, err = run("rehearse", job_file, "--data", str(tmp_path / "gone.csv"), *SHORT)
    assert code == 2
    assert err == words
    code, _, err = run("rehearse", job_file, "--seeds", "1")
    assert code == 2
    assert err == words
    with pytest.raises(UsageError, match="twice"):
        shell.run_cell_magic("dlrover", f"rehearse --file {job_file}", "name: x")


def test_the_method_takes_what_a_submit_takes(clicks):
    shown = dlrover_nb.rehearse(
        data=str(clicks), label="clicked", workers=[4], rows=1500, seeds=2, batch_size=32, overlap=False
    )
    assert shown.result.job == "clicks"
    assert {run.delay.lag for run in shown.result.runs} == {0}
    assert list(shown.to_frame().n_worker) == [4]
