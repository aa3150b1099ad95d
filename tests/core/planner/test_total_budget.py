"""The rest of a total budget as a constraint of planning, alone and beside a deadline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_deadline import MODELS, PRICES, SPEED, base, chosen, plan

from dlrover_nb.core.planner.advising.advice import Limits
from dlrover_nb.core.planner.advising.explain import binding
from dlrover_nb.core.planner.advising.improvement import LEAST_IN_BUDGET, advise
from dlrover_nb.core.planner.analysis import analyse
from dlrover_nb.core.planner.predictions.budget_forecast import budget_forecast, present_budget
from dlrover_nb.core.structs.job.spec_choices import Objective
from dlrover_nb.core.structs.plan.bounds import Pins, Quota
from dlrover_nb.core.structs.plan.prices import PriceTable

SEEDS, MONEY = st.integers(0, 3), st.floats(0.01, 0.3)


def within(money_left, seed=0, *, left_s=None, **changes):
    """Return the analysis of a job with so much money left, and so many seconds if it has a deadline."""
    s = base(seed, **changes)
    spec = replace(s.spec, budget_total=1000.0)
    return analyse(replace(s, spec=spec, money_left=money_left, deadline_left_s=left_s), model=MODELS[seed])


def cheapest(seed=0):
    """Return the least that the job costs until its end, by the model."""
    return float(within(1.0, seed).end_cost.min())


@settings(deadline=None, max_examples=30)
@given(MONEY, st.floats(0, 0.2), SEEDS)
def test_the_chance_to_end_within_a_budget_grows_with_it_and_is_even_at_the_predicted_cost(left, more, seed):
    few, many = within(left, seed), within(left + more, seed)
    assert (few.in_budget <= many.in_budget + 1e-12).all()
    for row in range(0, len(few.space), 17):
        paid = replace(few.situation, money_left=float(few.end_cost[row])).paid_for(few.cost[row])
        assert paid.left_s == pytest.approx(few.finish_s[row])
    over = few.end_cost > few.situation.money_left
    assert (few.in_budget[over] <= 0.5 + 1e-9).all()
    assert (few.in_budget[~over] >= 0.5 - 1e-9).all()


@settings(deadline=None, max_examples=30)
@given(MONEY, st.floats(100, 1e5), SEEDS)
def test_the_chance_of_both_limits_is_that_of_the_tighter_one(left, left_s, seed):
    both = within(left, seed, left_s=left_s)
    np.testing.assert_array_equal(both.chance, np.minimum(both.in_time, both.in_budget))
    now = both.current
    assert now.chance == min(now.in_time, now.in_budget)


def test_of_the_plans_for_which_the_rest_is_enough_the_cheapest_is_named():
    found, asked = within(0.04), []
    chance, end_cost = np.array([0.2, 0.95, 0.99, 0.92]), np.array([1.0, 5.0, 3.0, 4.0])

    def at_row(row):
        asked.append(row)
        return found.current

    assert budget_forecast(found.situation, found.current, chance, end_cost, at_row).best is not None
    assert asked == [2]


@settings(deadline=None, max_examples=30)
@given(MONEY, SEEDS)
def test_what_the_rest_buys_is_named_by_the_model(left, seed):
    found = within(left, seed)
    forecast, wanted = found.budget, found.situation.deadline_chance
    assert forecast.now.enough == found.current.in_budget
    if forecast.now.enough >= wanted:
        assert forecast.best is forecast.most is None
        return
    meeting = found.in_budget >= wanted
    assert (forecast.best is not None) == bool(meeting.any())
    if forecast.best is not None:
        assert forecast.best.enough >= wanted
        assert forecast.best.end_cost == pytest.approx(found.end_cost[meeting].min())
        assert forecast.best.share == 1.0
    elif forecast.most is not None:
        assert forecast.most.share > forecast.now.share
        assert forecast.most.end_cost == pytest.approx(found.end_cost.min())


def test_a_plan_that_ends_within_the_rest_is_proposed_with_its_cost():
    now = plan(8, 1, 0.5)
    wasteful = within(1e6, now=now).current.end_cost
    assert cheapest() < 0.8 * wasteful
    found = advise(within(1.05 * cheapest(), now=now), SPEED, rejected_plans={}, may_explore=False)
    assert found.candidate.end_cost <= 1.05 * cheapest()
    assert found.candidate.in_budget >= LEAST_IN_BUDGET
    assert "within the total budget" in found.why


@settings(deadline=None, max_examples=30)
@given(MONEY, SEEDS, st.sampled_from(Objective))
def test_advice_that_meets_a_budget_is_never_left_for_a_plan_that_misses_it(left, seed, objective):
    found = within(left, seed, objective=objective)
    taken = found.candidate(chosen(found))
    if (found.in_budget >= found.situation.deadline_chance).any():
        assert taken.in_budget >= found.situation.deadline_chance
    elif taken.plan != found.current.plan:
        assert taken.in_budget >= LEAST_IN_BUDGET


@settings(deadline=None, max_examples=30)
@given(MONEY, SEEDS)
def test_auto_mode_is_advised_no_plan_that_costs_more_until_the_end_than_is_left_or_than_now(left, seed):
    found = within(left, seed)
    advice = advise(
        found, SPEED, rejected_plans={}, may_explore=True, limits=Limits(within_total=True, min_gain=0.03)
    )
    assert advice is None or advice.candidate.end_cost <= max(left, found.current.end_cost)


def test_where_no_plan_ends_within_the_rest_auto_mode_may_take_one_that_trains_more_for_it():
    now = plan(8, 1, 0.5)
    found = within(0.3 * cheapest(), now=now)
    assert found.end_cost.min() > found.situation.money_left
    limits = Limits(within_total=True, min_gain=0.03)
    advice = advise(found, SPEED, rejected_plans={}, may_explore=True, limits=limits)
    assert advice.candidate.end_cost < found.current.end_cost


def test_of_plans_in_time_the_deadline_names_one_that_the_rest_pays_for():
    slow = plan(1, 1, 0.5)
    hours = within(1e6, now=slow).current.finish_s
    alone = within(1e6, left_s=0.3 * hours, now=slow).deadline
    paid = within(1.2 * cheapest(), left_s=0.3 * hours, now=slow)
    named = paid.candidate(paid.deadline.best_plan)
    assert alone.best_in_time >= 0.9
    assert named.in_budget >= 0.9 or named.plan == slow or (paid.in_budget < 0.9).all()


def test_where_nothing_costs_anything_a_budget_limits_nothing():
    s = base()
    free = replace(s.spec, prices=PriceTable(cpu_hour=0.0, gib_hour=0.0), budget_total=1.0)
    found = analyse(replace(s, spec=free, money_left=0.5), model=MODELS[0])
    assert found.in_budget is found.budget is found.current.end_cost is None
    assert chosen(found) == chosen(analyse(replace(s, spec=free, money_left=None), model=MODELS[0]))


@settings(deadline=None, max_examples=20)
@given(MONEY, SEEDS)
def test_the_present_plan_between_analyses_is_that_of_the_analysis_at_its_moment(left, seed):
    found = within(left, seed)
    now = present_budget(
        found.situation, found.current, money_left=left, n_sample_left=found.situation.n_sample_left
    )
    assert now == found.budget.now


def test_a_total_budget_binds_where_the_plan_or_the_next_step_costs_too_much():
    now = within(1e6).current
    over = within(0.5 * now.end_cost)
    words = binding(over, over.current, Quota())
    assert any(line.startswith("total budget of 1000 USD") and "you want 90 %" in line for line in words)
    free = within(1e6)
    assert not any("total budget" in line for line in binding(free, free.current, Quota()))


def test_the_fastest_plan_within_the_total_budget_is_a_named_pick():
    found = within(2.0 * cheapest())
    picks = {p.name: found.front.candidates[p.index] for p in found.front.picks}
    faster = [c for c in found.front.candidates if c.in_budget >= 0.9]
    assert picks["fastest in total budget"] == faster[-1]
    assert "fastest in total budget" not in {p.name for p in analyse(base(), model=MODELS[0]).front.picks}


def test_pins_leave_no_plan_and_the_rest_of_the_budget_is_still_told():
    s = base()
    pinned = replace(s, pins=Pins(workers=s.plan.worker.count), money_left=0.004)
    found = analyse(replace(pinned, spec=replace(s.spec, budget_total=1.0, prices=PRICES)), model=MODELS[0])
    assert found.budget.best is None
    assert found.budget.now.share < 0.1
