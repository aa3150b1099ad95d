"""The cluster of ``server --demo``: what its list has to show, and that its process leaves nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.dashboard.demo_cluster import OF_BEFORE, RUNNING, STOPPED, demo_cluster
from dlrover_nb.widgets.rows.job_cells import Rank, line_of

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def jobs():
    cluster = demo_cluster()
    yield {job.name: job for job in cluster.jobs()}
    cluster.shutdown(force=True)


def test_thirty_jobs_of_a_team_have_names_of_their_own(jobs):
    assert len(jobs) == len(OF_BEFORE) + len(RUNNING) == 30
    assert len({job.owner for job in jobs.values()}) >= 4


def test_every_state_of_a_list_is_there(jobs):
    phases = Counter(job.phase for job in jobs.values())
    assert phases[JobPhase.SUCCEEDED] >= 3
    assert phases[JobPhase.FAILED] >= 2
    assert jobs[STOPPED].phase is JobPhase.STOPPED
    assert phases[JobPhase.TRAINING] >= 15
    ranks = Counter(line_of(job).rank for job in jobs.values())
    assert ranks[Rank.ANSWER] >= 5, "proposals wait"
    assert ranks[Rank.RUNS] >= 3, "and others run without a need"
    assert sum(bool(job.memory_needs) for job in jobs.values()) >= 2, "memory runs out"
    assert sum(job.outlook.predicted is not None for job in jobs.values()) >= 10, "speeds have predictions"


def test_all_of_it_says_that_it_is_simulated(jobs):
    assert all(job.simulated for job in jobs.values())
