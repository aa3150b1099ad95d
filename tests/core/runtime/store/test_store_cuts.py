"""A copy that is made while the store changes is, bit for bit, the one that would have stopped it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import every_kernel, push_as_requests_do  # noqa: F401 - the first repeats tests on each kernel
from support.waiting import LIMIT_S

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints import Layout
from dlrover_nb.core.runtime.checkpoints.image import parse
from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import image_of
from dlrover_nb.core.runtime.kernels import copying, kernel
from dlrover_nb.core.runtime.store import ParameterStore, StorePart, cut
from dlrover_nb.core.runtime.store import store as store_module
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

MODEL = ModelSpec(embedding_dim=3, seed=5, embedding=Embedding.HASH)
N_ID, N_DENSE, N_CHUNK = 3000, 5, 40
ALL = np.ones(N_BUCKET, np.bool_)


class Stream:
    """Changes of a store, each one of its own kind."""

    def __init__(self, seed, store):
        self.rng, self.store = np.random.default_rng(seed), store
        self.is_dropping, self.gone = False, ~ALL  # buckets of others

    def ids(self, n=60):
        return self.mine(self.rng.choice(N_ID, n, replace=False).astype(np.int64) * 1_844_674_407)

    def mine(self, ids):
        return ids[~self.gone[ids % N_BUCKET]]

    def push(self):
        ids, push = self.ids(), push_as_requests_do if self.rng.random() < 0.7 else ParameterStore.push
        push(self.store, ids, self.rng.normal(size=(len(ids), MODEL.row_width)).astype(np.float32))
        self.store.push_dense(self.rng.normal(size=N_DENSE).astype(np.float32))

    def push_nan(self):
        """Let rows become NaN, as by steps that are each finite; no gradient can make them that."""
        ids = self.ids(5)
        self.store.push(ids, np.zeros((len(ids), MODEL.row_width), np.float32))
        rows = self.store._rows
        rows.table[rows.find(ids)] = np.nan

    def absorb(self):
        ids, width = self.ids(30), self.store.export().table.shape[1]
        table = self.rng.random((len(ids), width), np.float32)
        self.store.absorb(StorePart(ids, table, 0, np.empty((2, 0), np.float32)))

    def grow(self):
        ids = self.mine((N_ID + self.rng.choice(1 << 30, 500, replace=False)).astype(np.int64))
        self.store.push(ids, np.ones((len(ids), MODEL.row_width), np.float32))

    def drop(self):
        """Begin to free the rows of some buckets, or take a step of that."""
        if not self.is_dropping:
            self.store.begin_drop(self.rng.random(N_BUCKET) < 0.2)
        self.is_dropping = self.store.drop_some()

    def end_drop(self):
        while self.is_dropping:
            self.drop()

    def change(self, kinds):
        for kind in kinds:
            getattr(self, kind)()


KINDS = ("push", "push_nan", "absorb", "grow", "drop")
BURSTS = st.lists(st.lists(st.sampled_from(KINDS), max_size=4), min_size=1, max_size=12)


def make(seed=0):
    store = ParameterStore(MODEL, 1, N_DENSE)
    store.init_dense(np.linspace(-1, 1, N_DENSE, dtype=np.float32))
    stream = Stream(seed, store)
    for _ in range(30):
        stream.push()
    return store, stream


def stopped(store):
    """What a checkpoint holds that stops the store."""
    return np.concatenate(list(Layout(image_of(store.export())).chunks()))


def begun(store):
    """Cut a store; return the cut, the memory for its copy, and what makes that."""
    made = store.cut()
    layout = Layout(image_of(made.part))
    body = np.full(layout.n_byte, 7, np.uint8)
    return made, body, lambda: made.copy_to(layout.views(body))


@pytest.fixture(autouse=True)
def small_chunks_and_blocks(monkeypatch):
    row_bytes = 8 + 4 * 8
    monkeypatch.setattr(cut, "_BLOCK_ROWS", 100)
    monkeypatch.setattr(cut, "CHUNK_BYTES", N_CHUNK * row_bytes)
    monkeypatch.setattr(store_module, "_DROP", 100)


@pytest.mark.more
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 99), BURSTS)
def test_changes_between_any_two_chunks_are_not_in_the_copy(seed, bursts):
    store, stream = make(seed)
    expected, waiting = stopped(store), list(bursts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "copying", copying.NumpyCopying)
        made, body, copy = begun(store)
        patch.setattr(copying.time, "sleep", lambda _: waiting and stream.change(waiting.pop()))
        copy()
    assert made.is_copied
    np.testing.assert_array_equal(body, expected)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(6))
def test_changes_at_any_moment_are_not_in_the_copy(seed, monkeypatch):
    monkeypatch.setattr(cut, "PAUSE_S", 1e-4)
    store, stream = make(seed)
    for _ in range(5):
        stream.end_drop()
        expected = stopped(store)
        _, body, copy = begun(store)
        thread, n_change = threading.Thread(target=copy), 0
        thread.start()
        while thread.is_alive() or not n_change:
            kind = KINDS[int(stream.rng.integers(len(KINDS)))] if seed % 2 else "push"
            stream.change(() if kind == "push_nan" else (kind,))
            n_change += 1
        thread.join(LIMIT_S)
        np.testing.assert_array_equal(body, expected)


def copied(store):
    _, body, copy = begun(store)
    copy()
    return body


def in_order(body):
    """What an image holds, by id."""
    arrays = parse(body, "a copy").arrays
    order = np.argsort(arrays["ids"])
    return [arrays["ids"][order], arrays["table"][order], arrays["dense"]]


@pytest.mark.more
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 99), BURSTS, st.sets(st.integers(0, N_BUCKET - 1), min_size=1), st.integers(0, 4))
def test_a_cut_amid_freeing_rows_is_the_one_after_it(seed, bursts, chosen, n_step):
    gone = np.isin(np.arange(N_BUCKET), list(chosen))
    (store, stream), (twin, _) = make(seed), make(seed)
    copied(store)
    twin.drop(gone)
    expected, n_before, waiting = in_order(copied(twin)), store.n_row, list(bursts)
    store.begin_drop(gone)
    for _ in range(n_step):
        store.drop_some()
    is_untidy, stream.gone = gone[store.export().ids % N_BUCKET].any(), gone
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "copying", copying.NumpyCopying)
        made, body, copy = begun(store)
    assert made.chooses == is_untidy
    assert (made.changed is None) == (is_untidy or store.n_row < n_before)

    def change(_pause_s):
        n_row = store.n_row
        assert store.drop_some() == is_untidy  # nothing is freed meanwhile
        assert store.n_row == n_row
        stream.change(kind for kind in (waiting.pop() if waiting else ()) if kind != "drop")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying.time, "sleep", change)
        copy()
    for found, of_twin in zip(in_order(body), expected, strict=True):
        np.testing.assert_array_equal(found, of_twin)
    while store.drop_some():  # goes on afterwards
        pass
    assert not gone[store.export().ids % N_BUCKET].any()


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_left_out_while_others_change_at_any_moment(seed, monkeypatch):
    monkeypatch.setattr(cut, "PAUSE_S", 1e-4)
    store, stream = make(seed)
    stream.gone = stream.rng.random(N_BUCKET) < 0.5
    twin, _ = make(seed)
    twin.drop(stream.gone)
    expected = in_order(copied(twin))
    store.begin_drop(stream.gone)
    store.drop_some()
    _, body, copy = begun(store)
    thread, n_change = threading.Thread(target=copy), 0
    thread.start()
    while thread.is_alive() or not n_change:
        stream.push()
        store.drop_some()
        n_change += 1
    thread.join(LIMIT_S)
    for found, of_twin in zip(in_order(body), expected, strict=True):
        np.testing.assert_array_equal(found, of_twin)


def test_cuts_follow_each_other_with_changes_of_the_table_between(monkeypatch):
    store, stream = make()
    monkeypatch.setattr(cut, "PAUSE_S", 0.0)
    for kinds in (("drop", "drop", "push"), ("grow",), ("absorb", "push"), ()):
        stream.change(kinds)
        stream.end_drop()
        expected = stopped(store)
        _, body, copy = begun(store)
        copy()
        stream.push()
        np.testing.assert_array_equal(body, expected)


def test_the_kernel_serves_while_a_copy_is_made_where_there_is_room_for_what_it_saves():
    store, stream = make()
    expected = stopped(store)
    made, body, copy = begun(store)
    served = []
    for n in (60, 90, 30, 60, 60):  # almost half of them are saved, the others are new
        ids = stream.ids(n)
        served.append(push_as_requests_do(store, ids, np.ones((n, MODEL.row_width), np.float32)))
    assert made._n_saved > 100
    if kernel().NAME == "c":
        assert served[:2] == [True, False]  # 100 rows have room in a block
        assert True in served[2:]
    copy()
    np.testing.assert_array_equal(body, expected)
    is_served = push_as_requests_do(store, ids, np.ones((n, MODEL.row_width), np.float32))
    assert is_served == (kernel().NAME == "c")


def test_an_empty_store_has_an_empty_copy():
    store = ParameterStore(MODEL, 1, N_DENSE)
    expected = stopped(store)
    made, body, copy = begun(store)
    assert made.is_copied
    copy()
    np.testing.assert_array_equal(body, expected)


def test_what_is_not_finite_at_the_cut_is_refused_whatever_comes_later(error_words):
    store, stream = make()
    stream.push_nan()
    _, _, copy = begun(store)
    with error_words(CheckpointError):
        copy()


def set_dense(store, value):
    """Let the dense slice become this value, as by steps that are each finite."""
    dense = np.full_like(store.export().dense, value)
    store.load_dense(StorePart(np.empty(0, np.int64), np.empty((0, 1), np.float32), 0, dense))


@pytest.mark.parametrize("where", ["rows", "dense"])
def test_what_is_not_finite_and_replaced_while_it_is_copied_is_refused_too(where, error_words):
    store, stream = make()
    if where == "rows":
        stream.push_nan()
    else:
        set_dense(store, np.inf)
    _, body, copy = begun(store)
    part = store.export()
    ids = part.ids.copy()
    store.absorb(StorePart(ids, np.ones_like(part.table), 0, np.empty((2, 0), np.float32)))
    set_dense(store, 1.0)
    with error_words(CheckpointError):
        copy()
    assert not np.isfinite(body[64:].view(np.float32)).all()


def test_a_copy_that_is_given_up_ends_with_an_error_and_nothing_is_saved_any_more():
    store, stream = make()
    made, _, copy = begun(store)
    made.stop()
    stream.push()
    assert made._n_saved == 0
    assert store._rows.cut is None
    with pytest.raises(CheckpointError, match="other parameters"):
        copy()


def test_changes_wait_for_the_copy_where_saved_rows_take_too_much_memory(monkeypatch):
    monkeypatch.setattr(cut, "_LEAST_SAVED", 100)
    monkeypatch.setattr(cut, "_MOST_SAVED", 1 << 20)
    store, stream = make()
    expected = stopped(store)
    made, body, copy = begun(store)
    pushed, began = [], threading.Event()

    def change():
        for _ in range(8):
            stream.push()
            pushed.append(made._n_saved)
            began.set()

    thread = threading.Thread(target=change)
    thread.start()
    assert began.wait(LIMIT_S)
    copy()
    thread.join(LIMIT_S)
    assert len(pushed) == 8
    assert max(pushed) <= 100 + 60
    np.testing.assert_array_equal(body, expected)


def test_the_loops_in_c_are_those_in_numpy():
    if kernel().NAME == "c":
        assert isinstance(copying.copying(), copying.CompiledCopying), (
            "build the library again: setup.py build_ext"
        )
    rng, n, loops = np.random.default_rng(0), 500, (copying.NumpyCopying(), copying.copying())
    ids, table, gone = rng.integers(0, 1 << 60, n), rng.random((n, 8), np.float32), rng.random(N_BUCKET) < 0.3
    slots, saved = rng.permutation(n)[:200].astype(np.int32), rng.random(n - 100) < 0.5
    n_stay = np.count_nonzero(~gone[ids % N_BUCKET])
    found = []
    for each in loops:
        to = np.zeros(n, np.int64), np.zeros((n, 8), np.float32)
        progress, marks = copying.Progress(), saved.copy()
        is_finite = each.copy_rows(to, (ids, table), 64, 0.0, progress)
        rows = np.zeros(200, np.int32), np.zeros((200, 8), np.float32)
        n_saved = each.save_rows(rows, table, slots, marks, 50)
        each.put_rows(to[1], rows[0][:n_saved], -rows[1][:n_saved])
        few, choice = (np.zeros(n_stay, np.int64), np.zeros((n_stay, 8), np.float32)), copying.Choice(gone, n)
        assert each.copy_rows(few, (ids, table), 64, 0.0, copying.Progress(), choice) == is_finite
        small = few[0][1:].copy(), few[1][1:].copy()
        again = copying.Choice(gone, n)
        assert each.copy_rows(small, (ids, table), 64, 0.0, copying.Progress(), again) == copying.STOPPED
        put = choice.placed(rows[0][:n_saved], rows[1][:n_saved])
        found.append([*to, *rows, *few, *put, choice.place, marks, is_finite, n_saved, progress.n_done])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert 0 < found[0][-2] < 200
    assert found[0][-1] == n
    np.testing.assert_array_equal(few[0], ids[~gone[ids % N_BUCKET]])
    assert 0 < len(put[0]) < n_saved


@pytest.mark.parametrize("first", range(0, 17, 3))
@pytest.mark.parametrize("stride", [1, 3, 34])
def test_rows_are_copied_and_looked_at_wherever_they_lie(first, stride):
    rng, n = np.random.default_rng(first), 40
    for each in (copying.NumpyCopying(), copying.copying()):
        for bad in (None, *rng.integers(0, n * stride, 20), 0, n * stride - 1):
            table = rng.standard_normal((n, stride)).astype(np.float32)
            if bad is not None:
                table.flat[bad] = rng.choice([np.nan, np.inf, -np.inf])
            whole = np.full(first + n * stride + 40, 7, np.float32)
            to = np.zeros(n, np.int64), whole[first : first + n * stride].reshape(n, stride)
            ids = rng.integers(0, 1 << 60, n)
            is_finite = each.copy_rows(to, (ids, table), int(rng.integers(1, n + 9)), 0.0, copying.Progress())
            assert is_finite == (bad is None)
            np.testing.assert_array_equal(to[0], ids)
            np.testing.assert_array_equal(to[1].view(np.uint32), table.view(np.uint32))
            assert (whole[:first] == 7).all()
            assert (whole[first + n * stride :] == 7).all()
