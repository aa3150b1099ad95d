"""What a controller says when it is asked: the same as it would do, and asking changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plans.replayed import replay

from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.errors import CapacityError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import Decided, PhaseChanged

REFUSED = (StaleDecisionError, InvalidValueError, CapacityError)
PLANS = st.builds(
    ResourcePlan,
    worker=st.builds(
        RolePlan, st.integers(1, 5), st.sampled_from([0.25, 0.5, 1.0, 3.0]), st.sampled_from([512, 1024])
    ),
    ps=st.builds(RolePlan, st.integers(1, 3), st.sampled_from([0.25, 0.5]), st.sampled_from([512, 9000])),
)
TWO = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(1, 0.25, 512))


def journal_of(stage: str, job) -> list:
    """Bring a job into a state in which different things are refused; return what its controller heard."""
    if stage != "new":
        job.train(20)
    if stage == "under way":
        job.decide(Verdict.SCALE, plan=TWO)
    if stage == "pinned":
        job.decide(Verdict.PIN, pins=Pins(workers=2))
    if stage == "evaluating":
        job.tell(PhaseChanged(job.at_s, JobPhase.EVALUATING))
    if stage == "over":
        job.tell(PhaseChanged(job.at_s, JobPhase.SUCCEEDED))
    return job.journal


def answer(controller, at_s: float, plan: ResourcePlan) -> str:
    """Hand the plan in; return why it is refused, empty where it is not."""
    try:
        controller.handle(Decided(at_s, Decision(Verdict.SCALE, "ada", at_s, plan=plan)))
    except REFUSED as error:
        return str(error)
    return ""


@pytest.mark.release_variants("evaluating", "over", "pinned", "training", "under way")
@pytest.mark.parametrize("stage", ["new", "training", "under way", "pinned", "evaluating", "over"])
def test_a_refusal_is_empty_exactly_when_the_controller_takes_the_plan(stage, job):
    journal = journal_of(stage, job)

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(plan=PLANS)
    def law(plan):
        controller = replay(journal)
        assert controller.queries().refusal(plan) == answer(controller, job.at_s, plan)

    law()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans=st.lists(PLANS, max_size=3))
def test_asking_changes_nothing(plans, job):
    if job.at_s == 0:
        job.train(20)
    before, n_fit = job.view, job.n_fit
    queries = job.controller.queries()
    assert len(queries.weigh(plans)) == len(plans)
    queries.explain(None)
    assert job.view == before
    assert job.n_fit == n_fit


def test_a_weighed_plan_is_what_the_front_says_of_it(job):
    job.train(20)
    shown = job.view.front.candidates
    weighed = job.controller.queries().weigh([c.plan for c in shown])
    assert [w.candidate for w in weighed] == list(shown)


def test_before_anything_is_measured_only_the_refusal_is_known(job, words):
    told, refused = job.controller.queries().weigh([TWO, replace(TWO, worker=RolePlan(9, 1.0, 1024))])
    assert (told.candidate, told.refusal) == (None, "")
    assert refused.refusal == words


def test_an_explanation_is_of_the_open_proposal_unless_another_is_named(job):
    job.train(20)
    first = job.open
    assert job.controller.queries().explain(None).proposal == first.id
    job.decide(Verdict.REJECT, proposal=first.id)
    job.train(20)
    told = job.controller.queries().explain(first.id)
    assert (told.proposal, told.plan) == (first.id, first.candidate.plan)


def why(job) -> str:
    return job.controller.queries().explain(None).why


def test_a_job_that_was_measured_too_little_says_what_it_waits_for(job, words):
    job.train(6)
    assert why(job) == words
    assert "5 in a row" in why(job)


def test_near_the_end_it_is_said_that_no_change_would_pay_off(make_job, words):
    job = make_job(n_sample_total=42_667 * 30)
    job.train(29)
    assert why(job) == words


def test_what_stands_against_any_proposal_is_told(job, words):
    job.train(20)
    job.decide(Verdict.MODE, mode=Mode.MANUAL)
    assert "manual mode" in why(job)
    assert "mode clicks suggest" in why(job)
    job.decide(Verdict.MODE, mode=Mode.SUGGEST)
    job.decide(Verdict.SCALE, plan=TWO)
    assert why(job) == words
    job.tell(PhaseChanged(job.at_s, JobPhase.BLOCKED))
    assert why(job) == words
    job.tell(PhaseChanged(job.at_s, JobPhase.SUCCEEDED))
    assert why(job) == words


def test_where_nothing_is_better_the_nearest_flip_and_the_next_best_plan_are_told(make_job, words):
    bounds = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.25,))
    job = make_job(bounds=bounds, speed=lambda plan: 40_000 * (1 + 0.06 * (plan.worker.count - 1)))
    job.train(30)
    job.obey(job.decide(Verdict.SCALE, plan=TWO))
    job.train(30)
    undone = replace(job.view.undo, by="ada", at_s=job.at_s)
    job.obey(job.tell(Decided(job.at_s, undone)))
    job.train(30)
    told = job.controller.queries().explain(None)
    assert told.proposal is None
    assert told.why == words
    assert (told.runner_up.plan, told.runner_up_why) == (TWO, words)
    assert [m.plan for m in told.evidence] == [job.spec.plan, TWO]


def test_a_closed_proposal_is_told_as_it_was_with_what_became_of_it(job, words):
    job.train(20)
    first = job.open
    job.decide(Verdict.REJECT, proposal=first.id, why="not now")
    job.train(5)
    told = job.controller.queries().explain(first.id)
    assert (told.candidate, told.baseline) == (first.candidate, first.baseline)
    assert told.why.startswith(first.why)
    assert told.why.removeprefix(first.why) == words
    assert told.marginals


def test_marginals_of_an_explanation_are_what_weighing_says(job):
    job.train(60)
    queries = job.controller.queries()
    told = queries.explain(None)
    base = queries.weigh([told.plan])[0].candidate
    again = queries.weigh([m.weighed.plan for m in told.marginals])
    assert [m.weighed.refusal for m in told.marginals] == [w.refusal for w in again]
    gains = [w.candidate.prediction.samples_per_s - base.prediction.samples_per_s for w in again]
    assert [m.samples_per_s for m in told.marginals] == pytest.approx(gains)


def test_what_stands_in_the_way_of_any_change_is_not_said_of_the_runner_up(job):
    job.train(30)
    job.tell(PhaseChanged(job.at_s, JobPhase.EVALUATING))
    told = job.controller.queries().explain(None)
    assert "finished training" in told.marginals[0].weighed.refusal
    assert "finished training" not in told.runner_up_why


def test_when_the_job_is_over_nothing_else_is_suggested(job):
    job.train(30)
    job.tell(PhaseChanged(job.at_s, JobPhase.SUCCEEDED))
    told = job.controller.queries().explain(None)
    assert (told.runner_up, told.probe, told.flip) == (None, None, None)
    assert told.evidence
    assert told.marginals


def test_an_unknown_proposal_is_answered_with_those_near_it(job, error_words):
    job.train(20)
    with error_words(NotFoundError):
        job.controller.queries().explain("p11")


def test_an_unknown_proposal_of_a_job_without_any_says_so(job):
    with pytest.raises(NotFoundError, match="there are none yet"):
        job.controller.queries().explain("p1")


@pytest.mark.more
@pytest.mark.parametrize(("mode", "waits"), [(Mode.MANUAL, True), (Mode.SUGGEST, False)])
def test_in_manual_mode_analyses_may_be_published_less_often_but_a_change_is_shown_at_once(
    make_job, mode, waits
):
    eager, lazy = (
        make_job(mode=mode, settings=ControllerSettings(manual_publish_s=wait_s))
        for wait_s in (0.0, 10_000.0)
    )
    for job in (eager, lazy):
        job.train(20)
        assert job.view.fit is not None  # the first is published
        job.train(200)
    assert (lazy.view.fit.n_sample < eager.view.fit.n_sample) is waits
    lazy.obey(lazy.decide(Verdict.SCALE, plan=TWO))
    lazy.train(20)
    assert lazy.view.front.current.plan == TWO
    assert replay(lazy.journal, lazy.settings).view() == lazy.view
