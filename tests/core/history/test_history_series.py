"""Laws of thinning: totals stay, what happened stays apart, and once is enough."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.history.history_records import ROW

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.history.runs.compaction import DAY_S, THINNING, Thinning, thinned

LEVELS = (Thinning(600, 300), Thinning(3600, 1800))
NOW_S = 100_000.0


@st.composite
def runs(draw):
    """Rows of a run in order: spans, pauses, changes of count, any speed and memory."""
    at_s, rows = draw(st.floats(0, 50_000)), []
    for _ in range(draw(st.integers(0, 60))):
        at_s += draw(st.sampled_from([0.0, 0.0, 0.0, 20.0, 500.0]))
        span_s = draw(st.sampled_from([10.0, 60.0, 61.7, 600.0]))
        counts = {"workers": draw(st.integers(1, 2)), "ps": draw(st.integers(1, 2))}
        speed, memory = draw(st.floats(0, 1e6)), draw(st.floats(0, 1e5))
        at_s += span_s
        rows.append(
            replace(ROW, at_s=at_s, span_s=span_s, samples_per_s=speed, worker_memory_mib=memory, **counts)
        )
    return rows


def _samples(rows):
    return sum(row.samples_per_s * row.span_s for row in rows)


@pytest.mark.release
@given(runs())
def test_samples_seconds_and_peaks_stay(rows):
    after = thinned(rows, NOW_S, LEVELS)
    assert _samples(after) == pytest.approx(_samples(rows))
    for counts in {(row.workers, row.ps) for row in rows}:
        mine = [row for row in rows if (row.workers, row.ps) == counts]
        kept = [row for row in after if (row.workers, row.ps) == counts]
        assert sum(row.span_s for row in kept) == pytest.approx(sum(row.span_s for row in mine))
        assert max(r.worker_memory_mib for r in kept) == max(r.worker_memory_mib for r in mine)


@pytest.mark.more
@given(runs())
def test_middle_of_each_row_stays_covered_once_so_that_no_row_comes_twice(rows):
    after = thinned(rows, NOW_S, LEVELS)
    for row in rows:
        middle_s = row.at_s - row.span_s / 2
        assert sum(kept.at_s - kept.span_s <= middle_s < kept.at_s for kept in after) == 1


@pytest.mark.more
@given(runs())
def test_order_of_arrival_does_not_matter_and_rows_come_out_in_order(rows):
    after = thinned(rows, NOW_S, LEVELS)
    assert thinned(rows[::-1], NOW_S, LEVELS) == after
    assert [row.at_s for row in after] == sorted({row.at_s for row in after})


@pytest.mark.more
@given(runs(), st.floats(0, 1))
def test_thinning_again_changes_nothing_and_little_by_little_ends_alike(rows, share):
    after = thinned(rows, NOW_S, LEVELS)
    assert thinned(after, NOW_S, LEVELS) == after
    stepwise = thinned(thinned(rows, NOW_S * share, LEVELS), NOW_S, LEVELS)
    assert _samples(stepwise) == pytest.approx(_samples(rows))


@pytest.mark.more
@given(runs(), st.floats(0, 1e5))
def test_young_rows_stay_as_they_are(rows, at_s):
    young = [row for row in rows if row.at_s > at_s - 600]
    after = thinned(rows, at_s, LEVELS)
    assert after[len(after) - len(young) :] == young


def test_rows_of_a_year_become_rows_of_a_day():
    hours = [replace(ROW, at_s=3600.0 * i, span_s=3600.0) for i in range(1, 24 * 10 + 1)]
    after = thinned(hours, 400 * DAY_S, THINNING)
    assert [row.span_s for row in after] == [DAY_S] * 10


def test_a_pause_and_a_change_of_count_are_not_merged_over():
    rows = [ROW, replace(ROW, at_s=180.0), replace(ROW, at_s=240.0, workers=3)]
    assert thinned(rows, NOW_S, LEVELS) == rows


@for_each(("older_s", "span_s"), [(-1, 60), (0, 0), (float("nan"), 60), (0, float("nan"))])
def test_level_without_sense_is_refused(older_s, span_s):
    with pytest.raises(InvalidValueError, match="thinning must be"):
        Thinning(older_s, span_s)
