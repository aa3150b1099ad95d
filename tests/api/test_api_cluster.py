"""`dlrover_nb.connect` and its cluster: what a submit takes, how jobs are found, what shows itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.cases import for_each
from support.jobs.cluster_double import BETTER, MemoryCluster
from support.waiting import until

from dlrover_nb.api import Cluster, Job
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode

if TYPE_CHECKING:
    from dlrover_nb.api.views.job_views import StatusView


@pytest.fixture
def memory() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def cluster(memory: MemoryCluster) -> Cluster:
    return Cluster(memory)


@pytest.mark.parametrize(
    "job",
    [
        JobSpec("ads", n_epoch=3),
        {"name": "ads", "epochs": 3},
        "name: ads\nepochs: 3\n",
        "{name: ads, epochs: 3}",
        "jobs/ads.yaml",
        Path("jobs/ads.yaml"),
    ],
)
def test_a_job_may_be_given_in_any_form(cluster, memory, job, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "ads.yaml").write_text("name: ads\nepochs: 3\n")
    submitted = cluster.submit(job, mode="auto", plan={"worker": {"count": 2}})
    spec = memory.links["ads"].state.spec
    assert isinstance(submitted, Job)
    assert (spec.n_epoch, spec.mode, spec.plan.worker.count) == (3, Mode.AUTO, 2)
    assert spec.plan.worker.cpu == JobSpec("x").plan.worker.cpu, "a group sets only what it holds"
    assert spec.owner


def test_own_model_and_data_reach_the_cluster(cluster, memory) -> None:
    cluster.submit("name: mine", model=dict, data=list)
    assert memory.own == [(dict, list)]


@for_each(
    ("job", "settings", "message"),
    [
        ("nowhere.yaml", {}, "no job file .*nowhere.yaml; check the path"),
        (3, {}, "expected a JobSpec, a mapping, YAML text or a job file's path, got int"),
        ("epochs: 3", {}, "the job has no name"),
        ("name: x\nplan: [", {}, "malformed YAML in line 2, column"),
        ("name: x", {"epoch": 3}, "unknown key 'epoch'; did you mean epochs?"),
        ("name: x\nplan: 3", {"plan": {"ps": {"count": 2}}}, "plan must be a group of worker, ps"),
    ],
)
def test_a_job_that_is_none_is_refused_and_nothing_starts(cluster, memory, job, settings, message) -> None:
    with pytest.raises((InvalidValueError, NotFoundError), match=message):
        cluster.submit(job, **settings)
    assert memory.links == {}


def test_jobs_can_be_listed_and_found_again(cluster, error_words) -> None:
    cluster.submit("name: a1")
    cluster.submit("name: b2")
    assert [j.name for j in cluster.jobs()] == ["a1", "b2"]
    assert cluster.job("b2").name == cluster.attach("b2").name == "b2"
    with error_words(InvalidValueError):
        cluster.job()
    with pytest.raises(NotFoundError, match="did you mean a1"):
        cluster.job("a11")


def test_a_cluster_that_is_lost_shows_that_instead_of_a_traceback(cluster, memory, monkeypatch) -> None:
    assert "a cluster in memory" in cluster._repr_mimebundle_()["text/html"]

    def lost() -> object:
        raise BackendError("the cluster does not answer; connect again")

    monkeypatch.setattr(memory, "capacity", lost)
    assert "connect again" in str(cluster)


def test_the_shutdown_of_one_cluster_leaves_the_views_of_another_live() -> None:
    memories = MemoryCluster(), MemoryCluster()
    ended, other = map(Cluster, memories)
    last, live = (cluster.submit("name: ads").watch() for cluster in (ended, other))
    ended.shutdown(force=True)
    for memory in memories:
        memory.links["ads"].end(JobPhase.SUCCEEDED)
    until(lambda: "Job ads: succeeded" in str(live))
    assert "Job ads: training" in str(last), "it keeps the last state before the shutdown"


def test_a_refused_shutdown_leaves_the_views_of_the_cluster_live(cluster, memory) -> None:
    view = cluster.submit("name: ads").watch()
    with pytest.raises(InvalidValueError, match="still run here"):
        cluster.shutdown()
    memory.links["ads"].end(JobPhase.SUCCEEDED)
    until(lambda: "Job ads: succeeded" in str(view))


def test_decisions_are_made_on_the_open_proposal_or_the_one_named(cluster, memory) -> None:
    job, link = cluster.submit("name: ads"), memory.links["ads"]
    link.propose(1)
    assert job.accept(why="go").decision.proposal == "p1"
    job.override(workers=3)
    job.override(BETTER, ps=2)
    with pytest.raises(StaleDecisionError):
        job.reject("p7")
    plans = [d.plan for d in link.decisions if d.verdict is Verdict.OVERRIDE]
    assert [(p.worker.count, p.ps.count) for p in plans] == [(3, 1), (BETTER.worker.count, 2)]


@for_each(
    ("call", "message"),
    [
        (lambda job: job.scale(), "nothing to change; give at least one of workers, ps, worker_cpu"),
        (lambda job: job.pin(), "nothing to change"),
        (lambda job: job.scale(ps=0), "ps must be >= 1, got 0"),
        (lambda job: job.mode("atuo"), "mode must be one of manual, suggest, auto, got 'atuo'"),
        (
            lambda job: job.wait(until="then"),
            "cannot wait for 'then'; choose from end, proposal, mitigation, outcome",
        ),
    ],
)
def test_a_mistake_decides_nothing(cluster, memory, call, message) -> None:
    job = cluster.submit("name: ads")
    with pytest.raises(InvalidValueError, match=message):
        call(job)
    assert memory.links["ads"].decisions == []


def test_a_job_is_awaited_and_a_cancelled_wait_leaves_it_alone(cluster, memory) -> None:
    job, link = cluster.submit("name: ads"), memory.links["ads"]

    async def cancelled() -> None:
        waiting = asyncio.ensure_future(_awaited(job))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    assert (link.stopped, link.decisions, job.snapshot().phase) == ([], [], JobPhase.TRAINING)
    link.end(JobPhase.SUCCEEDED)
    assert asyncio.run(_awaited(job)).phase is JobPhase.SUCCEEDED


async def _awaited(job: Job) -> StatusView:
    return await job
