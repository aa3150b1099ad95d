"""What a submit promises of a deadline: the answer of the job's own controller, by the user's history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlrover_nb.core.disk.paths import HISTORY_VAR
from dlrover_nb.core.driver.deadline_outlook import deadline_outlook
from dlrover_nb.core.driver.history_writer import HistoryWriter
from dlrover_nb.core.driver.job_start import traits_of
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.views.events import PhaseChanged, Remember
from dlrover_nb.core.structs.views.past_jobs import FitSummary, TermKnowledge

MACHINE = Capacity((NodeShape(4.0, 16_000),))


@pytest.fixture
def history(tmp_path, monkeypatch, features):
    """Make a history in which a job of the same data and model has finished."""
    url = f"sqlite:///{tmp_path / 'history.db'}"
    monkeypatch.setenv(HISTORY_VAR, url)
    spec = JobSpec("clicks")
    traits = traits_of(spec, features)
    terms = (TermKnowledge("gradients", 8e-6, 1e-6, identified=True),)
    fit = FitSummary(3.0, terms, 0.05, 4, 40, traits.dense_bytes, traits.embedding_dim, 512)
    writer = HistoryWriter("clicks", url)
    for record in (spec, traits, fit):
        writer.remember(Remember(1.0, record))
    writer.remember(Remember(4.0, PhaseChanged(4.0, JobPhase.SUCCEEDED)))
    writer.close()


@pytest.mark.usefixtures("history")
def test_an_infeasible_deadline_is_known_before_the_job_runs(features, tmp_path):
    told = deadline_outlook(JobSpec("clicks", deadline_s=0.5), features, MACHINE, tmp_path)
    assert not told.is_feasible
    assert told.earliest_s > 0.5
    wide = deadline_outlook(JobSpec("clicks", deadline_s=1e7), features, MACHINE, tmp_path)
    assert wide.is_met
    assert wide.earliest_s == pytest.approx(told.earliest_s)


@pytest.mark.usefixtures("history")
def test_without_a_deadline_nothing_is_asked(features, tmp_path):
    assert deadline_outlook(JobSpec("clicks"), features, MACHINE, tmp_path) is None


def test_without_similar_jobs_nothing_is_promised(features, tmp_path, monkeypatch):
    monkeypatch.setenv(HISTORY_VAR, f"sqlite:///{tmp_path / 'empty.db'}")
    spec = replace(JobSpec("clicks"), deadline_s=60.0)
    assert deadline_outlook(spec, features, MACHINE, tmp_path) is None
