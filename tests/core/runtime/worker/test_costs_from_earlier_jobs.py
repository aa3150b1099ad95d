"""A worker starts with what an earlier job measured of its mini-batches, and measures where that is wrong."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.runtime.store.batches import PreparedBatch
from dlrover_nb.core.runtime.worker.batch_costs import MOST_OFF, BatchCosts
from dlrover_nb.core.runtime.worker.batch_probe import Clocks
from dlrover_nb.core.structs.plan.resources import Need

N_ROW, NEED = 64, Need(0.5, 1024)
ROWS = np.zeros((20, 5), np.float32)
BATCH = PreparedBatch(
    np.arange(20),
    (0, 20),
    np.arange(N_ROW * 3) % 20,
    np.zeros((N_ROW, 2), np.float32),
    np.zeros(N_ROW, np.float32),
)


class Device:
    """A learner whose batches take virtual time; it counts them."""

    is_on_gpu = False

    def __init__(self, fixed_s: float = 0.01, row_s: float = 0.001) -> None:
        self.fixed_s, self.row_s = fixed_s, row_s
        self.at_s, self.n_step = 0.0, 0

    def step(self, rows, _inverse, _dense, labels):
        self.at_s += self.seconds(len(labels))
        self.n_step += 1
        return SimpleNamespace(loss=0.0, rows=rows)

    def seconds(self, n_row: int, n_batch: int = 1) -> float:
        return n_batch * self.fixed_s + n_row * self.row_s

    def kept_bytes(self, _rows, _inverse, _dense, labels):
        return (1 << 20) + (1 << 16) * len(labels)

    @property
    def clocks(self) -> Clocks:
        return Clocks(lambda: self.at_s, lambda: self.at_s, lambda: 0.0)


def found(device: Device, kept=(), need: Need = NEED) -> BatchCosts:
    costs = BatchCosts(need, is_due=True, clocks=device.clocks)
    costs.take(kept)
    costs.find(device, ROWS, BATCH, 100.0)
    return costs


def kept_of(device: Device, need: Need = NEED):
    return replace(found(device, need=need).current, job="views", at_s=1.79e9)


def train(costs: BatchCosts, device: Device, n_batch: int = 200) -> None:
    for _ in range(n_batch):
        costs.check(N_ROW, 1, device.seconds(N_ROW))


def test_the_same_device_does_not_measure_again():
    kept, later = kept_of(Device()), Device()
    costs = found(later, [kept])
    assert later.n_step == 0
    assert costs.current == kept
    train(costs, later)
    assert not costs.is_due
    assert costs.current == kept


def test_another_size_of_node_is_another_device():
    kept, larger = kept_of(Device()), Device(row_s=0.0005)
    costs = found(larger, [kept], Need(1.0, 1024))
    assert larger.n_step
    assert costs.current.row_s == pytest.approx(0.0005)
    assert costs.current.job == ""
    assert costs.current.device != kept.device


@given(st.floats(0.05, 20))
def test_it_measures_itself_where_the_earlier_times_are_far_off(factor):
    before = Device()
    kept, now = kept_of(before), Device(before.fixed_s * factor, before.row_s * factor)
    costs = found(now, [kept])
    train(costs, now)
    is_off = not 1 / MOST_OFF <= factor <= MOST_OFF
    if abs(factor * MOST_OFF - 1) > 1e-6 and abs(factor / MOST_OFF - 1) > 1e-6:
        assert costs.is_due is is_off
    if costs.is_due:
        costs.find(now, ROWS, BATCH, 100.0)
        assert costs.current.fixed_s == pytest.approx(now.fixed_s)
        assert costs.current.job == ""
        train(costs, now)
        assert not costs.is_due, "its own measurement is not checked again"


def test_a_stop_by_the_quota_now_and_then_proves_nothing():
    device = Device()
    costs = found(device, [kept_of(device)])
    costs.check(N_ROW, 1, device.seconds(N_ROW) + 0.1)
    train(costs, device)
    assert not costs.is_due


def test_several_mini_batches_of_one_update_are_expected_to_take_longer():
    device = Device(fixed_s=0.1, row_s=0.0001)
    costs = found(device, [kept_of(device)])
    for _ in range(50):
        costs.check(N_ROW, 4, device.seconds(N_ROW, 4))
    assert not costs.is_due


def test_what_fits_is_counted_anew():
    kept = replace(kept_of(Device()), most=10**6)
    costs = found(Device(), [kept])
    assert costs.current.most == kept_of(Device()).most < 10**6


def test_a_node_that_gets_its_former_size_back_need_not_measure_again():
    device = Device()
    costs = found(device)
    small = costs.current
    costs.resized(Need(1.0, 1024))
    assert costs.is_due
    costs.find(device, ROWS, BATCH, 100.0)
    n_step = device.n_step
    costs.resized(NEED)
    costs.find(device, ROWS, BATCH, 100.0)
    assert device.n_step == n_step
    assert costs.current == small


def test_a_job_that_needs_no_costs_finds_none_when_it_is_resized():
    costs = BatchCosts(NEED, is_due=False)
    costs.resized(Need(1.0, 1024))
    assert not costs.is_due
