from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plans.replayed import replay

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.errors import CapacityError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.decisions import (
    Decision,
    Outcome,
    Proposal,
    ProposalKind,
    ProposalStatus,
    Verdict,
)
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import (
    Decided,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    Remember,
    Scale,
    Ticked,
)


def bigger(plan: ResourcePlan, workers: int = 1) -> ResourcePlan:
    return replace(plan, worker=replace(plan.worker, count=plan.worker.count + workers))


def test_first_proposal_explores_and_says_that_only_one_plan_is_known(job, words):
    job.train(30)
    assert job.open.kind is ProposalKind.EXPLORE
    assert job.open.why.split(".")[0] == words
    assert job.open.candidate.plan != job.plan


def test_at_most_one_proposal_is_open_and_it_keeps_its_id(job):
    job.train(30)
    first = job.open
    orders = job.train(60)
    assert job.open.id == first.id
    assert not [o for o in orders if isinstance(o, Remember) and isinstance(o.record, Proposal)]


def test_accept_scales_to_the_plan_that_was_shown_and_is_scored_later(job, kinds):
    job.train(30)
    shown = job.open
    orders = job.decide(Verdict.ACCEPT, proposal=shown.id, why="try it")
    assert [o.target for o in orders if isinstance(o, Scale)] == [shown.candidate.plan]
    assert kinds(orders, Decision)[0].id == "d1"
    assert kinds(orders, Proposal)[-1].status is ProposalStatus.APPLYING
    assert kinds(job.apply(shown.candidate.plan), Proposal)[-1].status is ProposalStatus.APPLIED
    outcome = kinds(job.train(30), Outcome)[0]
    assert outcome.decision == "d1"
    assert outcome.inside_band
    assert outcome.measured_samples_per_s == pytest.approx(job.speed(job.plan), rel=0.03)
    assert job.view.markers[-1].predicted == outcome.predicted


@pytest.mark.more
def test_accepting_every_proposal_reaches_nearly_the_best_plan_and_then_is_silent(job):
    for _ in range(12):
        job.train(30)
        if job.open is None:
            break
        job.decide(Verdict.ACCEPT, proposal=job.open.id)
        job.apply(job.view.proposals[-1].candidate.plan)
    best = max(job.speed(c.plan) for c in job.view.front.candidates)
    assert job.speed(job.plan) > 0.85 * best
    assert job.open is None


def test_bands_tighten_as_plans_are_tried(job):
    job.train(30)
    plan = job.open.candidate.plan
    wide = job.open.candidate.prediction.relative_width
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.apply(plan)
    job.train(30)
    assert job.view.front.current.prediction.relative_width < wide / 3


def test_no_equal_plan_is_proposed_again_and_a_slower_trial_is_taken_back(make_job):
    def speed(plan):  # workers only get in each other's way
        return 40_000 / (1 + 0.5 * plan.worker.count)

    bounds = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.25,))
    job = make_job(speed=speed, bounds=bounds)
    job.train(30)
    tried = job.open.candidate.plan
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.apply(tried)
    job.train(40)
    assert job.open.kind is ProposalKind.IMPROVE
    assert job.open.candidate.plan == job.spec.plan
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.apply(job.spec.plan)
    job.train(100)
    assert job.open is None


def test_rejected_plan_is_not_proposed_again(job):
    job.train(30)
    rejected = job.open.candidate.plan
    job.decide(Verdict.REJECT, proposal=job.open.id, why="no")
    job.train(120)
    assert all(p.candidate.plan != rejected for p in job.view.proposals[1:])


def test_experiments_in_a_row_are_limited(make_job):
    job = make_job(settings=ControllerSettings(max_explore=3))
    for _ in range(6):
        job.train(40)
        if job.open is not None:
            job.decide(Verdict.REJECT, proposal=job.open.id)
    assert [p.kind for p in job.view.proposals] == [ProposalKind.EXPLORE] * 3


def test_manual_mode_proposes_nothing_but_shows_the_front(make_job):
    job = make_job(mode=Mode.MANUAL)
    job.train(60)
    assert job.view.proposals == ()
    assert len(job.view.front.candidates) > 3
    assert [c.axis for c in job.view.curves] == ["workers", "ps", "worker_cpu", "ps_cpu"]


def test_switch_to_manual_expires_the_open_proposal(job):
    job.train(30)
    job.decide(Verdict.MODE, mode=Mode.MANUAL)
    assert job.view.mode is Mode.MANUAL
    assert job.view.proposals[0].status is ProposalStatus.EXPIRED


def test_auto_mode_decides_by_itself_and_makes_the_job_faster(make_job, kinds):
    job = make_job(mode=Mode.AUTO)
    orders = job.train(200)
    decisions = kinds(orders, Decision)
    assert decisions
    assert {d.by for d in decisions} == {"auto"}
    assert len([o for o in orders if isinstance(o, Scale)]) == len(decisions)
    assert job.speed(job.plan) > 1.5 * job.speed(job.spec.plan)


def test_no_plan_is_applied_in_suggest_mode_without_a_decision(job):
    assert not [o for o in job.train(200) if isinstance(o, Scale)]


def test_a_decision_during_a_change_replaces_it_and_is_measured_against_what_ran(job):
    job.train(30)
    proposal, ran = job.open, job.plan
    job.decide(Verdict.ACCEPT, proposal=proposal.id)
    replaced = proposal.candidate.plan
    mine = replace(ran, worker=replace(ran.worker, count=replaced.worker.count + 1))
    orders = job.decide(Verdict.SCALE, plan=mine)
    assert [order.target for order in orders if isinstance(order, Scale)] == [mine]
    told = next(p for p in job.view.proposals if p.id == proposal.id)
    assert (told.status, told.note) == (ProposalStatus.FAILED, "ada set another plan")
    assert job.view.under_way == "d2"
    story = job.view.story
    job.tell(PlanFailed(job.at_s, replaced, "a newer decision replaced it"))  # the master says so too
    assert job.view.story == story
    assert job.view.undo.plan == ran
    job.apply(mine)
    assert (job.view.under_way, job.controller.under_way) == ("", None)
    assert job.view.undo.plan == ran


def test_what_is_being_applied_is_not_set_again(job):
    job.train(30)
    job.decide(Verdict.SCALE, plan=bigger(job.plan))
    before = job.view
    with pytest.raises(InvalidValueError, match="being applied already"):
        job.decide(Verdict.SCALE, plan=bigger(job.plan))
    assert job.view == before


def test_accepting_twice_tells_the_story_of_the_proposal(job):
    job.train(30)
    name = job.open.id
    job.decide(Verdict.REJECT, proposal=name, why="too dear")
    with pytest.raises(StaleDecisionError, match="too dear") as caught:
        job.decide(Verdict.ACCEPT, proposal=name)
    assert any("proposed" in line for line in caught.value.story)


def test_invalid_decisions_change_nothing(job):
    job.train(30)
    before, plan = job.view, job.plan
    huge = replace(plan, worker=RolePlan(64, 1.0, 1024))
    for error, verdict, fields in (
        (NotFoundError, Verdict.ACCEPT, {"proposal": "p99"}),
        (NotFoundError, Verdict.ACCEPT, {}),
        (InvalidValueError, Verdict.SCALE, {}),
        (InvalidValueError, Verdict.SCALE, {"plan": plan}),
        (InvalidValueError, Verdict.MODE, {}),
        (InvalidValueError, Verdict.MODE, {"mode": Mode.SUGGEST}),
        (CapacityError, Verdict.SCALE, {"plan": huge}),
        (CapacityError, Verdict.OVERRIDE, {"plan": huge, "proposal": before.proposals[0].id}),
    ):
        with pytest.raises(error):
            job.decide(verdict, **fields)
        assert job.view == before


def test_capacity_error_says_how_many_workers_would_fit(job, error_words):
    job.train(10)
    plan = replace(job.plan, worker=RolePlan(9, 0.5, 1024))
    with error_words(CapacityError) as caught:
        job.decide(Verdict.SCALE, plan=plan)
    assert "3 workers of this" in str(caught.value)


def test_own_plan_may_exceed_the_bounds_but_not_the_machines(make_job):
    job = make_job(bounds=PlanBounds(max_workers=4))
    job.train(20)
    plan = replace(job.plan, worker=RolePlan(6, 0.25, 512))
    orders = job.decide(Verdict.SCALE, plan=plan)
    assert any(isinstance(o, Scale) and o.target == plan for o in orders)
    job.apply(plan)
    job.train(20)
    assert job.view.front.current.plan == plan
    assert job.view.curves[0].x[-1] == 6


def test_override_applies_the_users_plan_under_the_proposals_name(job):
    job.train(30)
    shown, plan = job.open, bigger(job.plan, 2)
    job.decide(Verdict.OVERRIDE, proposal=shown.id, plan=plan)
    job.apply(plan)
    assert job.view.proposals[0].status is ProposalStatus.APPLIED
    assert job.view.markers[-1].plan == plan


def test_scale_expires_the_open_proposal(job):
    job.train(30)
    job.decide(Verdict.SCALE, plan=bigger(job.plan))
    assert job.view.proposals[0].status is ProposalStatus.EXPIRED


def test_failed_plan_is_told_and_never_proposed_again(job):
    job.train(30)
    plan = job.open.candidate.plan
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.tell(PlanFailed(job.at_s, plan, "no room"))
    assert job.view.proposals[0].status is ProposalStatus.FAILED
    assert job.view.proposals[0].note == "no room"
    job.train(120)
    assert all(p.candidate.plan != plan for p in job.view.proposals[1:])
    assert job.open is not None  # others are


def test_end_of_the_job_expires_and_refuses(job):
    job.train(30)
    job.tell(PhaseChanged(job.at_s, JobPhase.SUCCEEDED))
    assert job.view.proposals[0].status is ProposalStatus.EXPIRED
    with pytest.raises(StaleDecisionError, match="succeeded"):
        job.decide(Verdict.ACCEPT, proposal="p1")


@pytest.mark.parametrize(("message", "told"), [("", ""), ("out of memory", ": out of memory")])
def test_the_story_has_each_phase_with_its_reason_if_there_is_one(job, message, told):
    job.tell(PhaseChanged(job.at_s, JobPhase.FAILED, message))
    assert any(line.endswith(f"the job has failed{told}") for line in job.view.story)


def test_plan_changed_by_somebody_else_expires_the_open_proposal(job):
    job.train(30)
    job.apply(bigger(job.plan))
    assert job.view.proposals[0].status is ProposalStatus.EXPIRED


def test_a_replay_begins_with_the_submission(error_words):
    for events in ([], [Ticked(0.0)]):
        with error_words(InvalidValueError):
            replay(events)


def test_a_controller_serves_one_job_and_has_a_view_from_the_start(job, error_words):
    fresh = Controller(job.journal[0])
    assert fresh.view().story
    assert fresh.queries().context.target == job.spec.plan
    assert [order.record for order in fresh.first_orders] == [job.spec]
    before = job.view
    with error_words(InvalidValueError):
        job.controller.handle(job.journal[0])
    assert job.view == before


def test_near_the_end_nothing_is_proposed(make_job):
    job = make_job(n_sample_total=42_667 * 30)
    job.train(29)
    assert job.view.proposals == ()


def test_noisy_machine_is_believed_after_patience(make_job):
    beat = iter(range(100_000))

    def speed(plan):
        return 40_000 * (1 + 0.4 * ((next(beat) * 37 % 11) / 11 - 0.5))

    job = make_job(speed=speed)
    job.train(60)
    assert len(job.view.samples) >= 5
    assert job.view.front.current.prediction.relative_width > 0.15


def test_samples_while_a_change_settles_do_not_count(job):
    job.train(3)
    assert job.view.samples == ()
    job.train(30)
    assert min(s.at_s - s.window_s for s in job.view.samples) >= 3.0


def test_a_job_that_warms_up_is_measured_from_when_it_is_steady(make_job):
    job = make_job(speed=lambda _: 40_000 * (1 - 0.7 ** (job.at_s + 1)))
    job.train(40)
    assert min(s.plan_samples_per_s for s in job.view.samples) > 35_000


def test_missing_worker_stops_the_measurement(job):
    job.train(20)
    n = len(job.view.samples)
    for event in [e for e in job.journal if isinstance(e, NodeReported)][-5:]:
        job.tell(replace(event, at_s=job.at_s + 1, plan=None))
    assert len(job.view.samples) == n


def test_memory_lines_know_their_limits(job):
    job.train(30)
    assert {(line.role, line.limit_mib, line.now_mib) for line in job.view.memory} == {
        ("worker", 1024, 300.0),
        ("ps", 512, 300.0),
    }


def test_view_does_not_depend_on_when_it_was_asked_for(make_job):
    watched, unwatched = make_job(), make_job()
    for _ in range(60):
        watched.train(1)
        watched.view  # noqa: B018 - asking is the point
        unwatched.train(1)
    assert watched.view == unwatched.view


@pytest.mark.more
@pytest.mark.parametrize("mode", list(Mode))
def test_replay_gives_the_identical_view(make_job, mode):
    job = make_job(mode=mode)
    job.train(60)
    if job.open is not None:
        job.decide(Verdict.REJECT, proposal=job.open.id)
    job.train(30)
    if mode is not Mode.AUTO:
        job.decide(Verdict.SCALE, plan=bigger(job.plan))
        job.apply(bigger(job.plan))
    job.train(30)
    assert replay(job.journal).view() == job.view


ACTIONS = st.lists(
    st.sampled_from(
        ["train", "accept", "reject", "override", "scale", "apply", "fail", "auto", "manual", "suggest"]
    ),
    min_size=3,
    max_size=12,
)


def act(job, action: str, pending: list[ResourcePlan]) -> list:
    name = job.open.id if job.open else "p1"
    match action:
        case "train":
            return job.train(16)
        case "accept" | "reject":
            return job.decide(Verdict(action), proposal=name)
        case "override":
            return job.decide(Verdict.OVERRIDE, proposal=name, plan=bigger(job.plan))
        case "scale":
            return job.decide(Verdict.SCALE, plan=bigger(job.spec.plan))
        case "apply" | "fail":
            plan = pending.pop() if pending else job.plan
            failed = PlanFailed(job.at_s, plan, "no room")
            return job.tell(failed) if action == "fail" else job.apply(plan)
        case _:
            return job.decide(Verdict.MODE, mode=Mode(action))


@pytest.mark.more
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS)
def test_whatever_users_do_the_rules_hold(make_job, actions):
    job, pending = make_job(), []
    for action in actions:
        before, orders = job.view, []
        try:
            orders = act(job, action, pending)
        except (StaleDecisionError, InvalidValueError, NotFoundError, CapacityError):
            assert job.view == before
        asked = [o.target for o in orders if isinstance(o, Scale)] if action != "train" else []
        assert len(asked) <= 1
        pending = asked or pending  # a decision may replace a change that is under way
        assert sum(p.status == "pending" for p in job.view.proposals) <= 1
        ids = [d.id for d in job.view.decisions]
        assert ids == [f"d{i + 1}" for i in range(len(ids))]


def test_decision_events_carry_their_time_into_the_history(job, kinds):
    job.train(30)
    decision = kinds(job.decide(Verdict.REJECT, proposal="p1"), Decision)[0]
    assert decision.at_s == job.at_s
    assert isinstance(job.journal[-1], Decided)
    assert isinstance(job.journal[2], PlanApplied)
