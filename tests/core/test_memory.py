from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.memory import memory_line, needed_mib
from dlrover_nb.core.structs.resources import Role


def line(points, limit=1000, left_s=3600.0):
    return memory_line(Role.PS, limit, points, left_s=left_s)


def test_no_report_gives_no_line():
    assert line([]) is None


def test_few_reports_give_now_and_no_forecast():
    few = line([(float(t), 100.0 + t) for t in range(5)])
    assert (few.now_mib, few.mib_per_hour, few.at_end_mib, few.full_in_s) == (104.0, 0.0, None, None)


@settings(deadline=None)
@given(slope=st.floats(0.01, 5), start=st.floats(10, 500), n=st.integers(12, 200))
def test_straight_growth_is_found_and_full_when_it_meets_the_limit(slope, start, n):
    points = [(float(t), start + slope * t) for t in range(n)]
    found = line(points, limit=5000, left_s=None)
    assert found.mib_per_hour == pytest.approx(slope * 3600, rel=1e-6)
    assert found.full_in_s == pytest.approx((5000 - points[-1][1]) / slope, rel=1e-6)
    assert found.at_end_mib is None


def test_growth_that_ends_before_the_limit_never_fills_it():
    found = line([(float(t), 100 + 0.1 * t) for t in range(60)], left_s=600.0)
    assert found.full_in_s is None
    assert found.at_end_mib == pytest.approx(165.9)


def test_noise_is_not_extrapolated():
    rng = np.random.default_rng(0)
    flat = [line([(float(t), 300 + e) for t, e in enumerate(rng.normal(0, 5, 30))]) for _ in range(200)]
    assert np.mean([found.mib_per_hour == 0 for found in flat]) > 0.9


def test_memory_above_the_limit_is_full_now():
    assert line([(float(t), 2000.0) for t in range(20)]).full_in_s == 0.0


def test_need_is_the_limit_unless_the_end_lies_above_it():
    flat = line([(float(t), 300.0) for t in range(20)])
    steep = line([(float(t), 300.0 + t) for t in range(20)])
    assert needed_mib(flat) == 1000
    assert needed_mib(steep) >= steep.at_end_mib * 1.2
    assert needed_mib(steep) % 64 == 0
