"""The prediction that a person sees when deciding is the one that is scored, and said afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dlrover_nb.core.structs.decisions.decisions import Outcome, ProposalKind, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.candidates import Prediction

BOUNDS = PlanBounds(max_workers=3, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.25,))
LATE_S = 200  # long enough that the plan that runs is known anew after the job has slowed down


def workers(n: int) -> ResourcePlan:
    return ResourcePlan(RolePlan(n, 0.5, 1024), RolePlan(1, 0.25, 512))


def what_if(job, plan: ResourcePlan) -> Prediction:
    (weighed,) = job.controller.queries().weigh([plan])
    assert weighed.candidate is not None
    return weighed.candidate.prediction


def slowed(make_job, **fields):
    """Return a job with an open proposal, after which everything became slower."""
    job = make_job(**fields)
    job.train(30)
    first = job.speed
    job.speed = lambda plan: 0.6 * first(plan)
    shown = job.open
    job.train(LATE_S)
    assert job.open.id == shown.id
    assert job.open.candidate == shown.candidate  # what a person reads of a proposal does not change
    return job, shown


def outcome_of(job, kinds) -> Outcome:
    return kinds(job.train(30), Outcome)[0]


def test_an_accepted_proposal_is_scored_by_what_it_said_however_old_it_is(make_job, kinds):
    job, shown = slowed(make_job)
    predicted = shown.candidate.prediction
    assert what_if(job, shown.candidate.plan).samples_per_s < 0.8 * predicted.samples_per_s
    job.decide(Verdict.ACCEPT, proposal=shown.id)
    job.apply(shown.candidate.plan)
    outcome = outcome_of(job, kinds)
    assert outcome.predicted == predicted
    assert job.view.markers[-1].predicted == predicted
    line = next(line for line in job.view.story if "d1 reached" in line)
    assert f"predicted {predicted.samples_per_s:,.0f} " in line


def test_a_proposal_accepted_with_other_sizes_is_scored_by_what_a_what_if_said(make_job, kinds):
    job, shown = slowed(make_job)
    other = workers(3) if shown.candidate.plan != workers(3) else workers(2)
    predicted = what_if(job, other)
    job.decide(Verdict.OVERRIDE, proposal=shown.id, plan=other)
    job.apply(other)
    assert outcome_of(job, kinds).predicted == predicted


def test_other_sizes_that_are_those_of_the_proposal_are_scored_by_the_proposal(make_job, kinds):
    job, shown = slowed(make_job)
    job.decide(Verdict.OVERRIDE, proposal=shown.id, plan=shown.candidate.plan)
    job.apply(shown.candidate.plan)
    assert outcome_of(job, kinds).predicted == shown.candidate.prediction


@pytest.mark.parametrize("mode", [Mode.SUGGEST, Mode.MANUAL])
def test_a_plan_of_ones_own_is_scored_by_what_a_what_if_said(make_job, kinds, mode):
    job = make_job(mode=mode, bounds=BOUNDS)
    job.train(47)
    predicted = what_if(job, workers(3))
    job.decide(Verdict.SCALE, plan=workers(3))
    job.apply(workers(3))
    assert outcome_of(job, kinds).predicted == predicted


def test_an_undo_is_scored_by_what_a_what_if_said(make_job, kinds):
    job = make_job(bounds=BOUNDS)
    job.train(30)
    job.decide(Verdict.SCALE, plan=workers(2))
    job.apply(workers(2))
    job.train(30)
    back = job.view.undo
    predicted = what_if(job, back.plan)
    job.decide(Verdict.SCALE, plan=back.plan, undoes=back.undoes)
    job.apply(back.plan)
    assert outcome_of(job, kinds).predicted == predicted


def test_auto_mode_is_scored_by_its_proposals(make_job, kinds):
    job = make_job(mode=Mode.AUTO)
    job.train(300)
    view = job.view
    answered = {d.id: d.proposal for d in view.decisions if d.verdict is Verdict.ACCEPT}
    proposed = {p.id: p.candidate for p in view.proposals}
    outcomes = [o for o in view.outcomes if o.decision in answered]
    assert len(outcomes) > 1
    for outcome in outcomes:
        candidate = proposed[answered[outcome.decision]]
        assert (outcome.plan, outcome.predicted) == (candidate.plan, candidate.prediction)


@pytest.mark.parametrize("policy_speed", [1.0, 3.0])
def test_a_proposal_says_the_same_of_a_plan_as_a_what_if_at_that_moment(make_job, policy_speed):
    """For the whole candidate: speed, band, cost, pause, end and reason; so too the plan that runs."""
    base = make_job()
    job = make_job(speed=lambda plan: policy_speed * base.speed(plan))
    n_seen = 0
    for _ in range(120):
        job.train(1)
        proposal = job.open
        if proposal is None or proposal.created_at_s != job.at_s:
            continue
        n_seen += 1
        plans = [proposal.candidate.plan, proposal.baseline.plan]
        for plan, said in zip(plans, (proposal.candidate, proposal.baseline), strict=True):
            (alone,) = job.controller.queries().weigh([plan])
            assert alone.candidate == said
        among_others = job.controller.queries().weigh(plans)  # alike but for the last bits of sums
        for weighed, said in zip(among_others, (proposal.candidate, proposal.baseline), strict=True):
            assert weighed.candidate.prediction.samples_per_s == pytest.approx(said.prediction.samples_per_s)
        explained = job.controller.queries().explain(proposal.id)
        assert (explained.candidate, explained.baseline) == (proposal.candidate, proposal.baseline)
        job.decide(Verdict.ACCEPT, proposal=proposal.id)
        job.apply(proposal.candidate.plan)
    assert n_seen > 1


# what was refused


def two_plans(make_job, **fields):
    return make_job(bounds=replace(BOUNDS, max_workers=2), **fields)


def refused(job) -> ResourcePlan:
    job.train(30)
    plan = job.open.candidate.plan
    job.decide(Verdict.REJECT, proposal=job.open.id, why="too dear")
    return plan


def scaled(job, factor: float) -> None:
    before = job.speed
    job.speed = lambda plan: factor * before(plan)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_rejected_plan_stays_away_while_nothing_speaks_for_it(make_job, factor):
    job = two_plans(make_job)
    plan = refused(job)
    scaled(job, factor)
    job.train(LATE_S)
    assert [p.candidate.plan for p in job.view.proposals].count(plan) == 1


def test_a_rejected_plan_comes_back_by_better_evidence_and_says_by_which(make_job):
    job = two_plans(make_job)
    plan = refused(job)
    first = job.view.proposals[0]
    scaled(job, 1.6)
    job.train(LATE_S)
    again = job.open
    assert again.candidate.plan == plan
    was = again.returned.refusal
    assert (was.by, was.did, was.at_s) == ("ada", "rejected", job.view.decisions[0].at_s)
    assert was.samples_per_s == first.candidate.prediction.samples_per_s
    assert again.returned.samples_per_s == again.candidate.prediction.samples_per_s > 1.2 * was.samples_per_s
    assert again.why.endswith(again.returned.words)
    for said in ("ada rejected this plan before", f"{was.samples_per_s:,.0f}", "for longer"):
        assert said in again.why
    assert first.returned is None


def test_a_plan_that_was_rejected_and_then_decided_for_is_rejected_no_longer(make_job):
    job = two_plans(make_job)
    plan = refused(job)
    start = job.plan
    job.decide(Verdict.SCALE, plan=plan)
    job.apply(plan)
    job.train(30)
    job.decide(Verdict.SCALE, plan=start)
    job.apply(start)
    job.train(60)
    opened = job.open
    assert opened is not None
    assert (opened.candidate.plan, opened.returned) == (plan, None)


def test_an_undone_plan_comes_back_by_better_evidence_alone(make_job):
    job = two_plans(make_job, speed=lambda plan: 10_000.0 * plan.worker.count**0.5)
    job.train(30)
    plan = job.open.candidate.plan
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.apply(plan)
    job.train(40)
    back = job.view.undo
    job.decide(Verdict.SCALE, plan=back.plan, undoes=back.undoes)
    job.apply(back.plan)
    job.train(LATE_S)
    assert [p.candidate.plan for p in job.view.proposals].count(plan) == 1
    scaled(job, 1.6)
    job.train(LATE_S)
    again = job.open
    assert again.candidate.plan == plan
    assert again.returned.refusal.did == "undid"
    assert again.status is ProposalStatus.PENDING
    assert again.kind is ProposalKind.IMPROVE
