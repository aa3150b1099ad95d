"""A job to rehearse is found by its run folder, by the history, or from a cluster, and said to be out of reach else."""

from __future__ import annotations

from dataclasses import replace

import pytest

import dlrover_nb
from dlrover_nb.core.client.job_to_rehearse import earlier_job, new_job, running_job
from dlrover_nb.core.data import make_features
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.rundir.job_file import JobFile, write_job
from dlrover_nb.core.rundir.locate import new_run_folder
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat

SPEC = JobSpec("clicks", batch_size=128)


def test_a_job_that_ran_here_has_the_encoding_that_it_had_then():
    folder, features = new_run_folder("clicks"), make_features(SPEC.data, SPEC.model)
    other = replace(features, n_train=features.n_train - 5)
    write_job(folder, JobFile(SPEC, other, 0.0, "ipc", "", ""))
    job = earlier_job("clicks")
    assert (job.spec, job.features, job.folder) == (SPEC, other, folder)


def test_a_job_of_the_history_is_read_anew():
    store = HistoryStore()
    store.remember("old", 5.0, replace(SPEC, name="old"))
    store.close()
    job = earlier_job("old")
    assert job.spec.name == "old"
    assert job.features == make_features(SPEC.data, SPEC.model)


def test_a_job_of_a_cluster_without_files_is_read_anew():
    handle = dlrover_nb.connect("sim").submit("name: simulated").handle
    assert running_job(handle).features.n_train > 0


def test_rows_out_of_reach_are_said(tmp_path, error_words):
    data = DataSpec(DataFormat.CSV, str(tmp_path / "gone.csv"), "clicked")
    with (
        error_words(NotFoundError),
        new_job(replace(SPEC, data=data)),
    ):
        pass


def test_programs_of_others_are_refused(error_words):
    spec = replace(
        SPEC, foreign=ExternalSpec(ExternalRole(("python", "train.py")), 100, framework=Framework.DDP)
    )
    with error_words(InvalidValueError), new_job(spec):
        pass


def test_an_unknown_name_is_said_with_the_nearest():
    with pytest.raises(NotFoundError, match="no job"):
        earlier_job("nowhere")
