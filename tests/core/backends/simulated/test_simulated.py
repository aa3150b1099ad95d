"""The simulated cluster as its users meet it: from several threads, in real time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.client.until import Until
from dlrover_nb.core.commands.requests import Accept, Finish, Scale, SetMode, Undo
from dlrover_nb.core.connect import connect
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.errors import (
    BackendError,
    CapacityError,
    InvalidValueError,
    NotFoundError,
    StaleDecisionError,
)
from dlrover_nb.core.simulator import (
    CALM,
    MemoryGrowth,
    SimulatedJob,
    SimulatedWorld,
    TermsTruth,
    WorldSettings,
)
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.past_jobs import JobTraits
from dlrover_nb.core.structs.views.summary import summarize

PLAN = ResourcePlan(worker=RolePlan(1, 1.0, 2048), ps=RolePlan(1, 1.0, 2048))
TRUTH = TermsTruth(grad_s=2e-5, update_s=1e-4, lookup_s=2e-6, constant_s=1e-3)


def job(name: str = "ads", *, n_sample: int = 10**13, mode: Mode = Mode.SUGGEST) -> SimulatedJob:
    bounds = PlanBounds(max_workers=8, max_ps=4, worker_cpus=(1.0, 2.0), ps_cpus=(1.0, 2.0))
    spec = JobSpec(name, owner="ada", plan=PLAN, bounds=bounds, mode=mode)
    return SimulatedJob(spec, TRUTH, n_sample, ps_memory=MemoryGrowth(300.0))


@pytest.fixture
def cluster():
    settings = WorldSettings(report_s=15.0, faults=CALM)
    world = SimulatedWorld([NodeShape(16.0, 65_536, 4)], rng=np.random.default_rng(1), settings=settings)
    made = SimulatedCluster(world, SETTINGS, lambda spec: job(spec.name), speed=2000.0)
    yield made
    made.shutdown(force=True)


def until(what, condition):
    """Wait for something that virtual time brings."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s, f"{what} did not happen"
        time.sleep(0.01)


def test_a_job_trains_to_the_end_and_every_picture_says_that_it_is_simulated(cluster):
    handle = cluster.add(job(n_sample=20_000_000))
    assert handle.snapshot().simulated
    end = handle.wait(LIMIT_S)
    assert end.phase is JobPhase.SUCCEEDED
    assert end.train.n_sample_done == 20_000_000
    assert end.title == "ads (simulated)"
    assert [summary.simulated for summary in cluster.jobs()] == [True]
    assert "simulated" in cluster.description


def test_a_line_in_the_list_of_jobs_says_what_the_picture_says(cluster):
    handle = cluster.add(job(n_sample=20_000_000))
    handle.wait(LIMIT_S)
    (line,), picture = cluster.live_jobs(), handle.snapshot()
    assert replace(line, at_s=picture.at_s) == summarize(picture)
    assert (line.done, line.left_s, line.live) == (1.0, None, True)


def test_a_line_of_a_running_job_tells_what_it_holds_and_when_it_ends(cluster):
    handle = cluster.add(job())
    until("training", lambda: cluster.live_jobs()[0].samples_per_s > 0)
    line, n_sample = cluster.live_jobs()[0], handle.snapshot().train.n_sample_total
    assert (line.cpu, line.memory_mib) == (PLAN.total_cpu, PLAN.total_memory_mib)
    assert line.left_s == pytest.approx((1 - line.done) * n_sample / line.samples_per_s)


def test_many_readers_see_one_job_move_forward_only(cluster):
    handle = cluster.add(job())
    failures: list[BaseException] = []

    def read() -> None:
        try:
            at_s = n_done = 0.0
            for _ in range(40):
                picture = handle.snapshot()
                assert picture.at_s >= at_s
                assert picture.train.n_sample_done >= n_done
                at_s, n_done = picture.at_s, picture.train.n_sample_done
        except BaseException as error:  # noqa: BLE001 - told to the main thread
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(LIMIT_S)
    assert not failures


def test_an_accepted_proposal_is_applied_and_a_second_answer_to_it_is_stale(cluster):
    handle = cluster.add(job())
    proposal = handle.wait(LIMIT_S, until=Until.PROPOSAL).open_proposal
    decision = handle.decide(Accept(proposal.id, why="try it"))
    assert decision.id == "d1"
    with pytest.raises(StaleDecisionError):
        handle.decide(Accept(proposal.id))
    until("the plan", lambda: handle.snapshot().running == proposal.candidate.plan)


def test_sliders_ask_what_plans_would_bring_while_the_simulation_goes_on(cluster, error_words):
    handle = cluster.add(job())
    proposal = handle.wait(LIMIT_S, until=Until.PROPOSAL).open_proposal
    huge = replace(PLAN, worker=RolePlan(900, 1.0, 2048))
    wanted, refused, same = handle.weigh(proposal.candidate.plan, huge, PLAN)
    assert wanted.refusal == ""
    assert wanted.candidate.prediction.samples_per_s > same.candidate.prediction.samples_per_s
    assert "already runs" in same.refusal
    with error_words(CapacityError) as told:
        handle.decide(Scale.to(huge))
    assert str(told.value) == refused.refusal
    explained = handle.explain(proposal.id)
    assert (explained.proposal, explained.plan) == (proposal.id, proposal.candidate.plan)
    with pytest.raises(NotFoundError):
        handle.explain("p99")
    handle.decide(Scale.to(proposal.candidate.plan))  # what was known before it does not count any more
    assert handle.weigh(proposal.candidate.plan)[0].refusal


def test_an_accepted_plan_is_undone_and_a_stale_undo_says_who_did_what(cluster):
    handle = cluster.add(job())
    with pytest.raises(NotFoundError, match="nothing to undo"):
        handle.decide(Undo(""))
    proposal = handle.wait(LIMIT_S, until=Until.PROPOSAL).open_proposal
    accepted = handle.decide(Accept(proposal.id))
    until("the plan", lambda: handle.snapshot().running == proposal.candidate.plan)
    handle.decide(SetMode(Mode.MANUAL))
    with pytest.raises(StaleDecisionError, match=r"was followed by d2 \(mode manual by"):
        handle.decide(Undo(accepted.id))
    handle.decide(Undo("d2"))
    assert handle.snapshot().mode is Mode.SUGGEST
    assert handle.decide(Undo("", why="manual after all")).undoes == "d3"
    assert handle.snapshot().mode is Mode.MANUAL


def test_logs_say_that_a_simulated_node_writes_none_and_how_it_was_killed(cluster):
    growth = MemoryGrowth(300.0, 4000.0, 1e6, 0.5)  # more than a PS may take
    handle = cluster.add(replace(job(), ps_memory=growth))
    until("a killed PS", lambda: any("killed at" in line.text for line in handle.logs("ads-ps-1")))
    assert (handle.logs("ads-ps-1")[-1].level, handle.logs("ads-ps-1")[-1].node) == ("ERROR", "ads-ps-1")
    until(
        "a report",
        lambda: any("has no output of its own" in line.text for line in handle.logs("ads-worker-1")),
    )
    assert {"ads-ps-1", "ads-worker-1"} <= {line.node for line in handle.logs()}
    with pytest.raises(NotFoundError, match="did you mean ads-worker-1"):
        handle.logs("ads-worker1")


def test_two_users_who_answer_at_once_are_told_apart(cluster):
    handle = cluster.add(job())
    proposal = handle.wait(LIMIT_S, until=Until.PROPOSAL).open_proposal
    outcomes: list[str] = []

    def answer() -> None:
        try:
            handle.decide(Accept(proposal.id))
            outcomes.append("taken")
        except StaleDecisionError:
            outcomes.append("stale")

    users = [threading.Thread(target=answer) for _ in range(6)]
    for user in users:
        user.start()
    for user in users:
        user.join(LIMIT_S)
    assert sorted(outcomes) == ["stale"] * 5 + ["taken"]


def test_auto_mode_finds_a_faster_plan_by_itself(cluster):
    handle = cluster.add(job(mode=Mode.AUTO))
    until("an outcome", lambda: len(handle.snapshot().outcomes) >= 3)
    picture = handle.snapshot()
    assert all(decision.by == "auto" for decision in picture.decisions)
    assert max(o.measured_samples_per_s for o in picture.outcomes) > 1.5 * TRUTH.speed(PLAN, 512)


def test_an_applied_change_is_waited_for_until_it_is_measured_and_then_the_job_is_finished(cluster):
    handle = cluster.add(job(n_sample=10**13, mode=Mode.MANUAL))
    until("training", lambda: handle.snapshot().running)
    assert handle.wait(LIMIT_S, until=Until.OUTCOME).outcomes == ()  # nothing was changed
    decision = handle.decide(Scale.to(replace(PLAN, worker=replace(PLAN.worker, count=2))))
    measured = handle.wait(LIMIT_S, until=Until.OUTCOME)
    assert [outcome.decision for outcome in measured.outcomes] == [decision.id]
    handle.ask(Finish(why="good enough"))
    end = handle.wait(LIMIT_S)
    assert (end.phase, end.message.split(":")[1]) == (JobPhase.SUCCEEDED, " good enough")
    with pytest.raises(StaleDecisionError, match="nothing left to finish"):
        handle.ask(Finish())


def test_a_stopped_job_stays_stopped_and_its_name_is_taken(cluster):
    handle = cluster.add(job())
    assert handle.stop(why="enough").phase is JobPhase.STOPPED
    with pytest.raises(InvalidValueError, match="ads exists already"):
        cluster.add(job())


def test_jobs_that_are_added_together_start_at_one_moment_or_not_at_all(cluster):
    jobs = [replace(job(), spec=replace(job().spec, name=f"ads-{i}")) for i in range(5)]
    huge = replace(job().spec.plan, worker=RolePlan(1, 17.0, 2048))
    with pytest.raises(CapacityError):
        cluster.add_all([*jobs, replace(job(), spec=replace(job().spec, plan=huge))])
    with pytest.raises(InvalidValueError, match="ads-0"):
        cluster.add_all([*jobs, jobs[0]])
    assert cluster.jobs() == ()
    handles = cluster.add_all(jobs)
    assert [handle.name for handle in handles] == [each.spec.name for each in jobs]
    assert len({summary.started_at_s for summary in cluster.jobs()}) == 1


def test_what_cannot_be_is_refused_with_the_reason(cluster):
    with pytest.raises(NotFoundError, match="no job 'asd'"):
        cluster.job("asd")
    cluster.add(job())
    with pytest.raises(NotFoundError, match="did you mean ads"):
        cluster.job("adds")
    with pytest.raises(InvalidValueError, match="still run"):
        cluster.shutdown()
    until("training", lambda: cluster.job("ads").snapshot().running is not None)
    huge = ResourcePlan(worker=RolePlan(1, 17.0, 2048), ps=PLAN.ps)
    with pytest.raises(CapacityError):
        cluster.job("ads").decide(Scale.to(huge))


def test_after_the_end_every_call_says_so(cluster):
    handle = cluster.add(job())
    assert "1 job(s)" in cluster.shutdown(force=True)
    with pytest.raises(BackendError, match="simulation is over"):
        handle.snapshot()
    assert "is over" in cluster.shutdown()


@pytest.mark.more
def test_a_warm_start_begins_on_what_a_like_job_ended_with(cluster):
    first = told(job("ads-monday", n_sample=40_000_000, mode=Mode.AUTO))
    assert cluster.add(first).wait(LIMIT_S).phase is JobPhase.SUCCEEDED
    ended = cluster.job("ads-monday").snapshot().target
    assert ended.worker.count > PLAN.worker.count
    second = told(job("ads-tuesday"))
    begun = cluster.add(replace(second, spec=replace(second.spec, warm_start=True))).snapshot()
    assert begun.target == ended
    assert any("ads-monday" in line for line in begun.story)


def told(made: SimulatedJob) -> SimulatedJob:
    """Return a job that says what it is."""
    traits = JobTraits(
        model="wide_deep",
        n_table=26,
        embedding_dim=442,
        n_table_row=1 << 20,
        dense_bytes=made.dense_bytes,
        batch_size=made.spec.batch_size,
        n_sample=made.n_sample,
        owner=made.spec.owner,
        name=made.spec.name,
    )
    return replace(made, traits=traits)


def test_connect_makes_one_and_a_users_job_runs_there(error_words):
    cluster = connect("sim", machines=2, speed=500.0)
    try:
        assert cluster.capacity().total_cpu == 64
        handle = cluster.submit(JobSpec("quick-start", n_epoch=200))
        until("training", lambda: handle.snapshot().train.n_sample_done > 0)
        with error_words(InvalidValueError):
            cluster.delete("quick-start", force=True)
    finally:
        cluster.shutdown(force=True)


def test_options_of_another_kind_of_cluster_are_refused(error_words):
    with error_words(InvalidValueError):
        connect("sim", "host:1", cpus=2)
    with error_words(InvalidValueError):
        connect("ray", machines=3)
    with error_words(InvalidValueError):
        connect("k8s", "host:1")
    with error_words(InvalidValueError):
        connect("sim", machines=0)
    assert isinstance(SETTINGS, ControllerSettings)
