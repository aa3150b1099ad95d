from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.memory import forecast

GROWTH = {
    "linear": lambda u: u,
    "power": lambda u: u**0.5,
    "saturating": lambda u: -np.expm1(-u / 0.25),
    "logarithmic": lambda u: np.log1p(u / 0.03),
}


def ahead(y, *, limit=1e5, spans=3.0, step=1.0, **how):
    x = step * np.arange(1, len(y) + 1)
    return forecast(x, np.maximum(y, 0), limit_mib=limit, end=spans * x[-1], origin=0.0, **how)


def noisy(kind, rng, n):
    if kind == "scatter":
        return 300 + rng.normal(0, 5, n)
    if kind == "walk":
        return 1000 + np.cumsum(rng.normal(0, 2, n))
    slow = np.convolve(rng.normal(0, 5, n + 200), 0.95 ** np.arange(200))[200 : 200 + n]
    return 300 + slow


@pytest.mark.more
@for_each("law", GROWTH)
def test_a_law_is_recovered_and_its_forecast_covers_the_truth(law):
    rng, inside, named = np.random.default_rng(7), [], []
    for n in [60, 200, 600] * 20:
        u = np.arange(1, n + 1) / n
        found = ahead(300 + 200 * GROWTH[law](u) + rng.normal(0, 2, n))
        truth = 300 + 200 * GROWTH[law](3.0)
        inside.append(found.at_end.low <= truth + rng.normal(0, 2) <= found.at_end.high)
        named.append(found.law == law)
        if found.law == law:
            assert found.at_end.mid == pytest.approx(truth, rel=0.15)
    assert np.mean(inside) >= 0.8
    assert np.mean(named) >= 0.5


@pytest.mark.more
@for_each("kind", ["scatter", "walk", "slow scatter"])
@for_each("n", [12, 30, 120, 600])
def test_noise_never_forecasts_growth(kind, n):
    rng = np.random.default_rng(3)
    laws = [ahead(noisy(kind, rng, n)).law for _ in range(100)]
    assert np.mean([law != "as now" for law in laws]) <= 0.03


@pytest.mark.more
@pytest.mark.parametrize("kind", ["scatter", "walk", "slow scatter"])
def test_the_interval_of_noise_holds_what_comes(kind):
    rng, inside = np.random.default_rng(5), []
    for _ in range(200):
        y = noisy(kind, rng, 300)
        found = ahead(y[:200], spans=1.5)
        inside.append(found.at_end.low <= y[-1] <= found.at_end.high)
    assert np.mean(inside) >= 0.8
    assert np.mean(inside) <= 0.99 or kind == "slow scatter"  # taken for a walk, which errs on the safe side


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), law=st.sampled_from([*GROWTH, "none"]), n=st.integers(10, 300))
def test_the_interval_widens_with_the_horizon(seed, law, n):
    rng = np.random.default_rng(seed)
    u = np.arange(1, n + 1) / n
    found = ahead(300 + (200 * GROWTH[law](u) if law != "none" else 0) + rng.normal(0, 3, n))
    width = np.array([high - low for _, _, low, high in found.fan])
    assert (np.diff(width) >= -0.02 * width[1:] - 0.05).all()
    assert all(low <= mid <= high for _, mid, low, high in found.fan)


@pytest.mark.more
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    slope=st.floats(0, 3),
    sd=st.floats(0, 50),
    limits=st.lists(st.floats(50, 3000), min_size=2, max_size=6),
)
def test_probability_falls_with_the_limit_and_time_to_it_grows(seed, slope, sd, limits):
    rng = np.random.default_rng(seed)
    y = 300 + slope * np.arange(100) + rng.normal(0, sd, 100)
    found = [ahead(y, limit=limit) for limit in sorted(limits)]
    chance = [f.oom_probability for f in found]
    assert all(0 <= p <= 1 for p in chance)
    assert (np.diff(chance) <= 1e-9).all()
    when = [f.to_limit.mid if f.to_limit else np.inf for f in found]
    assert all(b >= a * (1 - 1e-6) - 3 for a, b in pairwise(when))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), slope=st.floats(0.1, 3), factor=st.sampled_from([0.125, 8.0, 512.0]))
def test_the_unit_of_work_changes_nothing_but_the_unit_of_the_answer(seed, slope, factor):
    y = 300 + slope * np.arange(100) + np.random.default_rng(seed).normal(0, 3, 100)
    one, other = ahead(y, limit=700), ahead(y, limit=700, step=factor)
    assert one.law == other.law
    assert other.at_end.high == pytest.approx(one.at_end.high, rel=1e-6)
    assert other.oom_probability == pytest.approx(one.oom_probability, abs=1e-6)
    if one.to_limit:
        assert other.to_limit.low == pytest.approx(factor * one.to_limit.low, rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(slope=st.floats(0.05, 5), start=st.floats(10, 500), n=st.integers(12, 300), share=st.floats(0.1, 0.9))
def test_straight_growth_meets_the_limit_where_the_line_does(slope, start, n, share):
    y = start + slope * np.arange(1, n + 1)
    far = share * 2 * n
    found = ahead(y, limit=y[-1] + slope * far)
    assert found.law == "linear"
    assert found.to_limit.mid == pytest.approx(far, rel=0.03, abs=1)
    assert found.to_limit.low <= found.to_limit.mid <= found.to_limit.high
    assert found.oom_probability > 0.95
    assert found.at_end.mid == pytest.approx(start + 3 * slope * n, rel=0.01)


def test_growth_that_has_ended_is_not_continued():
    rng, n = np.random.default_rng(2), 400
    y = 300 + 200 * np.minimum(np.arange(n) / (0.7 * n), 1) + rng.normal(0, 1, n)
    found = ahead(y, limit=700)
    assert found.at_end.mid == pytest.approx(500, abs=30)
    assert found.to_limit is None or found.to_limit.mid == np.inf


def test_growth_that_began_lately_is_seen():
    rng, n = np.random.default_rng(2), 600
    y = 300 + np.maximum(np.arange(n) - 440, 0) + rng.normal(0, 1, n)
    found = ahead(y, limit=1000)
    assert found.law != "as now"
    assert found.to_limit.mid == pytest.approx(541, rel=0.1)


def test_memory_that_is_given_back_is_forecast_as_now():
    found = ahead(900 - 0.5 * np.arange(200.0))
    assert found.law == "as now"
    assert found.at_end.mid == pytest.approx(800.5, abs=10)


@pytest.mark.parametrize("size", [-500, 400])
def test_memory_that_moved_once_and_lies_still_since_is_forecast_there(size):
    y = 900 + np.random.default_rng(1).normal(0, 3, 200) + size * (np.arange(200) >= 100)
    found = ahead(y, limit=2000)
    assert (found.law, found.oom_probability) == ("as now", 0.0)
    assert found.at_end.low == pytest.approx(900 + size, abs=15)
    assert found.at_end.high == pytest.approx(900 + size, abs=15)


def test_constant_memory_stays_and_never_meets_a_limit_above_it():
    found = ahead(np.full(50, 300.0), limit=301)
    assert (found.law, found.oom_probability, found.to_limit) == ("as now", 0.0, None)
    assert found.at_end.low == pytest.approx(300, abs=0.1)
    assert found.at_end.high == pytest.approx(300, abs=0.1)


def test_scatter_that_reaches_near_the_limit_meets_it_sooner_or_later():
    y = 690 + np.random.default_rng(0).normal(0, 150, 200)
    found = ahead(np.minimum(y, 990), limit=1000)
    assert found.law == "as now"
    assert found.oom_probability > 0.9


def test_a_full_node_is_full_now():
    found = ahead(np.full(20, 2000.0), limit=1000)
    assert (found.to_limit.mid, found.oom_probability) == (0.0, 1.0)


def test_at_the_end_nothing_more_is_to_come():
    found = ahead(300 + np.arange(100.0), limit=400, spans=1.0)
    assert (found.oom_probability, found.to_limit) == (0.0, None)
    assert found.at_end.mid == found.now == 399


@for_each("n", [1, 2, 5, 7])
def test_too_few_reports_are_not_known_yet(n):
    found = ahead(300 + np.arange(float(n)))
    assert (found.known, found.fan, found.at_end, found.oom_probability) == (False, (), None, None)
    assert found.now == 299 + n


def test_a_job_that_stands_still_is_not_known_yet():
    found = forecast([5.0] * 100, np.linspace(300, 400, 100), limit_mib=1000, end=50.0)
    assert not found.known


def test_without_an_end_there_is_no_probability_but_a_time():
    x = np.arange(100.0)
    found = forecast(x, 300 + x, limit_mib=500, end=None)
    assert (found.at_end, found.oom_probability) == (None, None)
    assert found.to_limit.mid == pytest.approx(101, rel=0.03)


def test_reports_during_a_pause_do_not_count_as_work():
    x = np.concatenate([np.arange(1, 101.0), np.full(200, 100.0), np.arange(101, 151.0)])
    found = forecast(x, 300 + x, limit_mib=1e4, end=450.0, origin=0.0)
    assert found.at_end.mid == pytest.approx(750, rel=0.02)


@for_each(
    ("x", "y", "words"),
    [
        ([], [], "at least one"),
        ([1, 2], [1], "as many reports"),
        ([1, 2], [1, float("nan")], "finite"),
        ([1, float("inf")], [1, 2], "finite"),
        ([1, 2], [1, -2], ">= 0 MiB"),
        ([2, 1], [1, 2], "in order"),
    ],
)
def test_bad_series_are_refused_with_what_to_do(x, y, words):
    with pytest.raises(InvalidValueError, match=words):
        forecast(x, y, limit_mib=100, end=10.0)


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_must_be_above_zero(limit):
    with pytest.raises(InvalidValueError, match="limit_mib"):
        forecast([1, 2], [1, 2], limit_mib=limit, end=10.0)


def test_growth_cannot_begin_after_the_first_report(error_words):
    with error_words(InvalidValueError):
        forecast([1, 2], [1, 2], limit_mib=10, end=10.0, origin=1.5)


def test_an_end_that_is_not_a_number_is_refused():
    with pytest.raises(InvalidValueError, match="end"):
        forecast([1, 2], [1, 2], limit_mib=10, end=float("nan"))


@pytest.mark.parametrize("far", [1e6, 1e9, 1e12])
def test_a_plan_that_begins_late_in_a_long_job_is_forecast_as_well(far):
    x = far + 500.0 * np.arange(1, 301)
    y = 300 + 0.5 * np.arange(300) + np.random.default_rng(0).normal(0, 1, 300)
    found = forecast(x, y, limit_mib=1000, end=float(x[-1] + 500 * 600), origin=0.0)
    assert found.law != "as now"
    assert found.at_end.mid == pytest.approx(750, rel=0.05)
    flat = forecast(x, y - 0.5 * np.arange(300), limit_mib=1000, end=float(x[-1] + 500 * 600), origin=0.0)
    assert flat.law == "as now"
    assert flat.at_end.mid == pytest.approx(300, rel=0.02)


@pytest.mark.more
@settings(deadline=None, max_examples=150)
@given(
    x=st.lists(st.floats(0, 1e9), min_size=1, max_size=60),
    y=st.lists(st.floats(0, 1e7), min_size=60, max_size=60),
    limit=st.floats(1e-3, 1e9),
    left=st.floats(0, 1e9),
)
def test_whatever_is_reported_the_answer_is_finite_and_in_order(x, y, limit, left):
    found = forecast(sorted(x), y[: len(x)], limit_mib=limit, end=max(x) + left, origin=0.0)
    if found.known:
        assert np.isfinite(found.fan).all()
        assert 0 <= found.at_end.low <= found.at_end.mid <= found.at_end.high
        assert 0 <= found.oom_probability <= 1
    if found.to_limit:
        assert 0 <= found.to_limit.low <= found.to_limit.mid <= found.to_limit.high


def test_a_report_tells_of_the_next_one_as_far_as_neighbours_agree():
    """White and correlated reports of one deviation: only the second tell what comes next."""
    rng = np.random.default_rng(11)
    white, slow = rng.normal(0, 5, 600), np.convolve(rng.normal(0, 1, 700), 0.6 ** np.arange(40))[50:650]
    soon = {}
    for name, rest in (("white", white), ("slow", slow * white.std() / slow.std())):
        found = ahead(300 + rest, spans=1 + 1 / 600)
        soon[name] = found.at_end.high - found.at_end.low
    assert soon["slow"] < 0.9 * soon["white"]


@for_each("limit", [299, 300, 301])
def test_memory_at_its_limit_is_full_however_few_reports_there_are(limit):
    found = ahead([300.0, 300.0], limit=limit)
    assert found.law == "as now"
    assert (found.to_limit is None) == (limit > 300)
