from __future__ import annotations

from dataclasses import replace

import pytest

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.planner.advising.improvement import advise
from dlrover_nb.core.planner.analysis import analyse
from dlrover_nb.core.planner.predictions.transitions import transition_kind, transition_s
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan, diff
from dlrover_nb.core.structs.training.samples import ProfileSample
from dlrover_nb.core.structs.views.past_jobs import TransitionKind

NOW = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.5, 512))
TWO = replace(NOW, worker=RolePlan(2, 0.5, 1024))


def seen(plan: ResourcePlan, speed: float, n: int = 5) -> tuple[ProfileSample, ...]:
    return tuple(ProfileSample(float(i), 2.0, plan, 512, speed) for i in range(n))


def situation(samples, **changes) -> Situation:
    base = Situation(
        spec=JobSpec("x"),
        capacity=Capacity((NodeShape(4, 16_000),)),
        dense_bytes=100_000,
        embedding_dim=16,
        plan=NOW,
        samples=samples,
        n_sample_left=10_000_000,
    )
    return replace(base, **changes)


def advice(analysis, *, rejected_plans=None, may_explore=True):
    return advise(analysis, PlannerSettings(), rejected_plans=rejected_plans or {}, may_explore=may_explore)


def test_with_one_plan_nothing_but_an_experiment_is_advised(words):
    analysis = analyse(situation(seen(NOW, 10_000)))
    found = advice(analysis)
    assert found.kind is ProposalKind.EXPLORE
    assert found.why == words
    assert advice(analysis, may_explore=False) is None


def test_experiment_at_most_doubles_or_halves_a_number():
    plan = advice(analyse(situation(seen(NOW, 10_000)))).candidate.plan
    factors = (plan.worker.count, plan.ps.count, plan.worker.cpu / 0.5, plan.ps.cpu / 0.5)
    assert max(factors) <= 2
    assert min(factors) >= 0.5
    assert factors != (1, 1, 1, 1)


def test_measured_better_plan_is_advised_as_an_improvement():
    found = advice(analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000))))
    assert found.kind is ProposalKind.IMPROVE
    assert found.candidate.prediction.low >= 11_000


def test_much_cheaper_plan_of_equal_speed_is_advised():
    samples = seen(TWO, 10_000) + seen(NOW, 10_050)
    bounds = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.5,))
    found = advice(analyse(situation(samples, plan=TWO, spec=JobSpec("x", bounds=bounds))))
    assert found.candidate.plan == NOW


def test_barred_plan_comes_back_only_when_its_prediction_changed_materially():
    bounds = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.5,))
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000), spec=JobSpec("x", bounds=bounds)))
    assert advice(analysis, rejected_plans={TWO: 18_500.0}) is None
    assert advice(analysis, rejected_plans={TWO: float("nan")}) is None
    assert advice(analysis, rejected_plans={TWO: 12_000.0}).candidate.plan == TWO


def test_nothing_is_advised_shortly_before_the_end():
    assert advice(analyse(situation(seen(NOW, 10_000), n_sample_left=50_000))) is None


def test_candidates_are_complete():
    analysis = analyse(situation(seen(NOW, 10_000) + seen(TWO, 19_000), pauses=(("moves seamless", 3.0),)))
    for c in analysis.front.candidates:
        assert c.scale == diff(NOW, c.plan)
        assert sum(t.share for t in c.breakdown) == pytest.approx(1)
        assert c.finish_s == pytest.approx(10_000_000 / c.prediction.samples_per_s + c.transition_s)
        assert c.cost_per_million == pytest.approx(c.cost_per_hour / 3.6e-3 / c.prediction.samples_per_s)
        assert c.reason.endswith(".")
        lost = c.transition_s * 10_000 / min(10_000_000 / c.prediction.samples_per_s, 3600)
        assert c.gain_samples_per_s == pytest.approx(c.prediction.samples_per_s - 10_000 - lost)


def test_every_candidate_fits_and_the_current_plan_is_predicted_as_measured():
    analysis = analyse(situation(seen(NOW, 10_000), capacity=Capacity((NodeShape(1.5, 16_000),))))
    assert all(c.plan.total_cpu <= 1.5 for c in analysis.front.candidates)
    assert analysis.current.prediction.samples_per_s == pytest.approx(10_000)


def test_current_plan_outside_the_bounds_is_still_on_its_curves():
    six = replace(NOW, worker=RolePlan(6, 0.5, 1024))
    spec = JobSpec("x", bounds=PlanBounds(max_workers=4))
    curves = {c.axis: c for c in analyse(situation(seen(six, 30_000), plan=six, spec=spec)).curves}
    assert curves["workers"].x[-1] == 6
    assert curves["workers"].measured_x == (6.0,) * 5
    assert all(len(c.x) == len(c.predictions) and c.at in c.x for c in curves.values())


def test_curve_shows_samples_that_differ_on_its_axis_only():
    curves = {c.axis: c for c in analyse(situation(seen(NOW, 10_000, 1) + seen(TWO, 19_000, 1))).curves}
    assert curves["workers"].measured_x == (1.0, 2.0)
    assert curves["ps"].measured_x == (1.0,)


def test_memory_that_will_not_do_is_raised_in_every_plan():
    analysis = analyse(situation(seen(NOW, 10_000), memory_mib=((Role.PS, 768),)))
    assert {c.plan.ps.memory_mib for c in analysis.front.candidates} == {768}
    assert analysis.current.plan == NOW


def test_machines_that_hold_no_plan_of_the_space_give_an_empty_front():
    analysis = analyse(situation(seen(NOW, 10_000), capacity=Capacity(())))
    assert analysis.front.candidates == ()
    assert advice(analysis) is None


WIDE, FULL = Capacity((NodeShape(4, 16_000),)), Capacity((NodeShape(1.5, 16_000),))
TWO_PS = replace(NOW, ps=RolePlan(2, 0.5, 512))
LARGER_PS = replace(NOW, ps=RolePlan(1, 1.0, 512))


@pytest.mark.parametrize(
    ("plan", "migration", "room", "kind"),
    [
        (TWO, Migration.SEAMLESS, FULL, TransitionKind.WORKERS),
        (TWO_PS, Migration.SEAMLESS, FULL, TransitionKind.MOVES),
        (LARGER_PS, Migration.SEAMLESS, WIDE, TransitionKind.MOVES),
        (LARGER_PS, Migration.SEAMLESS, FULL, TransitionKind.RESTARTS),  # .5 + .5 + 1 cores in 1.5
        (TWO_PS, Migration.RESTART, WIDE, TransitionKind.RESTARTS),
    ],
)
def test_a_change_restarts_ps_by_choice_or_where_old_and_new_find_no_room_together(
    plan, migration, room, kind
):
    assert transition_kind(NOW, plan, migration, room) is kind


def test_transition_costs_what_such_transitions_have_cost():
    pauses = (("moves seamless", 2.0), ("moves seamless", 4.0), ("workers", 0.1))
    asked = situation((), pauses=pauses)
    assert transition_s(TWO_PS, asked) == 3.0
    assert transition_s(NOW, asked) == 0
    restarted = replace(asked, capacity=FULL)
    assert transition_s(LARGER_PS, restarted) > 3.0, "no shorter than one that was measured to be seamless"
    measured = replace(restarted, pauses=(*pauses, ("moves restart", 180.0)))
    assert transition_s(LARGER_PS, measured) == 180.0
    assert transition_s(TWO_PS, measured) == 3.0
    unmeasured, restart = situation(()), situation((), spec=JobSpec("x", migration=Migration.RESTART))
    assert transition_s(TWO, unmeasured) <= transition_s(TWO_PS, unmeasured) < transition_s(TWO_PS, restart)


@pytest.mark.parametrize(("restart_s", "left_s", "is_tried"), [
    (1.0, 11_000.0, True), (300.0, 11_000.0, False), (300.0, 12_000.0, True),
])  # fmt: skip
def test_a_trial_is_made_where_two_of_its_pauses_leave_the_deadline_in_reach(restart_s, left_s, is_tried):
    """10,000 s of training are left, and nothing but PS of another size may be tried."""
    bounds = PlanBounds(max_workers=1, worker_cpus=(0.5,), max_ps=1, ps_cpus=(0.5, 1.0))
    asked = situation(
        seen(NOW, 10_000, 30),
        spec=JobSpec("x", bounds=bounds),
        capacity=FULL,
        pauses=(("moves restart", restart_s),),
        n_sample_left=100_000_000,
        deadline_left_s=left_s,
    )
    assert (advice(analyse(asked)) is not None) is is_tried


def test_no_sample_is_refused():
    with pytest.raises(InvalidValueError, match="sample"):
        analyse(situation(()))
