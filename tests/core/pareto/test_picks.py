from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto.picks import (
    AS_FAST,
    Wishes,
    best_value,
    named_picks,
    resource_efficiency,
    thinned,
)
from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan, ScalePlan

PLAN = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.5, 512))
WORK = 1000.0  # samples left


def candidate(cost: float | None, speed: float, *, now: float = 0.0) -> Candidate:
    bands = Prediction(speed, speed, speed, False)
    return Candidate(PLAN, bands, cost, 1, WORK / speed, ScalePlan(), 0, speed - now, (), "")


def front_of(points: list[tuple[int, int]]) -> list[Candidate]:
    """Points as a front: strictly dearer and strictly faster from one to the next."""
    costs, speeds = (sorted({p[i] for p in points}) for i in (0, 1))
    return [candidate(c, s, now=10) for c, s in zip(costs, speeds, strict=False)]


def picked(candidates, now, wishes=None) -> dict[str, int]:
    return {p.name: p.index for p in named_picks(candidates, now, wishes)}


fronts = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=12).map(front_of)
current = st.builds(candidate, st.integers(1, 50), st.just(10))


@settings(deadline=None)
@given(
    front=fronts,
    now=current,
    budget=st.one_of(st.none(), st.floats(0.5, 60)),
    chances=st.none() | st.lists(st.floats(0, 1), min_size=12, max_size=12),
    wanted=st.floats(0.01, 1),
)
def test_picks_are_what_their_names_say_and_only_those_that_exist(front, now, budget, chances, wanted):
    if chances is not None:
        front = [replace(c, in_time=chance) for c, chance in zip(front, chances, strict=False)]
    picks = picked(front, now, Wishes(budget, wanted))
    assert front[picks["fastest"]] is max(front, key=lambda c: c.prediction.samples_per_s)
    within = [i for i, c in enumerate(front) if budget is not None and c.cost_per_hour <= budget]
    assert picks.get("fastest in budget") == max(within, default=None)
    in_time = [i for i, c in enumerate(front) if c.in_time is not None and c.in_time >= wanted]
    assert picks.get("cheapest that meets the deadline") == min(in_time, default=None)
    as_fast = [i for i, c in enumerate(front) if c.prediction.samples_per_s >= AS_FAST * 10]
    assert picks.get("cheapest as fast as now") == min(as_fast, default=None)
    assert ("best value" in picks) == any(c.gain_samples_per_s > 0 for c in front)


@settings(deadline=None)
@given(front=fronts, now=current)
def test_nothing_has_a_better_value_than_the_best_value(front, now):
    best = best_value(front, now)
    ratios = [(c.gain_samples_per_s / (c.cost - now.cost) if c.cost > now.cost else np.inf) for c in front]
    gaining = [r for r, c in zip(ratios, front, strict=True) if c.gain_samples_per_s > 0]
    assert (best is None) == (not gaining)
    if best is not None:
        assert front[best].gain_samples_per_s > 0
        assert ratios[best] == max(gaining)


def test_efficiency_is_gain_per_added_cost():
    values = resource_efficiency(np.array([4.0, 1.0, 4.0]), np.array([6.0, 6.0, -1.0]), 2.0)
    assert values.tolist() == [3.0, np.inf, -1.0]


def test_of_free_improvements_the_largest_gain_is_the_best_value():
    now = candidate(5, 10)
    front = [candidate(2, 12, now=10), candidate(3, 14, now=10), candidate(9, 30, now=10)]
    assert best_value(front, now) == 1


def test_without_a_known_price_nothing_is_fastest_in_budget():
    front = [candidate(None, 20, now=10)]
    assert "fastest in budget" not in picked(front, candidate(None, 10), Wishes(budget_per_hour=1e9))


def test_knee_is_where_more_money_stops_to_pay():
    now = candidate(1, 10)
    front = [candidate(c, s) for c, s in ((1, 10), (2, 19), (3, 20), (4, 20.5))]
    assert picked(front, now)["knee"] == 1


@settings(deadline=None)
@given(front=fronts, now=current, most=st.integers(1, 6))
def test_thinned_front_keeps_its_ends_its_order_and_what_picks_point_to(front, now, most):
    picks = named_picks(front, now)
    shown, moved = thinned(front, picks, most)
    assert [c for c in front if c in shown] == list(shown)
    assert (shown[0], shown[-1]) == (front[0], front[-1])
    assert [(p.name, shown[p.index]) for p in moved] == [(p.name, front[p.index]) for p in picks]
    assert len(shown) <= most + len(picks) + 2


def test_empty_front_has_no_picks():
    assert named_picks((), candidate(1, 1)) == ()


def test_budget_that_is_no_money_is_refused():
    with pytest.raises(InvalidValueError, match="budget"):
        Wishes(budget_per_hour=float("nan"))
