from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.memory import MemorySeries, Report


def filled(n, n_kept=20, every_s=1.0):
    series = MemorySeries(n_kept)
    for i in range(n):
        series.add(Report(every_s * i, 10 * i, 100.0 + i))
    return series


@given(n=st.integers(1, 500), n_kept=st.integers(2, 60), every_s=st.floats(0.01, 100))
def test_the_whole_course_is_kept_in_a_bounded_number(n, n_kept, every_s):
    series = filled(n, n_kept, every_s)
    kept = series.reports
    assert len(kept) <= n_kept + 1
    assert kept[0].at_s == 0
    assert kept[-1] == Report(every_s * (n - 1), 10 * (n - 1), 99.0 + n)
    assert [r.at_s for r in kept] == sorted(r.at_s for r in kept)
    assert series.span_s == kept[-1].at_s


def test_what_is_kept_is_evenly_spread():
    at_s = [r.at_s for r in filled(1000).reports[:-1]]
    gaps = {round(b - a, 6) for a, b in pairwise(at_s)}
    assert len(gaps) == 1


def test_an_empty_series_has_no_reports_and_no_span():
    assert (MemorySeries().reports, MemorySeries().span_s) == ((), 0.0)


def test_late_reports_are_left_out():
    series = filled(10)
    series.add(Report(3.0, 1, 5.0))
    assert series.reports[-1].at_s == 9.0


def test_work_done_again_is_not_new_work():
    series = MemorySeries()
    for at_s, n in [(0.0, 10), (1.0, 30), (2.0, 20), (3.0, 40)]:
        series.add(Report(at_s, n, 100.0))
    assert [r.n_sample for r in series.reports] == [10, 30, 30, 40]


@pytest.mark.parametrize("fields", [(0.0, -1, 5.0), (0.0, 1, -5.0), (0.0, 1, float("nan"))])
def test_impossible_reports_are_refused(fields):
    with pytest.raises(InvalidValueError):
        Report(*fields)
