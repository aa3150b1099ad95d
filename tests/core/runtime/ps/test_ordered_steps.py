"""Gradients that a PS keeps until all of their step are there: the same bits in whichever order they come."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.node_world import FEATURES, SPEC

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import Exchange, UnitGradients
from dlrover_nb.core.runtime.ps.ordered_steps import OrderedSteps
from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.training.shards import Unit

SIZE, N_STEP, N_DENSE, WIDTH = 3, 3, 5, SPEC.model.row_width


class Served:
    """The steps of one PS, and what comes to it."""

    def __init__(self):
        self.store = ParameterStore(SPEC.model, FEATURES.n_table_row, N_DENSE)
        self.store.init_dense(np.linspace(-1, 1, N_DENSE, dtype=np.float32))
        self.steps = OrderedSteps(UpdateAges(SPEC), self.store)

    def push(self, number, worker="w0", *, n_step=None, is_skipped=False, seed=0):
        step = number // SIZE
        part = UnitGradients(Unit(step, number), 8 + number, is_skipped)
        request = Exchange(1, number + 1, n_step=step if n_step is None else n_step, part=part)
        self.steps.take(b"", worker, request, gradients_of(number, seed))

    def read(self, n_step):
        none = np.empty(0, np.int64), np.empty((0, WIDTH), np.float32), np.empty(0, np.float32)
        self.steps.take(b"", "w0", Exchange(1, 99, n_step=n_step), none)

    @property
    def bits(self):
        part = self.store.export()
        order = np.argsort(part.ids)
        return part.ids[order].tobytes(), part.table[order].tobytes(), part.dense.tobytes()


def gradients_of(number, seed=0):
    rng = np.random.default_rng((number, seed))
    rows = np.sort(rng.choice(40, 6, replace=False)).astype(np.int64)
    return rows, rng.normal(size=(6, WIDTH)).astype(np.float32), rng.normal(size=N_DENSE).astype(np.float32)


def plain_bits(skipped=()):
    served = Served()
    for number in range(SIZE * N_STEP):
        served.push(number, is_skipped=number in skipped)
    served.read(N_STEP)
    return served.bits


PLAIN = plain_bits()


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_order_of_units_any_worker_and_repetitions_give_the_same_bits(data):
    served = Served()
    for step in range(N_STEP):
        numbers = data.draw(st.permutations(range(step * SIZE, (step + 1) * SIZE)))
        again = data.draw(st.lists(st.sampled_from(numbers), max_size=3))
        for number in data.draw(st.permutations([*numbers, *again])):
            served.push(number, data.draw(st.sampled_from(["w0", "w1", "w2"])))
        if data.draw(st.booleans()):
            served.steps.settle(step + 1)  # saved, or moved, between two steps
    served.read(N_STEP)
    assert served.bits == PLAIN


def test_nothing_is_applied_before_its_step_is_complete():
    served = Served()
    before = served.bits
    for number in range(SIZE):
        served.push(number)
        assert served.bits == before
    served.read(1)
    assert served.bits != before


def test_what_is_kept_of_an_open_step_is_dropped_when_parameters_leave():
    served = Served()
    for number in range(SIZE + 1):
        served.push(number, n_step=number // SIZE)
    served.steps.settle(1)
    whole = served.bits
    served.steps.settle(1)
    served.read(2)  # a user has skipped all units of this step meanwhile
    assert served.bits == whole


def test_a_unit_that_comes_after_its_step_changes_nothing():
    served = Served()
    for number in range(SIZE):
        served.push(number)
    served.read(1)
    before = served.bits
    served.push(1, "late", seed=7)
    served.read(2)
    assert served.bits == before


def test_the_rows_of_a_skipped_unit_count_for_nothing():
    one, other = plain_bits({4}), plain_bits({4, 5})
    assert len({PLAIN, one, other}) == 3
    only_skipped = Served()
    before = only_skipped.bits
    for number in range(SIZE):
        only_skipped.push(number, is_skipped=True)
    only_skipped.read(1)
    assert only_skipped.bits == before


def test_who_brought_gradients_is_known_until_it_is_forgotten():
    served = Served()
    served.push(0, "w1")
    served.push(1, "w0")
    assert served.steps.members == ("w0", "w1")
    served.steps.forget("w1")
    assert served.steps.members == ("w0",)


def test_a_request_without_its_step_is_refused_and_so_are_broken_gradients():
    served = Served()
    with pytest.raises(WireError, match="without its step"):
        served.steps.take(b"", "w0", Exchange(1, 1), gradients_of(0))
    rows, row_gradients, dense = gradients_of(0)
    request = Exchange(1, 1, n_step=0, part=UnitGradients(Unit(0, 0), 8))
    with pytest.raises(WireError):
        served.steps.take(b"", "w0", request, (rows, np.full_like(row_gradients, np.nan), dense))
