"""The share of rows that a lost job had trained is what its run folder says, or not known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dlrover_nb.core.backends.kubernetes.cluster import FoundJob
from dlrover_nb.core.backends.local import cluster as local_cluster
from dlrover_nb.core.client.past.history_queries import past_jobs
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.rundir.job_file import JobFile, write_job
from dlrover_nb.core.rundir.journal import Journal, compress, segments
from dlrover_nb.core.rundir.last_share import last_share
from dlrover_nb.core.rundir.locate import new_run_folder
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.training.shards import ShardCounts
from dlrover_nb.core.structs.views.events import PhaseChanged, ProgressMade, Ticked
from dlrover_nb.core.structs.views.summary import share_done

if TYPE_CHECKING:
    from pathlib import Path

BEGAN_S = 1_790_000_000.0
SPEC = JobSpec("ads", n_epoch=2)
FEATURES = FeatureSpec("label", (), (), 500, 10)


def written(folder: Path, *n_done: int, features: FeatureSpec = FEATURES) -> Path:
    """Write a run of 1,000 samples that reported this progress."""
    write_job(folder, JobFile(SPEC, features, BEGAN_S, "", "", ""))
    journal = Journal(folder)
    for number, n in enumerate(n_done):
        journal.append(ProgressMade(BEGAN_S + number, n))
        journal.append(Ticked(BEGAN_S + number))
    journal.close()
    return folder


def test_the_newest_progress_counts(tmp_path: Path) -> None:
    assert last_share(written(tmp_path, 20, 90, 68)) == 0.068  # it went back to a checkpoint


def test_a_segment_that_has_just_begun_leaves_it_to_the_one_before(tmp_path: Path) -> None:
    journal = Journal(written(tmp_path, 68))
    journal.begin_segment(b"a state")
    journal.append(Ticked(BEGAN_S + 9))
    journal.close()
    assert len(segments(tmp_path)) == 2
    assert last_share(tmp_path) == 0.068


def test_a_line_that_is_damaged_or_torn_leaves_it_to_the_one_before(tmp_path: Path) -> None:
    events = segments(written(tmp_path, 68, 90))[-1].events
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join([*lines[:2], lines[2].replace(b"90", b"91"), lines[2][:20]]))
    assert last_share(tmp_path) == 0.068


@pytest.mark.parametrize(
    "features", [replace(FEATURES, n_train=0), replace(FEATURES, is_stream=True)], ids=["no rows", "stream"]
)
def test_of_an_unknown_number_of_samples_there_is_no_share(tmp_path: Path, features: FeatureSpec) -> None:
    assert last_share(written(tmp_path, 68, features=features)) is None


def test_without_progress_or_a_job_nothing_is_made_up(tmp_path: Path) -> None:
    assert last_share(tmp_path) is None
    assert last_share(written(tmp_path)) is None
    assert last_share(tmp_path / "none") is None
    compress(written(tmp_path, 68))
    assert last_share(tmp_path) is None


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HistoryStore:
    """The history of this machine with a job that was lost amid its training."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DLROVER_NB_HISTORY", f"sqlite:///{tmp_path}/history.db")
    store = HistoryStore()
    store.remember("ads", BEGAN_S, SPEC)
    store.remember("ads", BEGAN_S + 1, PhaseChanged(BEGAN_S + 1, JobPhase.TRAINING))
    return store


def test_a_lost_job_is_listed_as_far_as_its_folder_says_it_had_come(history: HistoryStore) -> None:
    assert [job.done for job in past_jobs()] == [None]
    folder = written(new_run_folder("ads"), 68)
    assert folder.parent == jobs_folder()
    assert [(job.phase, job.done) for job in past_jobs()] == [(JobPhase.FAILED, 0.068)]
    history.remember("ads", BEGAN_S + 500, SPEC)  # a later run, elsewhere
    assert [(job.started_at_s, job.done) for job in past_jobs()] == [(BEGAN_S + 500, None)]


def test_a_local_job_without_an_answer_is_as_far_as_its_folder_says(tmp_path: Path) -> None:
    assert local_cluster._without_answer("ads", written(tmp_path, 68)).done == 0.068


def test_what_only_objects_of_kubernetes_tell_of_has_no_share() -> None:
    job = {"metadata": {"name": "ads", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    assert FoundJob(job, ()).summary(JobPhase.FAILED, "it is gone").done is None


def test_a_job_that_does_not_know_its_samples_has_no_share() -> None:
    assert share_done(ShardCounts()) is None
    assert share_done(ShardCounts(n_sample_done=68, n_sample_total=1_000)) == 0.068
