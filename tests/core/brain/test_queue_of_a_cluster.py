"""Jobs that wait in the queue of a simulated cluster, admitted by a brain through the calls of their masters."""

from __future__ import annotations

import pytest
from support.waiting import LIMIT_S, until

from dlrover_nb.core.brain.cluster_plan import BrainSettings
from dlrover_nb.core.brain.service import Brain, Rhythm
from dlrover_nb.core.connect import connect
from dlrover_nb.core.history.stores.brain_rounds import RoundStore
from dlrover_nb.core.history.stores.leases import LeaseStore
from dlrover_nb.core.planner.availability.waiting import end_of, waits_of
from dlrover_nb.core.structs.cluster.waits import WaitKind
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Admission, Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

FAST = Rhythm(interval_s=0.2, lease_s=LIMIT_S)
HALF = ResourcePlan(RolePlan(3, 4.0, 8192), RolePlan(1, 4.0, 8192))  # of the one machine of 32 cores
WHOLE = ResourcePlan(RolePlan(7, 4.0, 8192), RolePlan(1, 4.0, 8192))


@pytest.fixture
def cluster():
    made = connect("sim", machines=1, speed=600.0)
    yield made
    made.shutdown(force=True)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'history.db'}"


def brain(cluster, url, **options) -> Brain:
    stores = {"leases": LeaseStore(url), "rounds": RoundStore(url)}
    return Brain(cluster, "sim", settings=BrainSettings(**options), rhythm=FAST, by="one", **stores)


def round_of(one: Brain):
    assert one.renew()
    return one.planned()


def submit(cluster, name: str, plan: ResourcePlan = HALF, **fields):
    given = {"n_epoch": 1_000_000, "mode": Mode.MANUAL, "admission": Admission.QUEUE} | fields
    return cluster.submit(JobSpec(name, plan=plan, **given))


def test_a_job_in_the_queue_starts_no_node_until_it_is_admitted(cluster, url, words):
    job = submit(cluster, "ads")
    until(lambda: job.snapshot().at_s > job.snapshot().started_at_s + 60, what="a minute of its time")
    before = job.snapshot()
    assert (before.phase, before.nodes) == (JobPhase.STARTING, ())
    assert before.message == words
    assert [wait.kind for wait in waits_of(before)] == [WaitKind.QUEUE]
    found = round_of(brain(cluster, url))
    assert [(each.job, each.admitted) for each in found.queue] == [("ads", HALF)]
    until(lambda: job.snapshot().phase is JobPhase.TRAINING, what="training")
    assert job.snapshot().queue is None
    assert any("admitted with" in line for line in job.snapshot().story)
    assert RoundStore(url).newest("sim")[0].queue == found.queue


def test_who_finds_no_room_is_told_its_place_and_starts_when_another_has_ended(cluster, url):
    one = brain(cluster, url, start_share=1.0)
    jobs = [submit(cluster, name) for name in ("ads", "clicks", "feed")]
    admitted: list[tuple[str, ResourcePlan]] = []

    def planned() -> bool:
        admitted.extend((each.job, each.admitted) for each in round_of(one).queue if each.admitted)
        return True

    until(lambda: planned() and len(admitted) == 2, what=lambda: f"two that start: {admitted}")
    assert admitted == [("ads", HALF), ("clicks", HALF)]
    told = until(
        lambda: planned() and (now := jobs[2].snapshot()).queue and now.queue.place and now,
        what=lambda: f"its place: {admitted}",
    )
    assert "place 1 of 1 in the queue: it needs at least 16 cores" in told.message
    (wait,) = waits_of(told)
    assert (wait.cpu, wait.ends_in_s) == (HALF.total_cpu, told.queue.starts_in_s)
    if wait.ends_in_s is not None:
        assert end_of(wait, cluster.capacity(), ()).in_s == wait.ends_in_s
    jobs[0].stop(why="to make room")
    until(lambda: planned() and jobs[2].snapshot().phase is JobPhase.TRAINING, what="training")
    assert admitted[2:] == [("feed", HALF)]


def test_a_job_starts_on_a_part_of_what_it_asks_for(cluster, url):
    submit(cluster, "first"), submit(cluster, "second", WHOLE)
    admitted = {each.job: each.admitted for each in round_of(brain(cluster, url)).queue}
    assert admitted["first"] == HALF
    assert admitted["second"].total_cpu == pytest.approx(16.0)


def test_a_user_may_start_a_job_of_the_queue_on_the_plan_that_it_asks_for(cluster):
    job = submit(cluster, "ads")
    job.link.decide(Decision(Verdict.SCALE, "ada", 0.0, plan=HALF))
    until(lambda: job.snapshot().phase is JobPhase.TRAINING, what="training")
    assert job.snapshot().queue is None


@pytest.mark.more
def test_running_jobs_do_not_grow_while_a_job_waits_and_learn_for_whom(cluster, url, words):
    one = brain(cluster, url, start_share=1.0)
    submit(cluster, "ads", admission=Admission.AT_ONCE, mode=Mode.AUTO)
    submit(cluster, "late", WHOLE)
    found = until(lambda: (plan := round_of(one)).shares and plan.queue and plan, what="an offer")
    (share,) = found.shares
    assert share.meant == share.now
    assert share.why == words
    assert share.quota.cpu == pytest.approx(share.now.total_cpu)


@pytest.mark.more
def test_with_leave_to_shrink_a_running_job_makes_room_for_the_one_that_waits(cluster, url):
    one = brain(cluster, url, shrink=True)
    running = submit(
        cluster, "ads", WHOLE,
        admission=Admission.AT_ONCE, mode=Mode.AUTO,
    )  # fmt: skip
    late = submit(cluster, "late")

    def started():
        round_of(one)
        return late.snapshot().phase is JobPhase.TRAINING

    until(started, what=lambda: f"{late.snapshot().message}; {running.snapshot().story[-5:]}")
    assert running.snapshot().target.total_cpu <= 24.0
    assert running.snapshot().phase is not JobPhase.FAILED


def test_where_its_brain_falls_silent_a_job_says_so_and_waits_on(cluster, url):
    job, other = submit(cluster, "ads"), submit(cluster, "old", admission=Admission.AT_ONCE)
    until(lambda: other.snapshot().phase is JobPhase.TRAINING, what="training")
    other.link.decide(Decision(Verdict.SCALE, "ada", 0.0, plan=WHOLE))
    until(lambda: other.snapshot().running == WHOLE, what="a full cluster")
    round_of(brain(cluster, url))
    until(lambda: "one does not answer" in job.snapshot().message, what=lambda: job.snapshot().message)
    assert job.snapshot().phase is JobPhase.STARTING
