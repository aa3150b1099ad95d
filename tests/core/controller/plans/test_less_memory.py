"""Memory that a user asked for and no node will use: it is given back, with a margin, and never too much of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.plans.replayed import replay

from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.events import Scale

TOO_MUCH = ResourcePlan(RolePlan(1, 0.5, 4096), RolePlan(1, 0.25, 3584))
ALONE = PlanBounds(1, 1, (0.5,), (0.25,))
LEAST = 1024


def memory_of(plan):
    return plan.worker.memory_mib, plan.ps.memory_mib


def of(mib):
    """Return a constant use of memory."""
    return lambda *_: mib


def scales(orders):
    return [order.target for order in orders if isinstance(order, Scale)]


@pytest.fixture
def wasteful(make_job):
    """Make a job whose nodes hold 300 MiB each, 100 of it parameters, and have more than ten times as much."""

    def make(**fields):
        given = {"plan": TOO_MUCH, "bounds": ALONE, "parameters": of(100.0)} | fields
        return make_job(**given)

    return make


def test_a_request_far_above_all_use_is_a_proposal_with_its_numbers(wasteful, words):
    job = wasteful()
    job.train(90)
    assert job.open.kind is ProposalKind.IMPROVE
    assert job.open.candidate.plan == replace(
        TOO_MUCH, worker=replace(TOO_MUCH.worker, memory_mib=LEAST), ps=replace(TOO_MUCH.ps, memory_mib=LEAST)
    )
    assert "300 MiB" in job.open.why
    assert job.open.why == words
    assert "1,024 MiB instead of" in job.open.why
    assert job.open.candidate.cost < job.open.baseline.cost


def test_the_front_counts_the_smaller_memory_and_its_price(wasteful):
    job = wasteful()
    job.train(90)
    front = job.view.front
    (best,) = front.candidates
    assert memory_of(best.plan) == (LEAST, LEAST)
    assert best.cost_per_hour < front.current.cost_per_hour


@pytest.mark.more
def test_auto_mode_gives_it_back_once(wasteful):
    job = wasteful(mode=Mode.AUTO)
    targets = scales(job.train(600))
    assert [memory_of(plan) for plan in targets] == [(LEAST, LEAST)]
    assert not any("out of memory" in line for line in job.view.story)


def test_it_comes_with_a_change_that_is_made_anyway(wasteful):
    job = wasteful(mode=Mode.AUTO, bounds=PlanBounds(2, 2, (0.5,), (0.25,)))
    targets = scales(job.train(400))
    changed = [plan for plan in targets if (plan.worker.count, plan.ps.count) != (1, 1)]
    assert memory_of(changed[0])[0] == LEAST
    assert "instead of 4,096" in job.view.proposals[0].why
    assert memory_of(job.plan) == (LEAST, LEAST)


def test_nothing_is_lowered_before_enough_was_measured(wasteful):
    job = wasteful()
    job.train(55)
    assert {memory_of(c.plan) for c in job.view.front.candidates} == {memory_of(TOO_MUCH)}
    late = wasteful(n_sample_total=40 * 10**9)  # a minute of such a job tells little of it
    late.train(120)
    assert late.open is None


@pytest.mark.parametrize(("pause_s", "is_worth_it"), [(1.0, True), (20.0, False)])
def test_a_job_that_is_soon_done_is_not_stopped_for_it(wasteful, pause_s, is_worth_it):
    job = wasteful(n_sample_total=10_000_000, pauses=(("moves seamless", pause_s),))
    job.train(100)
    assert (job.open is not None) is is_worth_it


def test_pinned_memory_stays(wasteful):
    job = wasteful(pins=Pins(worker_memory_mib=4096))
    job.train(90)
    assert memory_of(job.open.candidate.plan) == (4096, LEAST)


def test_memory_of_workers_stays_where_their_batches_grow_as_they_become_fewer(wasteful):
    job = wasteful(global_batch=512)
    job.train(90)
    assert memory_of(job.open.candidate.plan) == (4096, LEAST)


def test_memory_of_parameter_servers_stays_where_they_do_not_tell_their_parameters(wasteful):
    job = wasteful(parameters=of(0.0))
    job.train(90)
    assert memory_of(job.open.candidate.plan) == (LEAST, 3584)


@pytest.mark.more
def test_who_refuses_keeps_the_memory(wasteful):
    job = wasteful()
    job.train(90)
    job.decide(Verdict.REJECT, proposal=job.open.id)
    job.train(600)
    assert job.open is None
    assert {memory_of(c.plan) for c in job.view.front.candidates} == {memory_of(TOO_MUCH)}


def test_who_undoes_it_keeps_the_memory(wasteful):
    job = wasteful(mode=Mode.AUTO)
    while job.plan == TOO_MUCH:
        job.train(10)
    undo = job.view.undo
    job.obey(job.decide(undo.verdict, plan=undo.plan, undoes=undo.undoes))
    assert job.plan == TOO_MUCH
    job.train(600)
    assert job.plan == TOO_MUCH


@pytest.mark.more
def test_after_a_kill_the_memory_stays_for_half_an_hour_and_then_above_what_it_taught(wasteful):
    plan = ResourcePlan(RolePlan(1, 0.5, 2048), RolePlan(1, 0.25, 1024))
    job = wasteful(plan=plan, mode=Mode.AUTO, n_sample_total=400_000_000)
    job.train(40)
    job.kill(Role.WORKER, 1200)
    job.obey(job.decide(Verdict.SCALE, plan=replace(plan, worker=RolePlan(1, 0.5, 6000))))
    killed_s = job.at_s
    while job.at_s < killed_s + 1790:
        job.train(10)
        assert job.plan.worker.memory_mib == 6000
    job.train(1200)
    assert job.plan.worker.memory_mib == 3072  # half as much again as what was too little


def test_fewer_parameter_servers_get_more_memory_each(wasteful):
    plan = replace(TOO_MUCH, ps=RolePlan(2, 0.25, 1920))
    job = wasteful(
        plan=plan,
        bounds=PlanBounds(1, 4, (0.5,), (0.25,)),
        memory=of(1200.0),
        parameters=of(900.0),
    )
    job.train(90)
    by_count = {c.plan.ps.count: c.plan.ps.memory_mib for c in job.view.front.candidates}
    waiting = [p.candidate.plan.ps for p in job.view.proposals if p.status is ProposalStatus.PENDING]
    by_count |= {ps.count: ps.memory_mib for ps in waiting}
    for n, mib in by_count.items():
        assert mib >= 300 + 1800 / n
    assert by_count[1] >= 2100


def test_growth_is_counted_to_the_end_of_the_job(wasteful):
    total = 40_000_000

    def parameters(at_s):
        return 50 + 1.0 * at_s

    job = wasteful(
        mode=Mode.AUTO,
        n_sample_total=total,
        parameters=parameters,
        memory=lambda role, at_s: 200 + (parameters(at_s) if role is Role.PS else 0.0),
    )
    job.train(120)
    speed = job.n_done / job.at_s
    at_end_mib = 200 + parameters(total / speed)
    assert memory_of(job.plan)[0] == LEAST
    assert job.plan.ps.memory_mib >= at_end_mib


@pytest.mark.more
def test_a_waiting_proposal_is_withdrawn_once_its_nodes_would_lack_memory(wasteful):
    began_s = 300.0
    job = wasteful(
        n_sample_total=200_000_000,
        memory=lambda role, at_s: 300 + (3.0 * max(0.0, at_s - began_s) if role is Role.WORKER else 0.0),
    )
    job.train(290)
    waiting = job.open
    assert memory_of(waiting.candidate.plan) == (LEAST, LEAST)
    job.train(600)
    ended = next(p for p in job.view.proposals if p.id == waiting.id)
    assert ended.status in {ProposalStatus.EXPIRED, ProposalStatus.SUPERSEDED}


@pytest.mark.more
def test_what_was_judged_too_little_is_never_taken_back(wasteful):
    leaked_s = 800.0

    def memory(role, at_s):
        leak = 2.0 * at_s if role is Role.WORKER and at_s < leaked_s else 0.0
        return 300.0 + leak

    plan = replace(TOO_MUCH, worker=replace(TOO_MUCH.worker, memory_mib=2048))
    job = wasteful(plan=plan, n_sample_total=200_000_000, memory=memory)
    job.train(int(leaked_s))
    protection = job.open
    assert protection.kind is ProposalKind.PROTECT
    assert protection.candidate.plan.worker.memory_mib > plan.worker.memory_mib
    job.train(900)
    assert job.view.memory_needs == ()
    later = [p for p in job.view.proposals if p.created_at_s > protection.created_at_s]
    assert all(p.candidate.plan.worker.memory_mib >= plan.worker.memory_mib for p in later)
    assert any(p.candidate.plan.ps.memory_mib < TOO_MUCH.ps.memory_mib for p in job.view.proposals)


@pytest.mark.more
@pytest.mark.parametrize("mode", [Mode.SUGGEST, Mode.AUTO])
def test_it_is_replayed(wasteful, mode):
    job = wasteful(mode=mode)
    job.train(200)
    again = replay(job.journal)
    assert again.view() == job.view
    assert again.story() == job.controller.story()
