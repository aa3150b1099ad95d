from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto.break_even import FARTHEST, Quantity, nearest_break_even
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

STAY, GO, FAR = (ResourcePlan(RolePlan(n, 1, 512), RolePlan(1, 1, 512)) for n in (1, 2, 3))


def quantity(name="speed", now=100.0, spread=0.1, *, below=0.0, above=float("inf"), **sides) -> Quantity:
    """A decision that stays below one threshold, goes, and goes far above another."""
    decide = lambda value: STAY if value < below else FAR if value > above else GO  # noqa: E731
    return Quantity(name, now, "samples/s", spread, decide, **sides)


def flip(*quantities):
    return nearest_break_even(quantities, recommended=GO, present=STAY)


@settings(deadline=None)
@given(now=st.floats(0.01, 1e6), spread=st.floats(0.01, 1), share=st.floats(0.05, 0.95))
def test_flip_lies_where_the_decision_changes(now, spread, share):
    threshold = now * exp(-share * FARTHEST * spread)
    asked = quantity(now=now, spread=spread, below=threshold)
    found = flip(asked)
    assert found.at < threshold
    assert found.at == pytest.approx(threshold, rel=2e-3)
    assert asked.decide(found.at) == found.plan == STAY
    assert asked.decide(found.at * 1.003) == GO
    assert (found.now, found.quantity) == (now, "speed")


def test_nearest_in_units_of_plausibility_wins_not_in_per_cent():
    certain = quantity("price", spread=0.01, below=98.5)
    vague = quantity("pause", spread=1.0, above=150.0)
    assert log(150 / 100) > log(100 / 98.5)
    found = flip(certain, vague)
    assert (found.quantity, found.plan) == ("pause", FAR)
    assert found.at == pytest.approx(150, rel=1e-2)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.05, 0.5), st.floats(50, 99), st.floats(101, 200)), min_size=1, max_size=4)
)
def test_no_looked_at_value_nearer_than_the_flip_changes_the_decision(rows):
    asked = [quantity(str(i), spread=s, below=b, above=a) for i, (s, b, a) in enumerate(rows)]
    found = flip(*asked)
    least = min(min(log(100 / b), log(a / 100)) / s for s, b, a in rows)
    if found is None:
        assert least >= FARTHEST * 0.999
    else:
        distance = abs(log(found.at / 100)) / rows[int(found.quantity)][0]
        assert distance == pytest.approx(least, abs=2e-3)


def test_nothing_plausible_gives_no_flip():
    assert flip(quantity(below=100 * exp(-0.1 * (FARTHEST + 0.1)))) is None
    assert flip() is None


def test_impossible_direction_is_not_looked_at():
    assert flip(quantity(below=95, down=False)) is None
    assert flip(quantity(above=105, up=False)) is None


def test_flip_says_in_a_sentence_what_would_be_recommended(words):
    assert flip(quantity(below=90)).words == words
    assert flip(quantity(above=110)).words == words


@pytest.mark.parametrize(("now", "spread"), [(0.0, 0.1), (float("nan"), 0.1), (1.0, 0.0)])
def test_quantity_without_a_place_or_a_scale_is_refused(now, spread):
    with pytest.raises(InvalidValueError, match="speed"):
        quantity(now=now, spread=spread)
