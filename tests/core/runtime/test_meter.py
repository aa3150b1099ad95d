from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.clock import ManualClock
from dlrover_nb.core.runtime.exchange import Exchanged, trip_of
from dlrover_nb.core.runtime.meter import Meter, Part
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.samples import TimeSplit

SHARES = st.one_of(st.just(0.0), st.floats(0, 1))
STEPS = st.lists(st.tuples(st.sampled_from(Part), st.floats(0.001, 1), SHARES), min_size=1, max_size=20)


@settings(deadline=None, max_examples=50)
@given(steps=STEPS, n_iter=st.integers(1, 5))
def test_every_moment_belongs_to_one_part(steps, n_iter):
    clock = ManualClock()
    meter = Meter(clock)
    for part, seconds, peers in steps:
        meter.switch(part)
        clock.advance(seconds)
        assert meter.switch(Part.OTHER) == pytest.approx(seconds)
        meter.share(Part.PEERS, peers)
    for _ in range(n_iter):
        meter.count(4, 0.5)
    sample = meter.take("ps0", Role.PS)
    assert sample.window_s == pytest.approx(sum(s for _, s, _ in steps))
    assert sample.iter_s * n_iter == pytest.approx(sample.window_s)
    for part in Part:
        mine = sum(s * (1 - peers) for p, s, peers in steps if p is part)
        mine += sum(s * peers for _, s, peers in steps) if part is Part.PEERS else 0
        assert getattr(sample.split, part) * n_iter == pytest.approx(mine)


def test_the_wait_for_an_exchange_is_shared_out_by_work_and_bytes():
    trip = trip_of(Exchanged(1, 1, update_s=0.3, lookup_s=0.1), 1.0, sent=100, received=200)
    assert trip.push_share == pytest.approx(0.3 + 0.6 / 3)
    assert trip_of(Exchanged(1, 1, 5.0, 1.0), 1.0, sent=0, received=0).push_share == 1.0


def test_bytes_are_counted_per_window():
    meter = Meter(ManualClock())
    meter.count_bytes(3, 4)
    meter.count_bytes(10, 20)
    sample = meter.take("w0", Role.WORKER)
    assert (sample.n_byte_sent, sample.n_byte_received) == (13, 24)
    assert meter.take("w0", Role.WORKER).n_byte_sent == 0


def test_idle_time_is_no_part_of_a_workers_iteration():
    clock = ManualClock()
    meter = Meter(clock)
    clock.advance(5)
    meter.switch(Part.COMPUTE)
    clock.advance(2)
    meter.count(10, 0.25)
    sample = meter.take("w0", Role.WORKER)
    assert (sample.window_s, sample.iter_s, sample.n_sample, sample.loss) == (7, 2, 10, 0.25)


def test_a_window_without_iterations_says_nothing_of_them():
    clock = ManualClock()
    meter = Meter(clock)
    meter.count(10, 0.25)
    meter.take("w0", Role.WORKER)
    clock.advance(1)
    sample = meter.take("w0", Role.WORKER)
    assert (sample.n_iter, sample.iter_s, sample.split, sample.loss) == (0, 0, TimeSplit(), None)
    assert sample.window_s == 1
