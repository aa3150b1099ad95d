"""Auto mode over the life of a job: it settles, keeps within its limits, and tells why it waits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.plans.replayed import replay

from dlrover_nb.core.controller.auto_policy import AutoSettings
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.structs.decisions.actions import ActionChoice, KillRestart
from dlrover_nb.core.structs.decisions.decisions import (
    Decision,
    Proposal,
    ProposalKind,
    ProposalStatus,
    Verdict,
)
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import Role, RolePlan
from dlrover_nb.core.structs.views.events import MitigationEnded, PlanApplied, PlanFailed, Remember, Scale


def scales(orders):
    return [o.target for o in orders if isinstance(o, Scale)]


def noisy(cv: float, seed: int, speed):
    rng = np.random.default_rng(seed)
    return lambda plan: speed(plan) * float(rng.lognormal(0, cv))


@pytest.mark.more
@pytest.mark.parametrize("seed", range(4))
def test_two_plans_that_are_nearly_equal_are_not_flapped_between(make_job, seed):
    bounds = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.25,))
    speed = noisy(0.12, seed, lambda plan: 40_000 * (1 + 0.06 * (plan.worker.count - 1)))
    job = make_job(mode=Mode.AUTO, bounds=bounds, speed=speed, n_sample_total=10**9)
    orders = job.train(900)
    plans = [job.spec.plan, *scales(orders)]
    assert all(a != b for a, b in pairwise(plans))
    assert len(plans) <= 4


@pytest.mark.parametrize(("slower", "n_change"), [(0.85, 0), (0.6, 1)])
def test_plan_that_the_user_left_is_returned_to_only_for_a_large_gain(make_job, slower, n_change):
    bounds = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.25,))
    own = make_job().spec.plan
    first = replace(own, worker=replace(own.worker, count=2))
    job = make_job(plan=first, bounds=bounds, speed=lambda plan: 40_000 * slower ** (2 - plan.worker.count))
    job.train(30)
    job.obey(job.decide(Verdict.SCALE, plan=own))
    job.obey(job.decide(Verdict.MODE, mode=Mode.AUTO))
    assert len(scales(job.train(120))) == n_change


def measured_long_before_the_cool_down(make_job, **fields):
    return make_job(settings=ControllerSettings(cool_down_s=60.0), n_sample_total=10**9, **fields)


def test_auto_mode_changes_again_as_soon_as_the_cool_down_is_over(make_job, kinds):
    job = measured_long_before_the_cool_down(make_job, mode=Mode.AUTO)
    decided = [decision.at_s for decision in kinds(job.train(200), Decision)]
    applied = [marker.at_s for marker in job.view.markers]
    assert len(decided) >= 3
    assert [at_s - since_s for since_s, at_s in zip(applied, decided, strict=False)] == [60.0] * len(decided)
    assert not any("too recent" in line for line in job.view.story), "it ends soon, and hides other lines"


def apply(job, plan):
    job.obey(job.decide(Verdict.SCALE, plan=plan))


def give_up(job, plan):
    job.decide(Verdict.SCALE, plan=plan)
    job.at_s += 5.0
    job.tell(PlanFailed(job.at_s, plan, "no node came up"))


def take_what_was_not_ordered(job, plan):
    job.plan = plan
    job.tell(PlanApplied(job.at_s, plan, 0.0))


@pytest.mark.parametrize("change", [apply, give_up, take_what_was_not_ordered])
def test_auto_mode_waits_as_long_after_a_change_that_was_not_its_own(make_job, kinds, change):
    job = measured_long_before_the_cool_down(make_job, mode=Mode.AUTO)
    job.train(50)
    assert job.open is not None
    change(job, replace(job.plan, worker=replace(job.plan.worker, count=3)))
    changed_at_s = job.at_s
    first = kinds(job.train(100), Decision)[0]
    assert (first.by, first.at_s) == ("auto", changed_at_s + 60.0)


def test_auto_mode_accepts_what_was_shown_to_the_user_only_after_the_cool_down(make_job, kinds):
    job = measured_long_before_the_cool_down(make_job)
    job.train(50)
    shown = job.open
    switched = job.decide(Verdict.MODE, mode=Mode.AUTO)
    assert [decision.by for decision in kinds(switched, Decision)] == ["ada"]
    first = kinds(job.train(30), Decision)[0]
    assert (first.proposal, first.at_s) == (shown.id, 60.0)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(2))
def test_auto_mode_settles_on_a_noisy_job(make_job, seed):
    truth = make_job().speed
    job = make_job(mode=Mode.AUTO, speed=noisy(0.08, seed, truth), n_sample_total=10**9)
    job.train(400)
    orders = job.train(800)
    assert len(scales(orders)) <= 4
    assert truth(job.plan) > 2.5 * truth(job.spec.plan)


def test_auto_mode_stays_within_the_budget_and_still_improves(make_job):
    budget = 0.06
    job = make_job(mode=Mode.AUTO, budget_per_hour=budget)
    job.train(400)
    costs = {p.candidate.plan: p.candidate.cost_per_hour for p in job.view.proposals}
    applied = [m.plan for m in job.view.markers[1:]]
    assert applied
    assert all(costs[plan] <= budget for plan in applied)
    assert job.speed(job.plan) > 1.2 * job.speed(job.spec.plan)


def test_with_a_budget_and_an_unknown_price_auto_mode_applies_nothing(make_job):
    job = make_job(mode=Mode.AUTO, budget_per_hour=5.0, prices=PriceTable(cpu_hour=None))
    assert scales(job.train(120)) == []


def test_suggest_mode_shows_what_exceeds_the_budget_with_a_note(make_job):
    job = make_job(budget_per_hour=0.02)
    job.train(30)
    assert f"{job.open.candidate.cost_per_hour:.4g} USD" in job.open.note


def test_proposal_over_the_budget_gives_way_when_auto_mode_takes_over(make_job, words):
    job = make_job(budget_per_hour=0.045)
    job.train(30)
    job.decide(Verdict.SCALE, plan=replace(job.plan, worker=RolePlan(2, 0.5, 1024)))
    job.apply(replace(job.plan, worker=RolePlan(2, 0.5, 1024)))
    job.train(40)
    shown = job.open
    assert "the budget is 0.045" in shown.note
    job.obey(job.decide(Verdict.MODE, mode=Mode.AUTO))
    job.train(60)
    after = next(p for p in job.view.proposals if p.id == shown.id)
    assert after.status is ProposalStatus.SUPERSEDED
    assert after.note == words
    assert shown.candidate.plan not in [m.plan for m in job.view.markers]


@pytest.mark.more
def test_auto_mode_waits_after_predictions_missed_and_tells_it_once(make_job, words):
    """The first two changes of the user's turn out far from what was predicted."""
    swing = {1: 1.0, 2: 0.35, 3: 3.0}

    def speed(plan):
        return 40_000 * swing.get(plan.worker.count, 1.0) * plan.worker.cpu

    job = make_job(speed=speed, n_sample_total=10**9)
    job.train(30)
    for count in (2, 3):
        plan = replace(job.plan, worker=replace(job.plan.worker, count=count))
        job.obey(job.decide(Verdict.SCALE, plan=plan))
        job.train(40)
    assert [o.inside_band for o in job.view.outcomes] == [False, False]
    job.obey(job.decide(Verdict.MODE, mode=Mode.AUTO))
    orders = job.train(200)
    assert scales(orders) == []
    assert job.open is not None
    assert job.open.note == words
    assert sum("predictions were outside" in line for line in job.view.story) == 1
    noted = [o for o in orders if isinstance(o, Remember) and isinstance(o.record, Proposal)]
    assert len(noted) <= 2  # when proposed, and when it was told why it waits


def test_waiting_proposal_is_still_the_users_to_accept(make_job):
    job = make_job(mode=Mode.AUTO, budget_per_hour=0.0001)
    job.kill()
    job.train(30)
    job.kill()
    shown = job.open
    assert shown.kind is ProposalKind.PROTECT
    orders = job.decide(Verdict.ACCEPT, proposal=shown.id)
    assert scales(orders) == [shown.candidate.plan]


def test_changes_per_hour_are_kept(make_job, words):
    settings = ControllerSettings(auto=AutoSettings(max_changes_per_hour=2))
    job = make_job(mode=Mode.AUTO, settings=settings, n_sample_total=10**9)
    orders = job.train(400)
    assert len(scales(orders)) == 2
    assert job.open is not None
    assert job.open.note == words


def test_every_decision_of_auto_mode_follows_from_the_journal(make_job):
    job = make_job(mode=Mode.AUTO, speed=noisy(0.05, 1, make_job().speed), budget_per_hour=0.07)
    job.train(120)
    job.kill()
    job.train(120)
    again = replay(job.journal, job.settings)
    assert again.view() == job.view
    assert any(d.by == "auto" for d in again.view().decisions)


def test_auto_decision_gives_the_reason_of_its_proposal(make_job, kinds):
    job = make_job(mode=Mode.AUTO)
    decision = kinds(job.train(60), Decision)[0]
    assert decision.why == job.view.proposals[0].why


def test_auto_mode_changes_no_plan_while_an_action_against_stragglers_is_under_way(make_job):
    job = make_job(mode=Mode.AUTO, n_sample_total=10**9)
    job.train(5)
    job.decide(Verdict.MITIGATE, action=ActionChoice.of(KillRestart("w0", Role.WORKER)))
    assert scales(job.train(60)) == []
    assert job.open is not None, "plans are proposed meanwhile"
    assert scales(job.tell(MitigationEnded(job.at_s, "d1"))) == [job.view.proposals[-1].candidate.plan]
