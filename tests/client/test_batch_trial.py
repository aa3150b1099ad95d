"""An elastic program divides the mini-batches of its first steps, and knows by them what one costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.client.batch_trial import LEAST_S, BatchTrial, line_through
from dlrover_nb.core.runtime.worker import batch_probe

POSITIVE = st.floats(1e-5, 10)


def steps(trial, fixed_s, row_s, size, n=2000):
    """Train steps; yield into how many mini-batches each was divided."""
    for _ in range(n):
        if trial.cost is not None:
            return
        parts = trial.parts(size)
        for _ in range(parts):
            trial.note(size // parts, fixed_s + row_s * (size // parts))
        yield parts


@given(st.floats(0, 0.05), st.floats(1e-5, 1e-2), st.sampled_from([8, 64, 512]))
def test_the_line_of_a_device_is_found_and_each_step_has_all_its_rows(fixed_s, row_s, size) -> None:
    trial = BatchTrial()
    trial.is_on = True
    divided = list(steps(trial, fixed_s, row_s, size, n=100_000))
    assert set(divided) >= {1, 2, 4}
    assert all(size % parts == 0 for parts in divided)
    assert trial.cost is not None
    assert trial.cost[0] == pytest.approx(fixed_s, abs=1e-7)
    assert trial.cost[1] == pytest.approx(row_s, rel=1e-3)
    assert trial.parts(size) == 1


@given(st.lists(st.tuples(st.integers(1, 4096), POSITIVE), min_size=2, max_size=5, unique_by=lambda t: t[0]))
def test_it_is_the_line_that_workers_of_ours_find(times) -> None:
    fixed_s, row_s = line_through(times)
    expected = batch_probe.line_through(times)
    assert fixed_s >= 0
    assert row_s > 0
    assert (fixed_s, row_s) == pytest.approx(expected, rel=1e-4, abs=1e-7)


@given(st.floats(1e-3, 0.01), st.floats(1e-5, 1e-3), st.lists(st.floats(1.0, 4.0), min_size=9, max_size=9))
def test_sizes_take_turns_so_that_what_the_host_does_meets_all_of_them(fixed_s, row_s, factors) -> None:
    trial, sums = BatchTrial(), dict.fromkeys((1, 2, 4), 0.0)
    trial.is_on = True
    trial.note(64, 1.0)  # which does not count
    for number in range(60):
        parts = trial.parts(64)
        took_s = (fixed_s + row_s * (64 // parts)) * factors[number % len(factors)]
        if max(sums.values()) + parts * took_s >= LEAST_S:
            break
        for _ in range(parts):
            trial.note(64 // parts, took_s)
        sums[parts] += parts * took_s
        assert max(sums.values()) - min(sums.values()) <= 4 * (4 * fixed_s + 64 * row_s), "one step at most"


def test_nothing_is_divided_unless_the_job_asks_for_it() -> None:
    trial = BatchTrial()
    assert set(steps(trial, 0.01, 0.001, 64, n=500)) == {1}
    assert trial.cost is None


def test_mini_batches_of_an_odd_size_stay_whole() -> None:
    trial = BatchTrial()
    trial.is_on = True
    assert set(steps(trial, 0.01, 0.001, 63, n=500)) == {1}
    assert trial.cost is None


def test_a_first_mini_batch_that_compiles_counts_for_nothing() -> None:
    trial = BatchTrial()
    trial.is_on = True
    trial.note(64, 100.0)
    list(steps(trial, 0.01, 0.001, 64))
    assert trial.cost == pytest.approx((0.01, 0.001), rel=1e-3)
