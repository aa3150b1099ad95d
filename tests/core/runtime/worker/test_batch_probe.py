"""What a mini-batch costs, as a worker measures it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.models.learner import Learner
from dlrover_nb.core.runtime.store.batches import PreparedBatch
from dlrover_nb.core.runtime.worker.batch_probe import (
    AT_PEAK,
    MOST_S,
    Clocks,
    Room,
    Timed,
    line_through,
    measure,
    of_size,
    times_at_share,
)
from dlrover_nb.core.structs.job.job import ModelSpec

ROOM = Room(1000.0, 500.0)


class Device:
    """A learner whose batches take virtual time, and whose memory grows with rows."""

    def __init__(self, fixed_s: float, row_s: float, row_bytes: int = 1 << 16) -> None:
        self.at_s = self.cpu_s = self.waited_s = 0.0
        self.sizes = list[int]()
        self.slow_step = (-1, 1.0)  # number of a step, and how many times longer it is
        self._cost, self._row_bytes = (fixed_s, row_s), row_bytes

    def step(self, rows, _inverse, _dense, labels):
        fixed_s, row_s = self._cost
        number, factor = self.slow_step
        took_s = (fixed_s + row_s * len(labels)) * (factor if len(self.sizes) == number else 1.0)
        self.at_s, self.cpu_s = self.at_s + took_s, self.cpu_s + took_s
        self.sizes.append(len(labels))
        return SimpleNamespace(loss=0.0, rows=rows)

    def kept_bytes(self, _rows, _inverse, _dense, labels):
        return (1 << 20) + self._row_bytes * len(labels)

    @property
    def clocks(self) -> Clocks:
        return Clocks(lambda: self.at_s, lambda: self.cpu_s, lambda: self.waited_s)


class QuotaDevice(Device):
    """One that computes alone, and that a quota stops: `share` of each period of 20 ms is its own."""

    period_s = 0.02

    def __init__(self, fixed_s: float, row_s: float, share: float) -> None:
        super().__init__(fixed_s, row_s)
        self._left_s = self._quota_s = share * self.period_s

    def step(self, rows, _inverse, _dense, labels):
        left_s = self._cost[0] + self._cost[1] * len(labels)
        self.cpu_s += left_s
        while left_s > self._left_s:
            stopped_s = (self.at_s + self._left_s) // self.period_s * self.period_s + self.period_s
            self.waited_s += stopped_s - self.at_s - self._left_s
            self.at_s, left_s, self._left_s = stopped_s, left_s - self._left_s, self._quota_s
        self.at_s, self._left_s = self.at_s + left_s, self._left_s - left_s
        return SimpleNamespace(loss=0.0, rows=rows)


def batch(n_row: int = 64, n_slot: int = 3) -> PreparedBatch:
    rng = np.random.default_rng(0)
    inverse = rng.integers(0, 20, n_row * n_slot)
    dense = rng.normal(size=(n_row, 2)).astype(np.float32)
    return PreparedBatch(np.arange(20), (0, 20), inverse, dense, np.zeros(n_row, np.float32))


ROWS = np.random.default_rng(1).normal(size=(20, 5)).astype(np.float32)


@given(st.floats(0, 0.05), st.floats(1e-5, 1e-3))
def test_the_line_of_a_device_is_found(fixed_s, row_s):
    device = Device(fixed_s, row_s)
    cost = measure(device, ROWS, batch(), ROOM, clocks=device.clocks)
    assert cost.fixed_s == pytest.approx(fixed_s, abs=1e-6)
    assert cost.row_s == pytest.approx(row_s, rel=1e-3)
    assert {16, 32, 64, 128} == set(device.sizes)


@given(st.floats(1e-4, 0.005), st.floats(2e-5, 5e-4), st.floats(0.1, 0.9))
def test_the_line_of_a_device_is_found_however_a_quota_stops_it(fixed_s, row_s, share):
    device = QuotaDevice(fixed_s, row_s, share)
    cost = measure(device, ROWS, batch(), ROOM, clocks=device.clocks)
    assert cost.fixed_s / cost.row_s == pytest.approx(fixed_s / row_s, rel=1e-3)
    assert cost.row_s == pytest.approx(row_s / share, rel=0.15)


@given(
    st.lists(st.tuples(st.floats(1e-4, 5), st.floats(0, 0.95), st.floats(0.05, 8)), min_size=2, max_size=4)
)
def test_all_sizes_together_take_the_time_that_they_took(parts):
    timed = [
        Timed(n + 1, 10, mean_s, (1 - waited) * mean_s, cores * (1 - waited) * mean_s)
        for n, (mean_s, waited, cores) in enumerate(parts)
    ]
    times = times_at_share(timed)
    assert sum(seconds for _, seconds in times) == pytest.approx(sum(each.mean_s for each in timed), rel=1e-6)
    for each, (_, seconds) in zip(timed, times, strict=True):
        assert seconds >= each.alone_s


@given(st.floats(0, 0.005), st.floats(1e-5, 1e-4), st.floats(1, 50))
def test_one_moment_of_the_host_changes_no_line(fixed_s, row_s, factor):
    device = Device(fixed_s, row_s)
    device.slow_step = (6, factor)
    cost = measure(device, ROWS, batch(), ROOM, clocks=device.clocks)
    assert cost.fixed_s / cost.row_s == pytest.approx(fixed_s / row_s, abs=1e-3, rel=1e-3)


@given(st.floats(0, 2), st.floats(1e-4, 1.0))
def test_a_slow_device_is_not_measured_for_long(fixed_s, row_s):
    device = Device(fixed_s, row_s)
    measure(device, ROWS, batch(), ROOM, clocks=device.clocks)
    first_s = 3 * (fixed_s + 16 * row_s)
    assert device.at_s <= first_s + 3 * MOST_S + 1.0


@given(st.lists(st.floats(1e-4, 10), min_size=4, max_size=4))
def test_neither_part_is_below_zero_whatever_was_measured(seconds):
    fixed_s, row_s = line_through(list(zip((16, 32, 64, 128), seconds, strict=True)))
    assert fixed_s >= 0
    assert row_s > 0


def test_what_fits_is_what_memory_has_left_and_never_less_than_the_rows_at_hand():
    learner = Learner(ModelSpec(embedding_dim=4, hidden=(64, 64)), 3, 2)
    n_row = 64
    kept = [
        learner.kept_bytes(ROWS, each.inverse, each.dense, each.labels)
        for each in (of_size(batch(), 32), batch())
    ]
    row_bytes = AT_PEAK * (kept[1] - kept[0]) / 32
    assert row_bytes > AT_PEAK * 4 * 64 * 2  # two layers of activations
    cost = measure(learner, ROWS, batch(), Room(100.0, 90.0))
    assert cost.most == pytest.approx(10 * 2**20 / row_bytes, abs=1)
    crowded = measure(learner, ROWS, batch(), Room(100.0, 500.0))
    assert crowded.most == n_row, "the rows at hand fit"


def test_what_a_batch_keeps_is_counted_whole_each_time():
    learner, whole = Learner(ModelSpec(embedding_dim=4, hidden=(64, 64)), 3, 2), batch()
    counts = {learner.kept_bytes(ROWS, whole.inverse, whole.dense, whole.labels) for _ in range(40)}
    assert len(counts) == 1, (
        "a tensor that is gone has its address taken by another, which then counts for both"
    )


def test_no_size_is_tried_that_does_not_fit():
    device = Device(0.01, 1e-4)
    cost = measure(device, ROWS, batch(), Room(102.0, 100.0), clocks=device.clocks)
    assert cost.most == 64
    assert set(device.sizes) == {16, 32, 64}


def test_measuring_leaves_the_parameters_as_they_are():
    learner = Learner(ModelSpec(embedding_dim=4, hidden=(8,)), 3, 2)
    before, rows = learner.values.copy(), ROWS.copy()
    measure(learner, rows, batch(8), ROOM)
    np.testing.assert_array_equal(learner.values, before)
    np.testing.assert_array_equal(rows, ROWS)


def test_a_batch_of_another_size_has_the_same_rows_again_and_again():
    small, large = of_size(batch(4), 2), of_size(batch(4), 10)
    np.testing.assert_array_equal(small.inverse, batch(4).inverse[:6])
    np.testing.assert_array_equal(large.dense[4:8], batch(4).dense)
    assert len(large.labels) == 10
