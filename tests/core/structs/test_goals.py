"""Goals for a plan: what people write, the plan that meets all, and what is in the way where none does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
from dlrover_nb.core.structs.decisions.goals import (
    EXAMPLES,
    VALUES,
    Goal,
    GoalKind,
    answer,
    meets,
    read_goals,
)
from dlrover_nb.core.structs.plan.deadline import span_words
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan, diff

NOW_S = 1_796_000_000.0
NOW = ResourcePlan(RolePlan(1, 1.0, 1024), RolePlan(1, 1.0, 1024))


def candidate(workers: int, cpu: float, speed: float, price: float | None = 0.1) -> Candidate:
    plan = ResourcePlan(RolePlan(workers, cpu, 1024), NOW.ps)
    cost = None if price is None else price * plan.total_cpu
    told = Prediction(speed, 0.8 * speed, 1.2 * speed, extrapolates=False)
    return Candidate(plan, told, cost, None, 1e7 / speed, diff(NOW, plan), 0.0, 0.0, (), "")


candidates = st.lists(
    st.builds(
        candidate,
        st.integers(1, 20),
        st.sampled_from([0.5, 1.0, 2.0]),
        st.floats(10, 1e5),
        st.none() | st.floats(0.01, 1),
    ),
    max_size=12,
)
goals = st.lists(
    st.builds(Goal, st.sampled_from(GoalKind), st.floats(0.01, 1e6), st.just("a goal")),
    min_size=1,
    max_size=6,
    unique_by=lambda goal: goal.kind,
)


@given(goals, candidates)
def test_the_answer_meets_all_goals_and_nothing_that_does_is_cheaper(asked, known):
    found = answer(asked, known)
    able = [each for each in known if all(meets(goal, each) for goal in asked)]
    assert (found.plan is None) == (not able)
    if found.plan is not None:
        assert found.plan in able
        assert found.plan.cost == min(each.cost for each in able)
        assert not found.bindings
        assert not found.alone


@given(goals, candidates, st.floats(1, 100))
def test_relaxing_a_goal_makes_nothing_infeasible(asked, known, factor):
    first = answer(asked, known)
    loose = [
        replace(g, limit=g.limit / factor if g.kind is GoalKind.SPEED else g.limit * factor) for g in asked
    ]
    if first.plan is not None:
        relaxed = answer(loose, known).plan
        assert relaxed is not None
        assert relaxed.cost <= first.plan.cost


@given(goals, candidates)
def test_what_is_told_to_be_the_nearest_value_is_just_enough(asked, known):
    found = answer(asked, known)
    for each in found.bindings:
        others = [goal for goal in asked if goal != each.goal]
        assert answer([*others, replace(each.goal, limit=each.nearest)], known).plan is not None
        less = each.nearest * (1.01 if each.goal.kind is GoalKind.SPEED else 0.99)
        assert answer([*others, replace(each.goal, limit=less)], known).plan is None
    for goal, _ in found.alone:
        assert not any(meets(goal, each) for each in known)


def test_it_is_sure_at_the_lower_end_of_the_speed():
    one = candidate(2, 1.0, 1000.0)
    within = [Goal(GoalKind.FINISH, 12_600.0, ""), Goal(GoalKind.FINISH, 10_100.0, "")]
    assert [answer([goal], [one]).is_sure for goal in within] == [True, False]
    assert not answer([Goal(GoalKind.SPEED, 900.0, "")], [one]).is_sure
    assert answer([Goal(GoalKind.CORES, 3.0, "")], [one]).is_sure


@for_each(
    ("text", "kind", "limit"),
    [
        ("≤ 12 $/h", GoalKind.COST, 12.0),
        ("<= $12.5 per hour", GoalKind.COST, 12.5),
        ("12 USD/h", GoalKind.COST, 12.0),
        ("at most 40 $ in total", GoalKind.TOTAL, 40.0),
        ("done within 3 h", GoalKind.FINISH, 10_800.0),
        ("within 90 min", GoalKind.FINISH, 5400.0),
        ("in 2 days", GoalKind.FINISH, 172_800.0),
        ("≥ 5000 samples/s", GoalKind.SPEED, 5000.0),
        ("at least 5000 rows per second", GoalKind.SPEED, 5000.0),
        ("≤ 16 cores", GoalKind.CORES, 16.0),
        ("up to 64 GiB of memory", GoalKind.MEMORY, 64.0),
    ],
)
def test_goals_as_people_write_them(text, kind, limit):
    (goal,) = read_goals(text, NOW_S)
    assert (goal.kind, goal.limit, goal.text) == (kind, limit, text)


def test_several_goals_and_moments():
    found = read_goals("≤ 12 $/h, done by 2026-12-01T06:00Z\n# as the team agreed\n≤ 16 cores", NOW_S)
    assert [goal.kind for goal in found] == [GoalKind.COST, GoalKind.FINISH, GoalKind.CORES]
    assert found[1].limit == 1_796_104_800 - NOW_S
    assert len(read_goals(EXAMPLES.replace("done by 18:00, ", ""), NOW_S)) == len(VALUES)
    (soon,) = read_goals("done by 18:00", NOW_S)
    assert 0 < soon.limit <= 86_400


@for_each(
    ("text", "words"),
    [
        ("", "got none"),
        ("cheap please", "expected a goal such as ≤ 12"),
        ("≤ 12 $/h, ≤ 13 $/h", "one goal for cost per hour"),
        ("≤ 0 cores", "above zero"),
        ("done by 2020-01-01T00:00Z", "in the future"),
        ("done by noon", "must be a date with a time"),
    ],
)
def test_what_is_no_goal_is_refused_in_words(text, words):
    with pytest.raises(InvalidValueError, match=words):
        read_goals(text, NOW_S)


@for_each("seconds, words", [(0.0, "0 s"), (0.57, "0.57 s"), (182.3, "3 min"), (9000.0, "2.5 h")])
def test_a_span_is_said_as_people_do(seconds, words):
    assert span_words(seconds) == words
