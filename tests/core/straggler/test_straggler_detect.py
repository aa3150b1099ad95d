from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler import heat

times = st.floats(1e-3, 100.0)
reports = st.lists(
    st.tuples(st.floats(0.0, 3000.0), st.integers(0, 4).map(lambda i: f"worker-{i}"), times),
    min_size=1,
    max_size=60,
)


def same(left, right, rel=1e-9):
    pairs = [pair for a, b in zip(left, right, strict=True) for pair in zip(a, b, strict=True)]
    return all((math.isnan(a) and math.isnan(b)) or a == pytest.approx(b, rel=rel) for a, b in pairs)


def test_a_worker_is_compared_with_the_mean_of_the_others_in_each_window():
    rows = [
        (10.0, "worker-0", 1.0), (20.0, "worker-0", 3.0), (15.0, "worker-1", 4.0), (15.0, "worker-2", 2.0),
        (310.0, "worker-0", 1.0), (320.0, "worker-1", 1.0),
    ]  # fmt: skip
    found = heat(rows, window_s=300.0, ratio=1.5)
    assert found.nodes == ("worker-0", "worker-1", "worker-2")
    assert found.starts_s == (0.0, 300.0)
    assert found.iter_s[:2] == ((2.0, 1.0), (4.0, 1.0))
    assert same(found.ratios, [(2 / 3, 1.0), (2.0, 1.0), (2 / 3, math.nan)])
    assert found.is_over == ((False, False), (True, False), (False, False))


def test_the_last_window_says_who_straggles_now():
    rows = [
        (0.0, "worker-0", 1.0),
        (0.0, "worker-1", 9.0),
        (300.0, "worker-0", 1.5),
        (300.0, "worker-1", 1.0),
    ]
    assert heat(rows).stragglers == ("worker-0",)


def test_one_worker_alone_is_no_straggler_and_no_report_is_no_picture():
    assert heat([(0.0, "worker-0", 5.0)]).stragglers == ()
    assert heat([(0.0, "worker-0", 0.0), (1.0, "worker-0", math.nan)]).nodes == ()


def test_worker_10_comes_after_worker_2():
    assert heat([(0.0, f"worker-{i}", 1.0) for i in (10, 2, 1)]).nodes == (
        "worker-1",
        "worker-2",
        "worker-10",
    )


@for_each(("window_s", "ratio"), [(0.0, 1.5), (math.nan, 1.5), (300.0, 1.0), (300.0, math.nan)])
def test_windows_without_length_and_ratios_that_all_reach_are_refused(window_s, ratio):
    with pytest.raises(InvalidValueError):
        heat([], window_s, ratio)


@given(reports, st.randoms(use_true_random=False))
def test_the_order_of_reports_says_nothing(rows, chance):
    mixed = chance.sample(rows, len(rows))
    assert same(heat(rows).ratios, heat(mixed).ratios)


@given(reports, st.floats(1e-2, 100.0))
def test_the_unit_of_time_of_an_iteration_says_nothing(rows, factor):
    scaled = [(at_s, node, iter_s * factor) for at_s, node, iter_s in rows]
    assert same(heat(rows).ratios, heat(scaled).ratios)


@given(reports, st.floats(10.0, 1000.0))
def test_every_report_falls_into_one_window_and_windows_have_no_holes(rows, window_s):
    found = heat(rows, window_s)
    assert all(
        b - a == pytest.approx(window_s) for a, b in zip(found.starts_s, found.starts_s[1:], strict=False)
    )
    for at_s, node, _ in rows:
        column = int(at_s // window_s) - round(found.starts_s[0] / window_s)
        assert math.isfinite(found.iter_s[found.nodes.index(node)][column])


@given(reports)
def test_a_mean_lies_between_the_reports_of_its_node(rows):
    found = heat(rows)
    for node, means in zip(found.nodes, found.iter_s, strict=True):
        told = [iter_s for _, who, iter_s in rows if who == node]
        known = [mean for mean in means if math.isfinite(mean)]
        assert all(min(told) * (1 - 1e-9) <= mean <= max(told) * (1 + 1e-9) for mean in known)


@given(reports)
def test_newer_reports_leave_earlier_windows_as_they_were(rows):
    before = heat(rows)
    after = heat([*rows, (9000.0, "worker-0", 1.0)])
    for node, row in zip(before.nodes, before.ratios, strict=True):
        assert same([row], [after.ratios[after.nodes.index(node)][: len(row)]])


@given(st.integers(2, 12), times, st.floats(1.5, 50.0), st.integers(0, 11))
def test_one_slowed_worker_among_equals_is_the_only_straggler(n_worker, iter_s, factor, which):
    slow = f"worker-{which % n_worker}"
    names = [f"worker-{i}" for i in range(n_worker)]
    rows = [(0.0, name, iter_s * factor * (1 + 1e-9) if name == slow else iter_s) for name in names]
    assert heat(rows, ratio=1.5).stragglers == (slow,)


@given(reports, st.floats(1.01, 4.0), st.floats(1.01, 4.0))
def test_a_higher_threshold_finds_no_more(rows, one, other):
    low, high = sorted((one, other))
    pairs = zip(heat(rows, ratio=low).is_over, heat(rows, ratio=high).is_over, strict=True)
    assert all(a or not b for lows, highs in pairs for a, b in zip(lows, highs, strict=True))


@given(st.lists(times, min_size=2, max_size=12))
def test_somebody_is_at_least_as_slow_and_somebody_as_fast_as_the_others(all_s):
    ratios = [row[0] for row in heat([(0.0, f"worker-{i}", s) for i, s in enumerate(all_s)]).ratios]
    assert min(ratios) <= 1 + 1e-9
    assert max(ratios) >= 1 - 1e-9
