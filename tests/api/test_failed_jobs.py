"""A job that has failed raises where that is asked for, and only there; a view's repr is its text."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.jobs.cluster_double import MemoryCluster

from dlrover_nb.api.cluster import Cluster
from dlrover_nb.api.views.job_views import Note
from dlrover_nb.core.errors import JobFailedError
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec


@pytest.fixture
def memory() -> MemoryCluster:
    memory = MemoryCluster()
    memory.submit(JobSpec("ctr"))
    return memory


def test_a_failed_job_raises_what_it_said_last_where_asked(memory: MemoryCluster, error_words) -> None:
    link = memory.links["ctr"]
    link.end(JobPhase.FAILED)
    link.state = replace(link.state, message="worker-0 ran out of memory")
    job = Cluster(memory).job("ctr")
    assert job.wait().phase is JobPhase.FAILED
    assert asyncio.run(job.ended()).phase is JobPhase.FAILED
    with error_words(JobFailedError):
        job.wait(check=True)
    with pytest.raises(JobFailedError, match="ran out of memory"):
        asyncio.run(job.ended(check=True))


@pytest.mark.parametrize("phase", [JobPhase.SUCCEEDED, JobPhase.STOPPED])
def test_a_job_that_has_not_failed_never_raises(memory: MemoryCluster, phase: JobPhase) -> None:
    memory.links["ctr"].end(phase)
    job = Cluster(memory).job("ctr")
    assert job.wait(check=True).phase is phase
    assert asyncio.run(job.ended(check=True)).phase is phase


def test_the_repr_of_a_view_is_its_text(memory: MemoryCluster) -> None:
    cluster = Cluster(memory)
    job = cluster.job("ctr")
    for view in (
        cluster.jobs(),
        job.status(),
        job.plans(),
        job.logs(),
        Note("Stopped", "all nodes are gone"),
    ):
        assert repr(view) == str(view) == view._repr_mimebundle_()["text/plain"]


def test_clusters_and_jobs_are_data_too(memory: MemoryCluster) -> None:
    cluster = Cluster(memory)
    assert cluster.to_frame()["total_cpu"][0] == 8.0
    assert cluster.job("ctr").to_frame()["n_sample_done"][0] == 40_000
    assert list(cluster.jobs().to_frame()["job"]) == ["ctr"]
    try:
        assert list(cluster.dash().to_frame()["job"]) == ["ctr"]
        assert cluster.job("ctr").watch().to_frame("nodes").empty
    finally:
        cluster.poller.close()
