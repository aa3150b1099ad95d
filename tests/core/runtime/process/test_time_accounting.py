from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.virtual_time import ManualClock

from dlrover_nb.core.runtime.exchange.push_pull import Exchanged, exchange_cost
from dlrover_nb.core.runtime.process.gpu_use import VISIBLE, Gpus, gpus_here
from dlrover_nb.core.runtime.process.time_accounting import Part, TimeAccounting
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import TimeSplit

SHARES = st.one_of(st.just(0.0), st.floats(0, 1))
STEPS = st.lists(st.tuples(st.sampled_from(Part), st.floats(0.001, 1), SHARES), min_size=1, max_size=20)


@settings(deadline=None, max_examples=50)
@given(steps=STEPS, n_iter=st.integers(1, 5))
def test_every_moment_belongs_to_one_part(steps, n_iter):
    clock = ManualClock()
    accounting = TimeAccounting(clock)
    for part, seconds, peers in steps:
        accounting.switch(part)
        clock.advance(seconds)
        assert accounting.switch(Part.OTHER) == pytest.approx(seconds)
        accounting.share(Part.PEERS, peers)
    for _ in range(n_iter):
        accounting.count(4, 0.5)
    sample = accounting.take("ps0", Role.PS)
    assert sample.window_s == pytest.approx(sum(s for _, s, _ in steps))
    assert sample.iter_s * n_iter == pytest.approx(sample.window_s)
    for part in Part:
        mine = sum(s * (1 - peers) for p, s, peers in steps if p is part)
        mine += sum(s * peers for _, s, peers in steps) if part is Part.PEERS else 0
        assert getattr(sample.split, part) * n_iter == pytest.approx(mine)


DOINGS = st.lists(
    st.one_of(
        st.tuples(st.just("part"), st.sampled_from(Part), st.floats(0.001, 1), SHARES),
        st.sampled_from([("count",), ("take",), ("forget",)]),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=200)
@given(DOINGS)
def test_all_windows_of_a_worker_together_hold_each_iteration_as_long_as_it_took(doings):
    clock = ManualClock()
    accounting = TimeAccounting(clock)
    taken, open_s, counted_s, n_count = [], 0.0, 0.0, 0
    for what, *rest in [*doings, ("take",)]:
        if what == "part":
            part, seconds, peers = rest
            accounting.switch(part)
            clock.advance(seconds / 2)
            taken.append(accounting.take("w0", Role.WORKER))  # in the middle of it: nothing of it is lost
            clock.advance(seconds / 2)
            accounting.switch(Part.OTHER)
            accounting.share(Part.PEERS, peers)
            open_s += seconds * (peers if part is Part.IDLE else 1)
        elif what == "count":
            accounting.count(1, 0.0)
            counted_s, open_s, n_count = counted_s + open_s, 0.0, n_count + 1
        elif what == "forget":
            accounting.forget()
            open_s = 0.0
        else:
            taken.append(accounting.take("w0", Role.WORKER))
    assert sum(sample.n_iter for sample in taken) == n_count
    assert sum(sample.n_iter * sample.iter_s for sample in taken) == pytest.approx(counted_s)
    for sample in taken:
        assert sample.split.total_s == pytest.approx(sample.iter_s)
        assert min(getattr(sample.split, part) for part in Part) >= -1e-12


def test_an_iteration_longer_than_a_window_is_told_as_a_whole_when_it_ends():
    clock = ManualClock()
    accounting = TimeAccounting(clock)
    accounting.switch(Part.COMPUTE)
    samples = []
    for _ in range(3):
        clock.advance(1)
        samples.append(accounting.take("w0", Role.WORKER))
    accounting.count(10, 0.25)
    samples.append(accounting.take("w0", Role.WORKER))
    assert [sample.n_iter for sample in samples] == [0, 0, 0, 1]
    assert samples[-1].iter_s == samples[-1].split.compute_s == 3


def test_a_ps_that_nobody_asked_for_long_begins_each_window_anew():
    clock = ManualClock()
    accounting = TimeAccounting(clock)
    clock.advance(100)
    accounting.take("ps0", Role.PS)
    clock.advance(0.5)
    accounting.count()
    assert accounting.take("ps0", Role.PS).iter_s == 0.5


def test_the_wait_for_an_exchange_is_shared_out_by_work_and_bytes():
    trip = exchange_cost(Exchanged(1, 1, update_s=0.3, lookup_s=0.1), 1.0, sent=100, received=200)
    assert trip.push_share == pytest.approx(0.3 + 0.6 / 3)
    assert exchange_cost(Exchanged(1, 1, 5.0, 1.0), 1.0, sent=0, received=0).push_share == 1.0


def test_bytes_are_counted_per_window():
    accounting = TimeAccounting(ManualClock())
    accounting.count_bytes(3, 4)
    accounting.count_bytes(10, 20)
    sample = accounting.take("w0", Role.WORKER)
    assert (sample.n_byte_sent, sample.n_byte_received) == (13, 24)
    assert accounting.take("w0", Role.WORKER).n_byte_sent == 0


def test_idle_time_is_no_part_of_a_workers_iteration():
    clock = ManualClock()
    accounting = TimeAccounting(clock)
    clock.advance(5)
    accounting.switch(Part.COMPUTE)
    clock.advance(2)
    accounting.count(10, 0.25)
    sample = accounting.take("w0", Role.WORKER)
    assert (sample.window_s, sample.iter_s, sample.n_sample, sample.loss) == (7, 2, 10, 0.25)


def test_a_window_without_iterations_says_nothing_of_them():
    clock = ManualClock()
    accounting = TimeAccounting(clock)
    accounting.count(10, 0.25)
    accounting.take("w0", Role.WORKER)
    clock.advance(1)
    sample = accounting.take("w0", Role.WORKER)
    assert (sample.n_iter, sample.iter_s, sample.split, sample.loss) == (0, 0, TimeSplit(), None)
    assert sample.window_s == 1


class NvmlError(Exception):
    """What NVML raises."""


def played_nvml(*, has_driver=True):
    """Return the module of NVML with three GPUs; the last one is a part of a GPU and has no counts."""

    def begin():
        if not has_driver:
            raise NvmlError("Driver Not Loaded")

    def rates(handle):
        if handle == 2:
            raise NvmlError("Not Supported")
        return SimpleNamespace(gpu=(40, 90)[handle])

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=begin,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetHandleByUUID={"GPU-b": 1}.__getitem__,
        nvmlDeviceGetUtilizationRates=rates,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=(handle + 1) << 30),
    )


@pytest.mark.parametrize(
    ("visible", "use"),
    [
        ("0", (0.4, 1024)),
        ("0, 1", (0.65, 3072)),
        ("GPU-b", (0.9, 2048)),
        ("", None),
        ("2", None),
        (None, None),
    ],
)
def test_the_gpus_that_a_node_may_see_are_in_its_reports(visible, use):
    accounting = TimeAccounting(ManualClock())
    accounting.gpus = Gpus(played_nvml(), {} if visible is None else {VISIBLE: visible})
    sample = accounting.take("worker-0", Role.WORKER)
    assert (sample.gpu_busy, sample.gpu_memory_mib) == (use or (None, None))


def test_where_nothing_counts_what_gpus_do_a_node_trains_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpus_here() is None
    monkeypatch.setitem(sys.modules, "pynvml", played_nvml(has_driver=False))
    assert gpus_here() is None
    monkeypatch.setenv(VISIBLE, "1")
    monkeypatch.setitem(sys.modules, "pynvml", played_nvml())
    found = gpus_here()
    assert found is not None
    assert found.use() == (0.9, 2048)
    assert TimeAccounting(ManualClock()).take("ps-0", Role.PS).gpu_busy is None
