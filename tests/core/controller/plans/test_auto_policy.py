"""When auto mode may act: each rule by itself, without a job around it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.controller.auto_policy import (
    AutoContext,
    AutoSettings,
    Refusal,
    has_missed,
    limits,
    may_apply,
    over_budget,
    track,
)
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.planner.advising.advice import axes_key
from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
from dlrover_nb.core.structs.decisions.decisions import Outcome, Proposal, ProposalKind
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import Pins, Quota
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan, ScalePlan

NOW = ResourcePlan(RolePlan(2, 0.5, 1024), RolePlan(1, 0.5, 512))
MORE = replace(NOW, worker=RolePlan(3, 0.5, 1024))
FAR = replace(NOW, worker=RolePlan(16, 0.5, 1024))
AUTO = AutoSettings()


def candidate(plan=MORE, low=1200.0, cost=1.0) -> Candidate:
    prediction = Prediction(low + 100, low, low + 200, extrapolates=False)
    return Candidate(plan, prediction, cost, cost, None, ScalePlan(), 0, 0, (), "")


def proposal(plan=MORE, kind=ProposalKind.IMPROVE, low=1200.0, cost=1.0) -> Proposal:
    baseline = Candidate(
        NOW, Prediction(1000, 990, 1010, False, 1000, 1000), 1.0, 1.0, None, ScalePlan(), 0, 0, (), ""
    )
    return Proposal("p1", "x", kind, candidate(plan, low, cost), baseline, "", 0.0)


def outcome(measured=1000.0, predicted=1000.0, half=50.0, *, at_s=900.0, extrapolates=True) -> Outcome:
    band = Prediction(predicted, predicted - half, predicted + half, extrapolates)
    return Outcome("d1", NOW, band, measured, None, 5, at_s, 1.0)


RIGHT, WRONG = outcome(), outcome(measured=700.0)


def flight(**changes) -> AutoContext:
    base = AutoContext(
        at_s=1000.0,
        spec=JobSpec("x"),
        pins=Pins(),
        plan=NOW,
        calm_at_s=0.0,
        changes=(),
        left={},
        outcomes=(RIGHT, RIGHT),
    )
    return replace(base, **changes)


def rule(now: AutoContext, asked: Proposal | None = None) -> str | None:
    refusal = may_apply(asked or proposal(), now, AUTO)
    return refusal.rule if refusal else None


def test_an_ordinary_improvement_may_be_applied():
    assert may_apply(proposal(), flight(), AUTO) is None


def test_cool_down_holds_until_it_is_over():
    assert rule(flight(calm_at_s=1000.1)) == "cool-down"
    assert rule(flight(calm_at_s=1000.0)) is None


def test_the_quota_holds_for_all_but_protection():
    tight = flight(quota=Quota(cpu=NOW.total_cpu))
    assert rule(tight) == "quota"
    assert rule(tight, proposal(kind=ProposalKind.PROTECT)) is None
    assert rule(flight(quota=Quota(cpu=MORE.total_cpu, memory_mib=MORE.total_memory_mib))) is None
    assert limits(tight, AUTO).quota == tight.quota


def test_changes_within_an_hour_are_limited():
    n = AUTO.max_changes_per_hour
    recent, old = tuple(range(n)), (-2600.0, *range(1, n))
    assert rule(flight(changes=recent)) == "pace"
    assert rule(flight(changes=(-9000.0, *recent))) == "pace"
    assert rule(flight(changes=recent[1:])) is None
    assert rule(flight(changes=old)) is None


def test_price_above_or_unknown_is_refused_while_a_budget_is_set(words):
    spec = JobSpec("x", budget_per_hour=1.0)
    assert rule(flight(spec=spec), proposal(cost=1.01)) == "budget"
    assert rule(flight(spec=spec), proposal(cost=None)) == "budget"
    assert rule(flight(spec=spec), proposal(cost=1.0)) is None
    assert rule(flight(), proposal(cost=None)) is None
    assert over_budget(1.5, spec) == words


def test_return_takes_a_gain_that_grows_with_each_time_the_plan_was_left():
    for n_left, low, expected in (
        (1, 1240.0, "hysteresis"),
        (1, 1250.0, None),
        (2, 1490.0, "hysteresis"),
        (2, 1500.0, None),
    ):
        assert rule(flight(left={axes_key(MORE): n_left}), proposal(low=low)) == expected


def test_return_is_worth_a_lower_cost_or_the_deadline_too():
    left = flight(left={axes_key(MORE): 1})
    assert rule(left, proposal(low=900.0, cost=0.76)) == "hysteresis"
    assert rule(left, proposal(low=900.0, cost=0.75)) is None
    late = proposal(low=900.0)
    late = replace(late, baseline=replace(late.baseline, in_time=0.1))
    assert rule(left, replace(late, candidate=replace(late.candidate, in_time=0.11))) == "hysteresis"
    assert rule(left, replace(late, candidate=replace(late.candidate, in_time=0.99))) is None


def test_return_to_a_plan_that_a_proposal_replaced_takes_some_gain_of_the_means(words):
    replaced = flight(replaced={axes_key(MORE): 2})
    assert limits(replaced, AUTO).returns == {axes_key(MORE): 2 * AUTO.replaced_gain}
    assert rule(replaced, proposal(low=919.0)) == "hysteresis"
    assert rule(replaced, proposal(low=921.0)) is None
    refusal = may_apply(proposal(low=1000.0), replace(replaced, left={axes_key(MORE): 1}), AUTO)
    assert refusal == Refusal("hysteresis", words)


def test_plan_left_counts_whatever_its_memory():
    other_memory = replace(MORE, ps=replace(MORE.ps, memory_mib=2048))
    assert rule(flight(left={axes_key(MORE): 1}), proposal(other_memory)) == "hysteresis"


def test_gate_closes_when_predictions_missed_and_says_so(words):
    closed = may_apply(proposal(), flight(outcomes=(RIGHT, WRONG, WRONG)), AUTO)
    assert closed == Refusal("calibration", words)
    assert rule(flight(outcomes=(WRONG, RIGHT, RIGHT))) is None


def test_gate_opens_as_outcomes_come_right_or_misses_grow_old():
    missed = (WRONG, WRONG)
    assert rule(flight(outcomes=missed)) == "calibration"
    assert rule(flight(outcomes=(*missed, RIGHT))) == "calibration"
    assert rule(flight(outcomes=(*missed, RIGHT, RIGHT))) is None
    assert rule(flight(outcomes=missed, at_s=WRONG.applied_at_s + AUTO.track_s)) is None


def test_gate_lets_a_plan_pass_that_ran_before_and_counts_no_experiment():
    missed = flight(outcomes=(WRONG, WRONG))
    assert rule(replace(missed, ran={axes_key(NOW)})) == "calibration"
    assert rule(replace(missed, ran={axes_key(MORE)})) is None
    assert rule(replace(missed, experiments={"d2"})) == "calibration"
    assert rule(replace(missed, experiments={WRONG.decision})) is None


@for_each(
    ("seen", "missed"),
    [
        (outcome(1000, 1000, 50), False),
        (outcome(940, 1000, 50), True),
        (outcome(960, 1000, 10), False),  # outside a narrow band by a hair
        (outcome(650, 1000, 400), False),  # an honest "not known" of a plan that nobody had tried
        (outcome(650, 1000, 400, extrapolates=False), True),  # so wide a band within what was tried
        (replace(RIGHT, predicted=None), False),
    ],
)
def test_a_prediction_misses_outside_its_band_or_far_off_where_it_should_know(seen, missed):
    assert has_missed(seen, AUTO) is missed


def test_without_a_track_record_only_small_steps_are_taken():
    assert rule(flight(outcomes=()), proposal(FAR)) == "first steps"
    assert rule(flight(outcomes=(RIGHT,)), proposal(FAR)) == "first steps"
    assert rule(flight(outcomes=(RIGHT, RIGHT)), proposal(FAR)) is None
    assert rule(flight(outcomes=())) is None
    widest = replace(NOW, worker=RolePlan(11, 0.5, 1024))
    assert widest.total_cpu == AUTO.first_step * NOW.total_cpu
    assert rule(flight(outcomes=()), proposal(widest)) is None
    assert rule(flight(outcomes=()), proposal(replace(NOW, worker=RolePlan(12, 0.5, 1024)))) == "first steps"


def test_outcomes_without_prediction_are_no_track_record():
    assert track((replace(RIGHT, predicted=None),) * 5, 1000.0, AUTO).n == 0


@for_each(
    "now",
    [
        {"calm_at_s": 2000.0},
        {"changes": tuple(range(50))},
        {"left": {axes_key(MORE): 3}},
        {"outcomes": (WRONG, WRONG)},
    ],
)
def test_memory_waits_for_nothing_but_budget_and_pins(now):
    asked = proposal(kind=ProposalKind.PROTECT, cost=2.0)
    assert may_apply(asked, flight(**now), AUTO) is None
    assert rule(flight(**now, spec=JobSpec("x", budget_per_hour=1.0)), asked) == "budget"
    assert rule(flight(**now, pins=Pins(workers=2)), asked) == "pins"


def test_what_the_user_pinned_is_carried_out_whatever_the_record():
    assert rule(flight(pins=Pins(workers=3), outcomes=(WRONG, WRONG), calm_at_s=2000.0)) is None


def test_words_do_not_change_while_a_rule_holds():
    first, later = (
        may_apply(proposal(), flight(at_s=at_s, calm_at_s=2000.0), AUTO) for at_s in (1000.0, 1500.0)
    )
    assert first == later


@given(
    cost=st.none() | st.floats(0, 10),
    budget=st.floats(0.1, 10),
    kind=st.sampled_from(ProposalKind),
    n_wrong=st.integers(0, 3),
)
def test_nothing_is_ever_applied_over_the_budget(cost, budget, kind, n_wrong):
    spec = JobSpec("x", budget_per_hour=budget)
    now = flight(spec=spec, outcomes=(WRONG,) * n_wrong)
    if may_apply(proposal(kind=kind, cost=cost), now, AUTO) is None:
        assert cost is not None
        assert cost <= budget


@given(workers=st.integers(1, 8), pinned=st.integers(1, 8), kind=st.sampled_from(ProposalKind))
def test_nothing_is_ever_applied_that_breaks_a_pin(workers, pinned, kind):
    plan = replace(NOW, worker=replace(NOW.worker, count=workers))
    if may_apply(proposal(plan, kind), flight(pins=Pins(workers=pinned)), AUTO) is None:
        assert workers == pinned


def test_limits_of_the_search_are_those_of_the_rules():
    found = limits(
        flight(spec=JobSpec("x", budget_per_hour=2.0), left={axes_key(MORE): 2}, outcomes=()), AUTO
    )
    assert (found.budget_per_hour, found.step, found.min_gain) == (2.0, AUTO.first_step, AUTO.min_gain)
    assert found.returns == {axes_key(MORE): 2 * AUTO.return_gain}


@for_each(
    "wrong",
    [
        {"max_changes_per_hour": 0},
        {"return_gain": -0.1},
        {"track_last": 1, "track_missed": 2},
        {"first_step": 0.5},
        {"large_error": 0.01},
        {"track_s": float("nan")},
    ],
)
def test_senseless_settings_are_refused(wrong):
    with pytest.raises(InvalidValueError):
        AutoSettings(**wrong)


def test_default_prices_are_not_unknown():
    assert over_budget(0.5, JobSpec("x", budget_per_hour=1.0, prices=PriceTable())) == ""
