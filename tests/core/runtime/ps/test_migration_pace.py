"""A move while workers train: how much of the time chunks are under way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.ps_world import MODEL, N_DENSE

from dlrover_nb.core.runtime.ps.migration_source import (
    LONGEST_PAUSE_S,
    WINDOW,
    AddressedChunk,
    MigrationSource,
    Sizes,
)
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire.messages import MoveEnd, MoveOut, MoveTarget

N_ROW = 1000


def source(rest: float) -> MigrationSource:
    store = ParameterStore(MODEL, N_ROW, N_DENSE, index=0, n_ps=1)
    store.init_dense(np.zeros(N_DENSE, np.float32))
    store.push(np.arange(N_ROW), np.zeros((N_ROW, MODEL.row_width), np.float32))
    sizes = Sizes(chunk_bytes=16 * 20, ready_bytes=16 * 5, rest=rest)
    made = MigrationSource("ps-0", 2, store, dense_length=N_DENSE, sizes=sizes)
    made.begin(MoveOut(2, (MoveTarget("there", tuple(range(N_BUCKET))),)), 0.0)
    return made


def answer(moves: MigrationSource, chunks: list[AddressedChunk], at_s: float) -> None:
    for each in chunks:
        moves.acknowledge("there", each.chunk.sequence, at_s)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.5, 10.0), st.lists(st.floats(0.001, 0.02), min_size=1, max_size=20))
def test_after_chunks_nothing_is_sent_for_a_multiple_of_the_time_that_they_took(
    rest: float, trips_s: list[float]
) -> None:
    moves, at_s = source(rest), 0.0
    for trip_s in trips_s:
        sent = [chunk for _ in range(2 * WINDOW) for chunk in moves.step(at_s)]
        assert len(sent) == WINDOW
        assert moves.wait_s(at_s) == float("inf")
        answer(moves, sent, at_s + trip_s)
        wait_s = moves.wait_s(at_s + trip_s)
        assert wait_s == pytest.approx(min(rest * trip_s, LONGEST_PAUSE_S))
        assert moves.step(at_s + trip_s + wait_s / 2) == []
        at_s += trip_s + wait_s + 1e-9


def test_the_end_of_a_move_does_not_rest_as_all_workers_wait_for_it() -> None:
    moves = source(rest=3.0)
    answer(moves, [*moves.step(0.0), *moves.step(0.0)], 0.1)
    assert moves.wait_s(0.1) > 0
    moves.end(MoveEnd(2, -1, ("there",), (0,) * N_BUCKET, ()), 0.1)
    sent = 0
    while not moves.is_done:
        assert moves.wait_s(0.1) == 0
        chunks = moves.step(0.1)
        sent += sum(len(each.part.ids) for each in chunks)
        answer(moves, chunks, 0.1)
    assert sent == N_ROW - 2 * 20


def test_rows_are_pending_before_they_are_marked_and_those_that_change_go_once() -> None:
    store = ParameterStore(MODEL, N_ROW, N_DENSE, index=0, n_ps=1)
    ids, zeros = np.arange(N_ROW), np.zeros((N_ROW, MODEL.row_width), np.float32)
    store.push(ids, zeros)
    moved = np.arange(N_BUCKET) % 2 == 0
    assert store.begin_move(moved) == store.n_pending == int(moved[ids % N_BUCKET].sum())
    store.push(ids, zeros)
    assert store.n_pending == int(moved[ids % N_BUCKET].sum())
    taken = np.concatenate([store.take_pending(7).ids for _ in range(N_ROW)])
    assert sorted(taken) == [each for each in ids if moved[each % N_BUCKET]]
    store.push(ids[:10], zeros[:10])
    assert sorted(store.take_pending(N_ROW).ids) == [each for each in ids[:10] if moved[each % N_BUCKET]]
