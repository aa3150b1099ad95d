"""The controller of a job that waits in the queue of its cluster."""

from __future__ import annotations

import pytest
from support.plans.restarted_controller import difference, restarted

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.errors import StaleDecisionError
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, FixedRole
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Admission
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.queued_jobs import NO_BRAIN, QueuePlace, WaitingOffer
from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import (
    Decided,
    JobSubmitted,
    PhaseChanged,
    PlanApplied,
    QuotaChanged,
    Scale,
    Ticked,
)

ASKED = ResourcePlan(RolePlan(2, 0.5, 1024), RolePlan(1, 0.25, 512))
PART = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.25, 512))
SECOND = QueuePlace(2, 3, "it needs 2 cores", 60.0)


@pytest.fixture
def controller() -> Controller:
    spec = JobSpec("ads", owner="ada", plan=ASKED, admission=Admission.QUEUE, deadline_s=100.0, priority=2.0)
    made = Controller(JobSubmitted(0.0, spec, Capacity((NodeShape(2.0, 8000),)), 9000, 100_000, 16))
    made.handle(PhaseChanged(0.0, JobPhase.STARTING))
    return made


def told(at_s: float, term: int = 1, **fields) -> QuotaChanged:
    return QuotaChanged(at_s, Quota(), "its turn", "one", term, 30.0, **fields)


def test_it_says_what_it_asks_for(controller):
    controller.handle(Ticked(40.0))
    asked = controller.queries().offer()
    assert isinstance(asked, WaitingOffer)
    assert (asked.job, asked.plan, asked.since_s, asked.n_sample) == ("ads", ASKED, 0.0, 9000)
    assert (asked.deadline_left_s, asked.priority, asked.lasts_s) == (60.0, 2.0, None)
    assert controller.view().queue == NO_BRAIN


def test_an_external_job_says_its_fixed_nodes_and_how_long_its_last_run_took():
    program = ExternalRole(("run",))
    foreign = ExternalSpec(program, 6000, ps=program, roles=(FixedRole("evaluator", ("run",), 1, 0.5, 256),))
    spec = JobSpec("ads", plan=ASKED, foreign=foreign, admission=Admission.QUEUE)
    room = Capacity((NodeShape(2.0, 8000),))
    made = Controller(JobSubmitted(0.0, spec, room, 6000, 1, 1, usual_samples_per_s=20.0))
    made.handle(PhaseChanged(0.0, JobPhase.STARTING))
    asked = made.queries().offer()
    assert (asked.beside, asked.lasts_s) == (((0.5, 256),), 300.0)
    assert asked.needs(PART) == [Need(0.5, 1024), Need(0.25, 512), Need(0.5, 256)]


def test_its_place_is_told_once_and_lapses_with_its_brain(controller, words):
    assert controller.handle(told(1.0, queue=SECOND)) == ()
    controller.handle(told(2.0, queue=SECOND))
    assert controller.view().queue == SECOND
    assert [line for line in controller.story() if "place 2 of 3" in line] == [controller.story()[-1]]
    controller.handle(Ticked(40.0))
    assert controller.view().queue.words == words


@pytest.mark.parametrize("plan", [PART, ASKED])
def test_admission_orders_the_plan_and_ends_the_wait(controller, plan):
    assert controller.handle(told(3.0, admit=plan)) == (Scale("", plan),)
    assert controller.view().queue is None
    controller.handle(PlanApplied(5.0, plan, 0.0))
    assert [marker.plan for marker in controller.view().markers] == [plan]
    assert controller.handle(told(6.0, admit=ASKED)) == (), "it is admitted once"
    with pytest.raises(StaleDecisionError, match="term 1 or later"):
        controller.handle(told(7.0, term=0))


@pytest.mark.parametrize("plan", [PART, ASKED])
def test_a_users_plan_admits_it_and_other_decisions_wait(controller, plan):
    orders = controller.handle(Decided(1.0, Decision(Verdict.SCALE, "ada", 1.0, plan=plan)))
    assert [order.target for order in orders if isinstance(order, Scale)] == [plan]
    assert controller.view().queue is None
    controller.handle(PlanApplied(5.0, plan, 0.0))
    assert controller.view().under_way == ""


def test_what_it_was_told_outlives_its_master(controller):
    controller.handle(told(1.0, queue=SECOND))
    again = restarted(controller)
    assert difference(controller.view(), again.view()) == ""
    assert again.handle(told(3.0, admit=PART)) == controller.handle(told(3.0, admit=PART))


def test_a_job_that_ended_stands_in_no_queue(controller):
    controller.handle(told(1.0, queue=SECOND))
    controller.handle(PhaseChanged(2.0, JobPhase.STOPPED, "stopped by ada"))
    assert controller.view().queue is None
