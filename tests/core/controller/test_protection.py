"""Memory before and after a node is killed for want of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.plans.replayed import replay

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalKind, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import (
    JobSubmitted,
    NodeOutOfMemory,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    RoomChanged,
    Scale,
)


def scales(orders):
    return [o.target for o in orders if isinstance(o, Scale)]


def growing(rate_mib_per_s: float):
    def memory(role, at_s):
        return 200.0 + rate_mib_per_s * at_s if role is Role.PS else 300.0

    return memory


def test_killed_node_brings_a_proposal_with_half_as_much_memory_again(job, words):
    job.train(30)
    assert scales(job.kill(Role.PS, 512)) == []
    assert job.open.kind is ProposalKind.PROTECT
    assert job.open.candidate.plan == replace(job.plan, ps=replace(job.plan.ps, memory_mib=768))
    assert "s0 ran out of" in job.open.why
    assert job.open.why == words


def test_protection_supersedes_an_open_proposal_and_is_not_superseded_itself(job):
    job.train(30)
    first = job.open
    job.kill(Role.PS)
    assert job.view.proposals[0].id == first.id
    assert job.view.proposals[0].status is ProposalStatus.SUPERSEDED
    protection = job.open.id
    job.train(60)
    assert job.open.id == protection


def test_second_kill_proposes_once_only(job):
    job.train(30)
    job.kill(Role.PS)
    shown = job.open
    job.kill(Role.PS)
    assert job.open == shown


def test_kill_of_the_other_role_widens_the_protection(job):
    job.train(30)
    job.kill(Role.PS, 512)
    job.kill(Role.WORKER, 1024)
    plan = job.open.candidate.plan
    assert (plan.ps.memory_mib, plan.worker.memory_mib) == (768, 1536)


@pytest.mark.more
def test_no_plan_ever_has_less_memory_than_a_killed_node_had_reached(job):
    job.train(30)
    job.kill(Role.PS, 700.0)  # more than its limit of 512: what counts is what it had reached
    plan = job.open.candidate.plan
    assert plan.ps.memory_mib >= 1050
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.apply(plan)
    for _ in range(4):
        job.train(30)
        assert all(c.plan.ps.memory_mib >= 700 for c in job.view.front.candidates)
        if job.open:
            job.obey(job.decide(Verdict.ACCEPT, proposal=job.open.id))
    assert job.plan.ps.memory_mib >= 1050


def test_search_gives_what_a_kill_taught_even_where_the_protection_was_turned_down(job):
    job.train(30)
    job.kill(Role.PS, 512)
    job.decide(Verdict.REJECT, proposal=job.open.id)
    job.train(60)
    assert {c.plan.ps.memory_mib for c in job.view.front.candidates} == {768}


def test_protection_keeps_to_the_room_of_now(job):
    job.train(30)
    job.tell(RoomChanged(job.at_s, Capacity((NodeShape(2.0, 1700),))))
    job.kill(Role.PS, 512)
    assert 614 <= job.open.candidate.plan.ps.memory_mib <= 1700 - 1024


def test_rejected_protection_comes_back_only_after_another_kill(job):
    job.train(30)
    job.kill(Role.PS)
    job.decide(Verdict.REJECT, proposal=job.open.id)
    job.train(120)
    assert job.open is None or job.open.kind is not ProposalKind.PROTECT
    job.kill(Role.PS)
    assert job.open.kind is ProposalKind.PROTECT


def test_auto_mode_protects_at_once_whatever_its_track_record_and_cool_down(make_job):
    job = make_job(mode=Mode.AUTO)
    job.train(14)
    orders = job.kill(Role.PS)
    assert [plan.ps.memory_mib for plan in scales(orders)] == [768]
    assert job.view.decisions[-1].by == "auto"


@pytest.mark.parametrize("prices", [PriceTable(), PriceTable(cpu_hour=None)])
def test_protection_over_the_budget_or_of_unknown_price_waits_for_the_user(make_job, prices):
    job = make_job(mode=Mode.AUTO, budget_per_hour=0.02, prices=prices)
    job.train(30)
    assert scales(job.kill(Role.PS) + job.train(60)) == []
    assert job.open.kind is ProposalKind.PROTECT
    assert job.open.note.startswith("auto waits: ")
    assert "budget" in job.open.note


def test_pinned_memory_is_not_raised(make_job):
    job = make_job(pins=Pins(ps_memory_mib=512))
    job.train(30)
    job.kill(Role.PS)
    assert job.open is None or job.open.kind is not ProposalKind.PROTECT
    assert {c.plan.ps.memory_mib for c in job.view.front.candidates} == {512}


def test_protection_is_cut_to_the_machines(make_job):
    job = make_job(plan=replace(make_job().spec.plan, ps=replace(make_job().spec.plan.ps, memory_mib=6000)))
    job.train(30)
    job.kill(Role.PS, 5500)
    plan = job.open.candidate.plan
    assert 6600 <= plan.ps.memory_mib <= 8000 - plan.worker.memory_mib


def test_where_not_all_nodes_find_room_fewer_are_protected(make_job):
    plan = make_job().spec.plan
    job = make_job(plan=replace(plan, worker=replace(plan.worker, count=3, memory_mib=2400)))
    job.train(30)
    job.kill(Role.WORKER, 2400)
    worker = job.open.candidate.plan.worker
    assert worker.count == 2
    assert worker.memory_mib >= 2880


def test_manual_mode_is_told_and_learns_but_is_not_proposed_to(make_job, words):
    job = make_job(mode=Mode.MANUAL)
    job.train(30)
    job.kill(Role.PS)
    assert job.view.proposals == ()
    assert next(line for line in job.view.story if "at 512 MiB" in line) == words
    job.decide(Verdict.MODE, mode=Mode.SUGGEST)
    assert job.open.kind is ProposalKind.PROTECT


def test_job_killed_before_anything_is_measured_gets_memory_in_auto_mode(make_job):
    job = make_job(mode=Mode.AUTO)
    orders = job.kill(Role.PS)
    assert [plan.ps.memory_mib for plan in scales(orders)] == [768]
    assert job.view.decisions[0].verdict is Verdict.SCALE
    assert "ran out of memory" in job.view.decisions[0].why


@pytest.mark.parametrize("trained_s", [0, 14])
def test_the_store_of_an_elastic_job_that_ran_out_of_memory_is_left_to_its_master(make_job, trained_s):
    foreign = ExternalSpec(ExternalRole(("run",)), 10**6, framework=Framework.DDP)
    job = make_job(mode=Mode.AUTO, foreign=foreign)
    job.train(trained_s)
    assert scales(job.kill(Role.PS)) == []
    assert [plan.worker.memory_mib > 1024 for plan in scales(job.kill(Role.WORKER))] == [True]


def test_blind_protection_that_failed_is_not_tried_again(make_job, words):
    job = make_job(mode=Mode.AUTO)
    (wanted,) = scales(job.tell(NodeOutOfMemory(0.0, "s0", Role.PS, 512.0)))
    assert scales(job.tell(PlanFailed(1.0, wanted, "no room"))) == []
    assert scales(job.tell(NodeOutOfMemory(2.0, "s0", Role.PS, 512.0))) == []
    assert next(line for line in job.view.story if "no plan that fits" in line) == words


def test_job_killed_before_anything_is_measured_tells_the_user_what_to_do(job, words):
    job.kill(Role.PS)
    job.kill(Role.PS)
    assert job.view.proposals == ()
    told = [line for line in job.view.story if "no measurements yet" in line]
    assert len(told) == 1
    assert "1 x 0.5 cpu" in told[0]
    assert told[0] == words
    job.train(30)
    assert job.open.kind is ProposalKind.PROTECT


def test_kill_before_the_first_plan_runs_waits_until_it_does(spec):
    auto = replace(spec, mode=Mode.AUTO)
    controller = Controller(JobSubmitted(0.0, auto, Capacity((NodeShape(2, 8000),)), 10**6, 1000, 16))
    controller.handle(PhaseChanged(0.0, JobPhase.STARTING))
    assert scales(controller.handle(NodeOutOfMemory(1.0, "s0", Role.PS, 512.0))) == []
    orders = controller.handle(PlanApplied(2.0, spec.plan, 0.0))
    assert [plan.ps.memory_mib for plan in scales(orders)] == [768]


def test_kill_during_a_change_is_seen_to_when_the_change_is_done(job):
    job.train(30)
    plan = job.open.candidate.plan
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.tell(NodeOutOfMemory(job.at_s, "s0", Role.PS, 512.0))
    assert job.open is None
    job.apply(plan)
    assert job.open.kind is ProposalKind.PROTECT
    assert job.open.candidate.plan == replace(plan, ps=replace(plan.ps, memory_mib=768))


def test_forecast_protects_before_a_node_is_killed(make_job, words):
    job = make_job(memory=growing(0.5), n_sample_total=40_000_000)
    job.train(420)
    assert job.open.kind is ProposalKind.PROTECT
    assert job.open.candidate.plan.ps.memory_mib > 512
    assert "512 MiB" in job.open.why
    assert job.open.why == words


def test_forecast_protects_by_itself_in_auto_mode(make_job):
    job = make_job(
        memory=growing(1.0),
        n_sample_total=40_000_000,
        mode=Mode.AUTO,
        bounds=PlanBounds(1, 1, (0.5,), (0.25,)),
    )
    job.train(300)
    assert job.plan.ps.memory_mib > 512
    assert {d.by for d in job.view.decisions} == {"auto"}


def test_a_climb_of_the_first_minute_is_met_before_it_ends_at_the_limit(make_job):
    def memory(role, at_s):
        assert role is Role.WORKER or at_s < 30, "it was killed before the second regular forecast"
        return 200.0 + 10 * at_s if role is Role.PS else 300.0

    bounds = PlanBounds(1, 1, (0.5,), (0.25,))
    job = make_job(memory=memory, n_sample_total=40_000_000, mode=Mode.AUTO, bounds=bounds)
    while job.plan.ps.memory_mib == 512:
        job.train(1)
    assert job.view.proposals[-1].kind is ProposalKind.PROTECT


@pytest.mark.more
def test_a_climb_that_begins_late_is_met_between_two_regular_forecasts(make_job):
    began_s, plan = 1500.0, make_job().spec.plan

    def memory(role, at_s):
        assert role is Role.WORKER or at_s < began_s + 150, "it was killed"
        return 212.0 + 2 * max(0.0, at_s - began_s) if role is Role.PS else 300.0

    bounds = PlanBounds(1, 1, (plan.worker.cpu,), (plan.ps.cpu,))
    job = make_job(memory=memory, n_sample_total=400_000_000, mode=Mode.AUTO, bounds=bounds)
    while job.plan.ps.memory_mib == 512:
        job.train(10)
    assert job.at_s > began_s


def test_steady_memory_is_left_alone(make_job):
    def memory(role, at_s):
        return 250.0 + 3 * ((at_s * 7) % 5)

    job = make_job(memory=memory)
    job.train(300)
    assert all(p.kind is not ProposalKind.PROTECT for p in job.view.proposals)


def test_users_plan_below_what_killed_a_node_is_warned_of(job, words):
    job.train(30)
    job.kill(Role.PS, 512)
    plan = replace(job.plan, ps=replace(job.plan.ps, memory_mib=256))
    assert scales(job.decide(Verdict.SCALE, plan=plan)) == [plan]
    assert next(line for line in job.view.story if "a ps 256 MiB" in line) == words


@pytest.mark.more
@pytest.mark.parametrize("mode", list(Mode))
def test_kills_are_replayed(make_job, mode):
    job = make_job(mode=mode)
    job.train(20)
    job.kill(Role.PS)
    job.train(40)
    job.kill(Role.WORKER, 1100.0)
    job.train(40)
    again = replay(job.journal)
    assert again.view() == job.view
    assert again.story() == job.controller.story()
    assert isinstance(job.view.decisions, tuple)
    assert all(isinstance(d, Decision) for d in job.view.decisions)
