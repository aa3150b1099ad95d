"""What is pinned is in every plan that is searched, proposed or applied."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.plans.replayed import replay

from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.resources import RolePlan
from dlrover_nb.core.structs.views.events import Scale


def test_pins_of_the_specification_hold_from_the_start(make_job):
    job = make_job(pins=Pins(ps=1, worker_cpu=0.5))
    job.train(30)
    assert job.view.pins == Pins(ps=1, worker_cpu=0.5)
    assert all(job.view.pins.allows(c.plan) for c in job.view.front.candidates)
    assert job.view.pins.allows(job.open.candidate.plan)


def test_pin_constrains_the_search_at_once_and_is_told(job, words):
    job.train(30)
    job.decide(Verdict.PIN, pins=Pins(ps=1), why="the tables fit one")
    assert {c.plan.ps.count for c in job.view.front.candidates} == {1}
    assert next(line for line in job.view.story if "pin ps = 1" in line) == words


def test_proposal_that_breaks_a_pin_expires(job):
    job.train(30)
    shown = job.open.candidate.plan
    pins = Pins(workers=1, ps=1, worker_cpu=0.5, ps_cpu=0.25)
    assert not pins.allows(shown)
    job.decide(Verdict.PIN, pins=pins)
    assert job.view.proposals[0].status is ProposalStatus.EXPIRED
    assert "the pins" in job.view.proposals[0].note
    job.train(60)
    assert job.open is None


def test_proposal_that_keeps_the_pins_stays_open(job):
    job.train(30)
    shown = job.open
    job.decide(Verdict.PIN, pins=Pins(ps_memory_mib=shown.candidate.plan.ps.memory_mib))
    assert job.open.id == shown.id


def test_pin_against_the_running_plan_is_proposed_in_suggest_mode_and_not_applied(job, words):
    job.train(30)
    orders = job.decide(Verdict.PIN, pins=Pins(worker_memory_mib=2048))
    orders += job.train(30)
    assert not [o for o in orders if isinstance(o, Scale)]
    assert job.open.candidate.plan == Pins(worker_memory_mib=2048).applied(job.plan)
    assert "worker_memory_mib = 2048" in job.open.why
    assert job.open.why == words


def test_pin_against_the_running_plan_is_applied_in_auto_mode(make_job):
    job = make_job(mode=Mode.AUTO)
    job.train(65)
    before, pins = job.plan, Pins(worker_memory_mib=1152)
    job.obey(job.decide(Verdict.PIN, pins=pins))
    job.train(20)
    assert pins.allows(job.plan)
    assert replace(before, worker=replace(before.worker, memory_mib=1152)) in [
        m.plan for m in job.view.markers
    ]


def test_where_the_pinned_plan_finds_no_room_another_that_keeps_the_pins_is_proposed(make_job):
    plan = replace(make_job().spec.plan, worker=RolePlan(3, 0.5, 1024))
    job = make_job(plan=plan)
    job.train(30)
    pins = Pins(worker_memory_mib=3500)  # three of them do not fit on 8000 MiB
    job.decide(Verdict.PIN, pins=pins)
    job.train(5)
    assert pins.allows(job.open.candidate.plan)
    assert job.open.candidate.plan.worker.count < 3


def test_pins_that_no_plan_can_keep_are_refused(job, error_words):
    job.train(30)
    before = job.view
    with error_words(CapacityError):
        job.decide(Verdict.PIN, pins=Pins(worker_memory_mib=9000))
    assert job.view == before


def test_pins_over_the_quota_are_refused(make_job):
    job = make_job(bounds=PlanBounds(quota_cpu=1.0))
    job.train(30)
    with pytest.raises(CapacityError, match="quota"):
        job.decide(Verdict.PIN, pins=Pins(workers=4, worker_cpu=0.5))


@pytest.mark.parametrize("pins", [None, Pins()])
def test_missing_or_equal_pins_are_refused(job, pins):
    with pytest.raises(InvalidValueError, match="pin"):
        job.decide(Verdict.PIN, pins=pins)


def test_a_users_plan_that_breaks_a_pin_is_refused_with_the_pin_and_the_way_out(job, error_words):
    job.train(30)
    shown = job.open
    job.decide(Verdict.PIN, pins=Pins(worker_memory_mib=1024, ps=1))
    before = job.view
    plan = replace(job.plan, worker=replace(job.plan.worker, memory_mib=2048))
    for verdict, fields in ((Verdict.SCALE, {}), (Verdict.OVERRIDE, {"proposal": (job.open or shown).id})):
        if verdict is Verdict.OVERRIDE and job.open is None:
            continue
        with error_words(InvalidValueError) as caught:
            job.decide(verdict, plan=plan, **fields)
        assert "ps = 1" not in str(caught.value)
    assert job.view == before


def test_letting_go_of_a_pin_frees_the_search(make_job):
    job = make_job(pins=Pins(ps=1, worker_cpu=0.5))
    job.train(30)
    job.decide(Verdict.PIN, pins=Pins())
    assert {c.plan.ps.count for c in job.view.front.candidates} > {1}


def test_pins_can_be_set_while_a_change_is_under_way(job):
    job.train(30)
    plan = job.open.candidate.plan
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.decide(Verdict.PIN, pins=Pins(worker_memory_mib=1536))
    job.apply(plan)
    job.train(30)
    assert job.open.kind is ProposalKind.IMPROVE
    assert job.open.candidate.plan.worker.memory_mib == 1536


@pytest.mark.more
def test_pins_are_replayed(job):
    job.train(20)
    job.decide(Verdict.PIN, pins=Pins(ps=1))
    job.train(20)
    assert replay(job.journal).view() == job.view
