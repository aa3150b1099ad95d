"""Each policy in place of the planner's own, under the same arbiter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlrover_nb.core.planner.advising.advice import Advice
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import DEFAULT_POLICY, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import Mitigate, Scale


def targets(orders) -> list:
    return [order.target for order in orders if isinstance(order, Scale)]


def test_the_default_of_a_job_is_the_planner():
    assert JobSpec("clicks").policy == DEFAULT_POLICY in POLICIES


def test_elastic_scheduling_adds_one_worker_at_a_time_and_is_rejected_for_good(make_job, words):
    job = make_job(policy=POLICIES["elastic-scheduling"])
    job.train(20)
    assert job.open.why == words
    assert job.open.candidate.plan == replace(job.plan, worker=replace(job.plan.worker, count=2))
    job.decide(Verdict.REJECT, proposal=job.open.id)
    job.train(60)
    assert [p.status for p in job.view.proposals] == [ProposalStatus.REJECTED]


@pytest.mark.more
@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_leaves_the_pins_or_flaps_in_auto_mode(name, make_job):
    job = make_job(policy=POLICIES[name], mode=Mode.AUTO, pins=Pins(ps=1, ps_cpu=0.25))
    plans = targets(job.train(240))
    assert all((plan.ps.count, plan.ps.cpu) == (1, 0.25) for plan in plans)
    assert len(plans) <= 6
    assert bool(plans) == (name not in {"fixed-plan", "qore"}), "qore needs a deadline"


def test_a_policy_of_ones_own_is_asked_and_overruled_by_the_arbiter(make_job):
    def greedy(analysis, settings, context):
        plan = analysis.situation.plan
        more = replace(plan, worker=replace(plan.worker, count=plan.worker.count + 1))
        return Advice(ProposalKind.IMPROVE, analysis.candidate(more), "One more never hurts.")

    dear = make_job(policy=greedy, mode=Mode.AUTO, budget_per_hour=0.0001)
    assert targets(dear.train(60)) == []
    assert "the budget is 0.0001" in dear.open.note
    free = make_job(policy=greedy, mode=Mode.AUTO)
    assert targets(free.train(20))[0].worker.count == 2


def halves(analysis, settings, context):
    """Give half of the workers that report half a batch."""
    workers = sorted(context.worker_samples_per_s)
    batches = tuple((worker, 256) for worker in workers[: len(workers) // 2])
    return Advice(ProposalKind.IMPROVE, analysis.current, "they are slower", batches) if batches else None


def test_batch_sizes_are_ordered_once_and_in_auto_mode_alone(make_job):
    plan = ResourcePlan(RolePlan(2, 0.5, 1024), RolePlan(1, 0.25, 512))
    for mode, n_order in ((Mode.AUTO, 1), (Mode.SUGGEST, 0), (Mode.MANUAL, 0)):
        job = make_job(policy=halves, mode=mode, plan=plan)
        orders = [o for o in job.train(90) if isinstance(o, Mitigate)]
        assert len(orders) == n_order
        assert all(o.choice.by == "auto" and o.choice.sizes == (("w0", 256),) for o in orders)
        assert job.view.proposals == ()


def test_a_proposal_that_a_policy_repeats_stays_open(make_job):
    def slower(analysis, settings, context):
        plan = replace(analysis.situation.plan, ps=replace(analysis.situation.plan.ps, cpu=0.5))
        return Advice(ProposalKind.IMPROVE, analysis.candidate(plan), "For another reason than speed.")

    job = make_job(policy=slower)
    job.train(120)
    assert [p.status for p in job.view.proposals] == [ProposalStatus.PENDING]
