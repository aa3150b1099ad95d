"""What PS measure of each bucket: rows that they hold, exactly; rows that they serve, from a sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.ps.server import EVERY_S, LoadWindow
from dlrover_nb.core.runtime.store import ParameterStore, StorePart
from dlrover_nb.core.runtime.store.served import SAMPLE_EVERY, ServedRows, bucket_counts
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET, BucketLoad
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.wire.messages import Report

N_ID = 5_000
MODEL = ModelSpec(embedding_dim=1, hidden=(1,), optimizer=Optimizer.SGD, learning_rate=1.0)
ROWS = st.lists(st.integers(0, N_ID - 1), min_size=1, max_size=400, unique=True)


def new_store() -> ParameterStore:
    return ParameterStore(MODEL, N_ID, 4)


def push(store: ParameterStore, ids: np.ndarray) -> None:
    store.push(ids, np.ones((len(ids), MODEL.row_width), np.float32))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(["push", "absorb", "drop", "drop some"]), ROWS), max_size=8),
    st.integers(0, 2**N_BUCKET - 1),
)
def test_rows_held_are_those_of_each_bucket_whatever_came_and_went(
    acts: list[tuple[str, list[int]]], gone: int
) -> None:
    store, buckets = new_store(), np.array([bool(gone >> b & 1) for b in range(N_BUCKET)])
    for act, rows in acts:
        ids = np.array(rows, np.int64)
        if act == "push":
            push(store, ids)
        elif act == "absorb":
            table = np.zeros((len(ids), store.export().table.shape[1]), np.float32)
            store.absorb(StorePart(ids, table, 0, np.empty((1, 0), np.float32)))
        elif act == "drop":
            store.drop(buckets)
        else:
            store.begin_drop(buckets)
            while store.drop_some():
                pass
        expected = np.bincount(store.export().ids % N_BUCKET, minlength=N_BUCKET)
        np.testing.assert_array_equal(store.n_held, expected)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 2**63 - 1), max_size=50), max_size=60))
def test_served_rows_are_exact_in_sum_and_only_in_buckets_that_were_asked_for(
    requests: list[list[int]],
) -> None:
    served = ServedRows()
    for ids in requests:
        served.count(np.array(ids, np.int64))
    found = served.take()
    assert found.sum() == sum(map(len, requests))
    assert (found >= 0).all()
    asked = {row % N_BUCKET for ids in requests for row in ids}
    assert set(np.flatnonzero(found).tolist()) <= asked
    assert served.take().sum() == 0


@pytest.mark.parametrize("n_worker", [1, 2, 7, 8, SAMPLE_EVERY, 2 * SAMPLE_EVERY])
def test_workers_whose_requests_come_in_turn_are_sampled_alike(n_worker: int) -> None:
    served = ServedRows()
    for n in range(200 * SAMPLE_EVERY * n_worker):
        served.count(np.array([n % n_worker, 100]))
    found = served.take()
    share = found[:n_worker] / found[100]
    np.testing.assert_allclose(share, 1 / n_worker, rtol=0.05)


def test_pulls_and_pushes_are_served_rows_and_an_empty_request_is_none() -> None:
    store = new_store()
    store.pull(np.empty(0, np.int64))
    store.pull(np.array([3, 259]))
    push(store, np.array([3]))
    assert store.served.take().sum() == 3
    store.pull(np.array([3, 259]))
    np.testing.assert_array_equal(store.served.take(), bucket_counts(np.array([3, 3])))


SAMPLE = NodeSample("ps-0", Role.PS, 0.0, 1.0, 100, 0, 0.01, TimeSplit(lookup_s=0.002, idle_s=0.008), 0.2, 9)


def test_a_load_is_due_every_ten_seconds_with_the_busy_time_of_the_same_window() -> None:
    store, window = new_store(), LoadWindow()
    push(store, np.array([7]))
    assert window.extend(SAMPLE, store, 1) is None  # begins: what was served before it does not count
    for _ in range(2):
        for _ in range(9):
            store.pull(np.array([7, 8]))
            assert window.extend(SAMPLE, store, 1) is None
        load = window.extend(SAMPLE, store, 1)
        assert load is not None
        assert (load.window_s, load.busy_s) == (EVERY_S, pytest.approx(2.0))
        assert (load.buckets, load.n_held, load.n_served) == ((7, 8), (1, 0), (9, 9))


def test_a_window_lies_within_one_epoch() -> None:
    store, window = new_store(), LoadWindow()
    window.extend(SAMPLE, store, 1)
    for epoch in (1, 2, 2):
        store.pull(np.array([7]))
        assert window.extend(replace(SAMPLE, window_s=6.0), store, epoch) is None
    load = window.extend(replace(SAMPLE, window_s=6.0), store, 2)
    assert load is not None
    assert (load.ps_epoch, load.window_s, load.n_served) == (2, 12.0, (1,))
    assert window.extend(SAMPLE, None, -1) is None
    assert window.extend(replace(SAMPLE, window_s=60.0), store, 2) is None


def test_a_load_travels_in_a_kibibyte_and_a_report_without_one_is_read() -> None:
    n_ps = 2
    buckets = tuple(range(0, N_BUCKET, n_ps))
    load = BucketLoad(4, 10.0, 3.0, buckets, tuple(range(1000, 1128)), tuple(range(60_000, 60_128)))
    report = Report(SAMPLE, load=load)
    frames = encode(report)
    assert decode(frames)[0] == report
    assert len(frames[0]) - len(encode(Report(SAMPLE))[0]) < 1400
    old = encode(Report(SAMPLE))[0]
    assert old.count(b"\xa4load\xc0") == 1
    fields = old.replace(b"\xa4load\xc0", b"")
    fields = fields.replace(b"\x92\xa6Report\x89", b"\x92\xa6Report\x88")
    assert len(fields) < len(old)
    assert decode([fields])[0] == Report(SAMPLE)


@for_each(
    ("change", "why"),
    [
        ({"buckets": (1, 0)}, "ascending"),
        ({"buckets": (1, 256)}, "ascending"),
        ({"buckets": (-1, 1)}, "ascending"),
        ({"n_held": (1,)}, "two counts"),
        ({"n_served": (1, -1)}, "rows must be >= 0"),
        ({"window_s": 0.0}, "window_s must be > 0"),
        ({"busy_s": float("nan")}, "busy_s must be >= 0"),
    ],
)
def test_a_load_that_can_not_be_is_refused(change: dict[str, object], why: str) -> None:
    load = BucketLoad(1, 10.0, 1.0, (0, 1), (5, 5), (5, 5))
    with pytest.raises(InvalidValueError, match=why):
        replace(load, **change)  # type: ignore[arg-type]
