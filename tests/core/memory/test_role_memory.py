from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.memory import Outlook, Report, after_oom_mib, memory_line, needed_mib
from dlrover_nb.core.structs.plan.resources import Role

SPEED = 500.0


def line(memory, *, limit=1000, end=None, speed=SPEED):
    reports = [Report(float(t), int(SPEED * (t + 1)), float(m)) for t, m in enumerate(memory)]
    outlook = None if end is None else Outlook(int(end), speed)
    return memory_line(Role.PS, limit, reports, outlook=outlook)


def climbing(n=200, slope=1.0):
    return 300 + slope * np.arange(n)


def test_no_report_gives_no_line():
    assert line([]) is None


def test_few_reports_give_now_and_no_forecast():
    few = line(climbing(5), end=1e5)
    assert (few.now_mib, few.mib_per_hour, few.law) == (304.0, 0.0, "as now")
    assert (few.at_end_mib, few.full_in_s, few.oom_probability, few.fan) == (None, None, None, ())
    assert needed_mib(few) == 1000


def test_many_reports_in_a_few_seconds_are_few():
    reports = [Report(t / 10, t, 300.0 + t) for t in range(60)]
    found = memory_line(Role.PS, 1000, reports, outlook=Outlook(1000, 10.0))
    assert found.at_end_mib is None


def test_growth_with_samples_becomes_time_by_the_present_throughput():
    found = line(climbing(), end=SPEED * 1000)
    assert found.at_end_mib == pytest.approx(1299, rel=0.01)
    assert found.full_in_s == pytest.approx(501, rel=0.03)
    assert found.full_in_low_s <= found.full_in_s <= found.full_in_high_s
    assert found.mib_per_hour == pytest.approx(3600, rel=0.02)
    assert found.fan[-1].in_s == pytest.approx(800, rel=0.01)
    twice = line(climbing(), end=SPEED * 1000, speed=2 * SPEED)
    assert twice.full_in_s == pytest.approx(found.full_in_s / 2, rel=0.01)
    assert twice.at_end_mib == pytest.approx(found.at_end_mib)


def test_the_first_report_may_come_before_the_first_sample():
    reports = [Report(float(t), int(SPEED * t), 300.0 + t) for t in range(200)]
    found = memory_line(Role.PS, 1000, reports, outlook=Outlook(int(SPEED * 1000), SPEED))
    assert found.at_end_mib == pytest.approx(1300, rel=0.01)


def test_a_report_off_its_course_is_no_growth():
    memory = 300 + np.random.default_rng(0).normal(0, 5, 200)
    memory[-1] = 320
    found = line(memory, end=SPEED * 1000)
    assert (found.law, found.mib_per_hour, found.now_mib) == ("as now", 0.0, 320.0)
    assert found.at_end_mib == pytest.approx(300, abs=3)


def test_without_progress_the_forecast_runs_over_time_and_has_no_end():
    found = line(climbing())
    assert found.full_in_s == pytest.approx(501, rel=0.03)
    assert (found.at_end_mib, found.oom_probability) == (None, None)


def test_growth_that_ends_before_the_limit_never_fills_it():
    found = line(climbing(slope=0.1), end=SPEED * 800)
    assert found.full_in_s is None
    assert found.oom_probability < 0.01
    assert found.at_end_low_mib <= 380 <= found.at_end_high_mib


def test_memory_above_the_limit_is_full_now():
    found = line(np.full(20, 2000.0), end=1e5)
    assert (found.full_in_s, found.oom_probability) == (0.0, 1.0)


def test_more_work_than_planned_is_no_mistake():
    found = line(climbing(), end=10)
    assert found.at_end_mib == found.now_mib == 499


def test_need_is_the_limit_unless_the_end_lies_above_it():
    flat, steep = line(np.full(200, 300.0), end=1e6), line(climbing(), end=SPEED * 2000)
    assert needed_mib(flat) == 1000
    assert needed_mib(steep) >= steep.at_end_high_mib * 1.1
    assert needed_mib(steep) % 64 == 0


def test_memory_is_added_only_where_running_out_is_likely():
    steep = line(climbing(), end=SPEED * 2000)
    assert needed_mib(replace(steep, oom_probability=0.19)) == 1000
    assert needed_mib(replace(steep, oom_probability=0.21)) > 1000
    assert needed_mib(replace(steep, oom_probability=0.21), likely=0.3) == 1000


def test_need_is_never_below_what_is_given():
    scattered = line(np.full(200, 300.0), end=1e6)
    assert needed_mib(replace(scattered, oom_probability=1.0)) == 1000


def test_after_an_oom_a_node_gets_half_as_much_again_in_whole_steps():
    assert after_oom_mib(1024, 1000.0) == 1536
    assert after_oom_mib(1024, 1400.0) == 2112  # what it reached counts, where the kill came late
    assert after_oom_mib(1024, 0.0, factor=2.0) == 2048


def test_after_an_oom_the_cap_holds():
    assert after_oom_mib(1024, 1000.0, cap_mib=1200) == 1200
    assert after_oom_mib(1024, 1000.0, cap_mib=512) == 1024


@for_each(
    ("limit", "reached", "factor"),
    [(0, 1.0, 1.5), (100, -1.0, 1.5), (100, float("nan"), 1.5), (100, 1.0, 1.0)],
)
def test_sizes_that_cannot_be_are_refused(limit, reached, factor):
    with pytest.raises(InvalidValueError):
        after_oom_mib(limit, reached, factor=factor)


@pytest.mark.parametrize(("end", "speed"), [(-1, 1.0), (10, 0.0), (10, float("nan"))])
def test_an_outlook_needs_an_end_and_a_speed(end, speed):
    with pytest.raises(InvalidValueError):
        Outlook(end, speed)
