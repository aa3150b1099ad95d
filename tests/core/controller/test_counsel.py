"""What a controller says when it is asked: the same as it would do, and asking changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlrover_nb.core.controller import replay
from dlrover_nb.core.errors import CapacityError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions import Decision, Verdict
from dlrover_nb.core.structs.events import Decided, PhaseChanged
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.resources import Pins, ResourcePlan, RolePlan

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


@pytest.mark.parametrize("stage", ["new", "training", "under way", "pinned", "evaluating", "over"])
def test_a_refusal_is_empty_exactly_when_the_controller_takes_the_plan(stage, job):
    journal = journal_of(stage, job)

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(plan=PLANS)
    def law(plan):
        controller = replay(journal)
        assert controller.counsel().refusal(plan) == answer(controller, job.at_s, plan)

    law()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans=st.lists(PLANS, max_size=3))
def test_asking_changes_nothing(plans, job):
    if job.at_s == 0:
        job.train(20)
    before, n_fit = job.view, job.controller._helm.advisor.n_fit
    counsel = job.controller.counsel()
    assert len(counsel.weigh(plans)) == len(plans)
    counsel.explain(None)
    assert job.view == before
    assert job.controller._helm.advisor.n_fit == n_fit


def test_a_weighed_plan_is_what_the_front_says_of_it(job):
    job.train(20)
    shown = job.view.front.candidates
    weighed = job.controller.counsel().weigh([c.plan for c in shown])
    assert [w.candidate for w in weighed] == list(shown)


def test_before_anything_is_measured_only_the_refusal_is_known(job):
    told, refused = job.controller.counsel().weigh([TWO, replace(TWO, worker=RolePlan(9, 1.0, 1024))])
    assert (told.candidate, told.refusal) == (None, "")
    assert "must fit on the machines" in refused.refusal


def test_an_explanation_is_of_the_open_proposal_unless_another_is_named(job):
    job.train(20)
    first = job.open
    assert job.controller.counsel().explain(None).proposal == first.id
    job.decide(Verdict.REJECT, proposal=first.id)
    job.train(20)
    told = job.controller.counsel().explain(first.id)
    assert (told.proposal, told.plan, told.candidate) == (first.id, first.candidate.plan, first.candidate)


def test_an_unknown_proposal_is_answered_with_those_near_it(job):
    job.train(20)
    with pytest.raises(NotFoundError, match="no proposal 'p11'; near it are p1"):
        job.controller.counsel().explain("p11")


def test_an_unknown_proposal_of_a_job_without_any_says_so(job):
    with pytest.raises(NotFoundError, match="it has had none yet"):
        job.controller.counsel().explain("p1")
