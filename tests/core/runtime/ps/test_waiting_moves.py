"""Moves that begin before the rows of the last one are freed: they wait for that, and workers for neither."""

from __future__ import annotations

import numpy as np
import pytest
from support.master.ps_world import MODEL, N_DENSE, SIZES

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import ChunkTaken, MoveChunk
from dlrover_nb.core.runtime.ps.migration import TIDY_EVERY_S, PsMigration
from dlrover_nb.core.runtime.store import ParameterStore, StorePart, owned_buckets, store
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire import messages as m

N_ID = 4 * N_BUCKET
HALVES = tuple(int(bucket >= N_BUCKET // 2) for bucket in range(N_BUCKET))
HIGH = tuple(range(N_BUCKET // 2, N_BUCKET))


def new_store(index=0, n_ps=1):
    return ParameterStore(MODEL, N_ID, N_DENSE, index=index, n_ps=n_ps)


class Giver:
    """One PS that has just given half of its rows away, and not freed them; time passes with each step."""

    def __init__(self):
        self.at_s = 0.0
        self.migration = PsMigration("a", N_DENSE, new_store, SIZES)
        full = new_store()
        ids = np.arange(N_ID, dtype=np.int64)
        full.push(ids, np.ones((N_ID, MODEL.row_width), np.float32))
        full.init_dense(np.zeros(N_DENSE, np.float32))
        self.migration.hold(full, owned_buckets((0,) * N_BUCKET, 0), 1)
        self.migration.start_sending(m.MoveOut(2, (m.MoveTarget("ipc://b", HIGH),)), self.at_s)
        self.migration.end(m.MoveEnd(2, 0, ("ipc://a", "ipc://b"), HALVES, ()), self.at_s)
        while self.migration.arrived() is None:
            self.acknowledge(self.step())

    @property
    def n_row(self):
        return self.migration.store.n_row

    def step(self):
        self.at_s += TIDY_EVERY_S
        return self.migration.step(self.at_s)

    def acknowledge(self, sent):
        for each in sent:
            taken = ChunkTaken(each.chunk.move, each.chunk.sequence)
            self.migration.acknowledge(each.endpoint, taken, self.at_s)


@pytest.fixture
def giver(monkeypatch):
    monkeypatch.setattr(store, "_DROP", 16)
    return Giver()


def test_a_ps_sends_nothing_before_it_has_freed_what_it_sent_last(giver):
    assert giver.n_row == N_ID
    low = m.MoveTarget("ipc://b", tuple(range(N_BUCKET // 2)))
    giver.migration.start_sending(m.MoveOut(3, (low,)), giver.at_s)
    assert giver.n_row == N_ID  # nothing was freed at once
    n_step, sent = 0, []
    while not sent:
        before = giver.n_row
        sent = giver.step()
        n_step += 1
        assert before - giver.n_row <= 2 * 16
    assert giver.n_row == N_ID // 2
    assert n_step > 1
    assert all((each.part.ids % N_BUCKET < N_BUCKET // 2).all() for each in sent)


def test_rows_that_come_back_wait_until_their_old_ones_are_freed(giver):
    back = StorePart(
        np.array(HIGH[:2], np.int64),
        np.full((2, MODEL.row_width), 7, np.float32),
        0,
        np.empty((1, 0), np.float32),
    )
    chunk = MoveChunk(3, "b", 1, 0, is_last=False)
    assert giver.migration.receive(chunk, back).sequence == 0
    while giver.n_row > N_ID // 2:
        giver.step()
        assert giver.n_row >= N_ID // 2
    giver.step()
    assert giver.migration.receive(chunk, back).sequence == 1
    assert giver.n_row == N_ID // 2 + 2
    np.testing.assert_array_equal(giver.migration.store.pull(back.ids), back.table)


def test_a_move_that_is_cancelled_while_it_waits_is_never_begun(giver):
    low = m.MoveTarget("ipc://b", tuple(range(N_BUCKET // 2)))
    giver.migration.start_sending(m.MoveOut(3, (low,)), giver.at_s)
    giver.migration.cancel(3)
    for _ in range(2 * N_ID // 16):
        assert giver.step() == []
    assert giver.n_row == N_ID // 2
    assert giver.migration.progress_report(giver.at_s) is None


def test_a_chunk_that_repeats_a_row_is_refused_and_may_come_again(giver, error_words):
    while giver.n_row > N_ID // 2:
        giver.step()
    giver.step()
    values = np.full((3, MODEL.row_width), 7, np.float32)
    ids = np.array([HIGH[0], HIGH[1], HIGH[0]], np.int64)
    chunk = MoveChunk(3, "b", 1, 0, is_last=False)
    with error_words(WireError):
        giver.migration.receive(chunk, StorePart(ids, values, 0, np.empty((1, 0), np.float32)))
    assert giver.n_row == N_ID // 2
    whole = StorePart(ids[:2], values[:2], 0, np.empty((1, 0), np.float32))
    assert giver.migration.receive(chunk, whole).sequence == 1
    assert giver.n_row == N_ID // 2 + 2
