"""What is said of a total budget: numbers that recompute, and the choices only where they matter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.structs.plan.budget import NEAR_SHARE, BudgetOutlook, PlanBudget, per_hour, spent_why
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan, RolePlan

PLAN = ResourcePlan(RolePlan(2, 1.0, 1024), RolePlan(1, 0.5, 512))
SMALL = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.5, 512))
NOW = PlanBudget(PLAN, per_hour=2.0, end_cost=4.0, enough=0.02, share=0.5)
PRICES = st.just(0.0) | st.floats(1e-9, 1e4)  # as `per_hour` rounds them
DOES = "chance that the money is enough"
BARE = BudgetOutlook("ads", 10.0, 8.0, "USD", 2.0)
SHORT = replace(BARE, samples_per_s=1000.0, n_sample_left=7_200_000, now=NOW)


@given(st.floats(0.01, 1e6), st.floats(0, 2e6), PRICES, st.floats(1, 1e6), st.integers(0, 10**12))
def test_the_parts_of_a_budget_add_up_and_no_more_is_bought_than_is_left(limit, spent, price, speed, n_left):
    told = BudgetOutlook("ads", limit, spent, "USD", price, speed, n_left)
    assert 0 <= told.left <= limit
    assert told.is_near == (spent >= NEAR_SHARE * limit) or spent / limit == pytest.approx(NEAR_SHARE)
    if told.left_s is not None:
        assert told.left_s * price / 3600 == pytest.approx(told.left)
        assert told.n_sample_bought <= n_left
    assert told.words.startswith(told.spent_words)


def test_a_budget_that_is_enough_names_the_cost_until_the_end_and_no_choices(words):
    told = replace(SHORT, spent=2.0, now=replace(NOW, enough=0.97, share=1.0))
    assert told.words == words
    assert "raises" not in replace(told, spent=9.0).words


def test_early_on_only_a_better_plan_is_a_choice(words):
    early = replace(SHORT, spent=1.0)
    assert "%dlrover" not in early.words
    best = PlanBudget(SMALL, 1.0, 1.5, 0.93, 1.0)
    named = replace(early, best=best).words
    assert named == words


def test_near_the_limit_it_says_what_the_rest_buys_and_each_choice():
    most = PlanBudget(SMALL, 1.0, 2.5, 0.1, 0.8)
    words = replace(SHORT, most=most).words
    assert words.startswith(
        "8 of 10 USD spent (80 %); the money lasts 60 min, for about 3,600,000 rows (50 % of"
    )
    assert f"all of them would cost 4 (2 % {DOES})" in words
    assert "`%dlrover pin ads --budget 12.4` raises the limit" in words
    assert "`%dlrover end ads --now` keeps what is trained" in words
    assert words.endswith(f"or {SMALL.short} trains 80 % of the rest")


@given(st.floats(0.01, 100), st.floats(0.81, 0.99), st.floats(0.01, 200))
def test_the_limit_that_it_names_pays_for_the_end_and_is_higher(limit, share, end_cost):
    told = replace(SHORT, limit=limit, spent=share * limit, now=replace(NOW, end_cost=end_cost))
    named = float(told.words.split("%dlrover pin ads --budget ")[1].split("`")[0])
    assert named > limit
    assert named - told.spent >= end_cost


def test_without_an_end_it_says_how_long_the_rest_lasts(words):
    endless = replace(BARE, samples_per_s=1000.0)
    assert endless.words == words


def test_where_no_node_is_up_the_rest_is_money_alone():
    assert replace(BARE, spent=1.0, per_hour=0.0).words == "1 of 10 USD spent (10 %)"


def test_the_reason_of_the_end_names_the_way_on(words):
    assert spent_why(replace(BARE, spent=10.004)) == words


@given(st.lists(st.builds(Need, st.floats(0, 64), st.integers(64, 1 << 20), st.integers(0, 4)), max_size=9))
def test_nodes_cost_what_their_cores_and_memory_do_and_nothing_is_told_without_a_price(held):
    prices = PriceTable(cpu_hour=0.03, gib_hour=0.004, gpu_hour=0.5)
    exact = sum(cpu * 0.03 + mib / 1024 * 0.004 + gpu * 0.5 for cpu, mib, gpu in held)
    assert per_hour(prices, held) == pytest.approx(exact, abs=2e-4)  # cores are rounded to hundredths
    if any(need.gpu for need in held):
        assert per_hour(replace(prices, gpu_hour=None), held) is None
    assert per_hour(PriceTable(gib_hour=None), held) is None
