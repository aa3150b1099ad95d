"""What jobs hold of which the brain hears nothing: their masters are away, or have just come back."""

from __future__ import annotations

import pytest
from support.waiting import until
from test_queue_of_a_cluster import HALF, WHOLE, brain, round_of, submit

from dlrover_nb.core.brain.admission import AdmissionPlan
from dlrover_nb.core.brain.cluster_plan import BrainSettings
from dlrover_nb.core.brain.holdings import Holdings
from dlrover_nb.core.brain.planning_round import AWAY, Rounds
from dlrover_nb.core.brain.shares import ClusterPlan
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.connect import connect
from dlrover_nb.core.history.stores.leases import LeaseStore
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Admission
from dlrover_nb.core.structs.plan.capacity import plan_needs
from dlrover_nb.core.structs.views.brain import Holding
from dlrover_nb.core.structs.views.summary import JobSummary

LASTS_S = 100.0
ADS = Holding("ads", "ada", 5.0, HALF)


@pytest.fixture
def cluster():
    made = connect("sim", machines=1, speed=600.0)
    yield made
    made.shutdown(force=True)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'history.db'}"


def line(name: str = "ads", phase: JobPhase = JobPhase.TRAINING, plan=HALF) -> JobSummary:
    return JobSummary(name, phase, "ada", 5.0, plan, 0.0, 0.0, None, live=False)


def holdings() -> Holdings:
    made = Holdings(LASTS_S)
    made.remember([ADS])
    return made


def test_what_a_job_held_stays_its_own_while_its_master_is_away_and_no_longer_than_an_allotment_lasts():
    made, there = holdings(), lambda: [line(phase=JobPhase.STARTING, plan=None)]
    assert made.away([], there, 10.0) == (ADS,)
    assert made.away([], there, 10.0 + LASTS_S) == (ADS,)
    assert made.away([], there, 11.0 + LASTS_S) == ()


def test_time_begins_anew_when_its_master_has_answered():
    made, there = holdings(), lambda: [line()]
    made.away([], there, 0.0)
    made.away([line()], there, 1.0)
    assert made.away([], there, 2 + LASTS_S) == (ADS,)


@pytest.mark.parametrize("listed", [[], [line(phase=JobPhase.SUCCEEDED)]])
def test_what_a_job_held_that_is_gone_or_has_ended_is_free(listed):
    assert holdings().away([], lambda: listed, 0.0) == ()


def test_what_another_brain_knew_counts_where_nothing_newer_is_known():
    made = holdings()
    made.adopt([Holding("ads", "ada", 5.0, WHOLE), Holding("clicks", "bob", 6.0, WHOLE)])
    assert made.plan_of(line()) == HALF
    assert {each.job for each in made.all} == {"ads", "clicks"}


def rounds() -> Rounds:
    return Rounds(None, "here", BrainSettings(), lasts_s=LASTS_S, clock=SystemClock())


def test_a_job_whose_nodes_have_yet_to_connect_again_holds_its_whole_plan():
    assert rounds()._held(line()) == plan_needs(HALF)


def test_a_job_that_changes_its_plan_takes_what_it_was_given():
    made = rounds()
    made.adopt([Holding("ads", "ada", 5.0, WHOLE)])
    changing = line(phase=JobPhase.RESCALING)
    for _ in range(3):
        held = made._held(changing)
        assert held == plan_needs(WHOLE)
        made._holdings.remember(made._holding([changing], ClusterPlan({}), AdmissionPlan(), {"ads": held}))
    assert made._held(line()) == plan_needs(HALF), "it is done, and runs that"


def test_no_job_starts_on_what_another_holds_whose_master_is_away_by_any_brain(cluster, url, monkeypatch):
    old = submit(cluster, "old", admission=Admission.AT_ONCE)
    until(lambda: old.snapshot().phase is JobPhase.TRAINING, what="training")
    one = brain(cluster, url, start_share=1.0)
    round_of(one)
    submit(cluster, "late", WHOLE)
    monkeypatch.setattr(
        cluster, "live_jobs", lambda: tuple(job for job in cluster.jobs() if job.name != "old")
    )
    for planner in (one, brain(cluster, url, start_share=1.0)):
        found = round_of(planner)
        assert [(each.job, each.admitted) for each in found.queue] == [("late", None)]
        assert dict(found.apart)["old"] == AWAY


def test_a_round_is_given_up_when_another_brain_had_the_lease_meanwhile(cluster, url):
    one, leases = brain(cluster, url), LeaseStore(url)
    one.renew()
    assert one._may_act(1)
    leases.release("brain of sim", "one")
    one.renew()
    assert one._may_act(1), "nobody else had it"
    leases.release("brain of sim", "one")
    assert leases.take("brain of sim", "two", 5.0).term == 3
    leases.release("brain of sim", "two")
    assert one.renew()
    assert one.leads
    assert not one._may_act(2)
    assert one._may_act(4)
