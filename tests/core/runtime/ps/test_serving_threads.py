"""Threads that serve a store together give what one after another would give."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import defaultdict
from ctypes import sizeof
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import needs_c
from support.runtime.slab_world import World
from support.waiting import LIMIT_S

from dlrover_nb.core.runtime.exchange.shared_block import aligned
from dlrover_nb.core.runtime.kernels import VARIABLE, maps
from dlrover_nb.core.runtime.kernels.bell_requests import Answer, Bell, Outcome, Request
from dlrover_nb.core.runtime.store import ParameterStore, cut
from dlrover_nb.core.structs.job.job import Averages, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding, Optimizer
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

pytestmark = needs_c

N_ID, N_DENSE, N_WORKER = 4000, 3001, 4
MODEL = ModelSpec(embedding_dim=8, hidden=(2,), seed=5)
MODELS = [
    replace(MODEL, optimizer=optimizer, embedding=embedding, n_dense=N_DENSE, averages=(Averages(700, 0.1),))
    for optimizer in Optimizer
    for embedding in Embedding
]
WIDTH = MODEL.row_width
SLAB = 1 << 20
# A gradient for each row: as all updates of a row are the same, their order does not matter to any bit.
GRADIENTS = np.random.default_rng(0).normal(size=(N_ID, WIDTH)).astype(np.float32)
DENSE = np.random.default_rng(1).normal(size=N_DENSE).astype(np.float32)


class Ringer:
    """A worker's slab and pipes, and the PS's side of them."""

    def __init__(self):
        self.slab = np.zeros(SLAB + 64, np.uint8)
        self.slab = self.slab[-self.slab.ctypes.data % 64 :][:SLAB]
        self.pipes = [*os.pipe(), *os.pipe()]
        for each in self.pipes:
            os.set_blocking(each, False)
        ask, self._ask, self.answers, answered = self.pipes
        self.bell = Bell(self.slab.ctypes.data, SLAB, ask, answered, step=-1, is_open=True)
        self.step = 0

    def close(self):
        for each in self.pipes:
            os.close(each)

    def ask(self, push, pull, gradients=GRADIENTS, dense=DENSE, epoch=1):
        """Ring for a request with the gradients of rows, and a dense one unless nothing is pushed."""
        parts = [push, gradients[push], dense if len(push) else dense[:0], pull]
        at = 0
        for part in parts:
            data = np.ascontiguousarray(part).view(np.uint8).ravel()
            self.slab[at : at + len(data)] = data
            at += aligned(len(data))
        self.step += 1
        self.pulled, self.answer_at = len(pull), at
        rung = Request(epoch, self.step, 0, len(push), WIDTH, len(parts[2]), len(pull), at, 1.0)
        assert os.write(self._ask, bytes(rung)) == sizeof(Request)

    def take(self):
        """Return the rows and the dense parameters of the answer that is here."""
        answer = Answer.from_buffer_copy(os.read(self.answers, sizeof(Answer)))
        assert (answer.step, answer.n_row) == (self.step, self.pulled)
        rows = self.slab[self.answer_at :][: 4 * WIDTH * self.pulled].view(np.float32)
        dense = self.slab[self.answer_at + aligned(rows.nbytes) :][: 4 * N_DENSE].view(np.float32)
        return rows.reshape(-1, WIDTH).copy(), dense.copy()


def new_store(model, kernel="c"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, kernel)
        store = ParameterStore(model, N_ID, N_DENSE)
    store.init_dense(np.zeros(N_DENSE, np.float32))
    return store


class Service:
    """A store whose requests are served in a thread, as a PS serves them, until all are answered."""

    def __init__(self, store, n_thread):
        self.store, self.n_thread, self.n_created = store, n_thread, 0
        self.ringers = [Ringer() for _ in range(N_WORKER)]
        self._over, self._wake = os.pipe()

    def __enter__(self):
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_):
        os.write(self._wake, b"x")
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        for each in (self._over, self._wake):
            os.close(each)
        for each in self.ringers:
            each.close()

    def _serve(self):
        bells = [each.bell for each in self.ringers]
        while not select.select([self._over], [], [], 0)[0]:
            self.serve(bells)

    def serve(self, bells):
        server = self.store.plain_server(1)
        server.serve(bells, [self._over], LIMIT_S, n_thread=self.n_thread)
        self.store.settle(server)
        for bell in bells:
            if bell.pending:  # as `rung` does; Adam's step sizes are given for some steps ahead
                if bell.pending == Outcome.MAP_GROWS:
                    self.store.create_rows(self._pushed(bell))
                    self.n_created += 1
                else:
                    assert self.store._rule.is_adam
                server = self.store.plain_server(1)
                server.serve_one(bell)
                self.store.settle(server)
                assert bell.pending == Outcome.ANSWERED

    def _pushed(self, bell):
        ringer = next(each for each in self.ringers if each.bell is bell)
        return ringer.slab[: 8 * bell.request.n_push].view(np.int64).copy()

    def train(self, plan):
        """Let each worker exchange its batches, one after the other; return what each got."""
        left = [list(reversed(batches)) for batches in plan]
        found = [[] for _ in plan]
        poll = select.poll()
        for ringer, batches in zip(self.ringers, left, strict=True):
            poll.register(ringer.answers, select.POLLIN)
            ringer.ask(*batches.pop())
        n_left = sum(map(len, plan))
        while n_left:
            ready = {descriptor for descriptor, _ in poll.poll(1000 * LIMIT_S)}
            assert ready
            for worker, ringer in enumerate(self.ringers):
                if ringer.answers in ready:
                    found[worker].append(ringer.take())
                    n_left -= 1
                    if left[worker]:
                        ringer.ask(*left[worker].pop())
        return found


def in_order(store):
    """Return all of a store, in the order of its ids, with the marks of changed rows."""
    part, order = store.export(), np.argsort(store.export().ids)
    changed = store._rows._changed.array[: store.n_row]
    return [
        part.ids[order],
        part.table[order],
        changed[order],
        part.dense,
        store.n_held,
        store.served.take().sum(),
    ]


def draw(rng, n_batch, n_row, n_id=N_ID):
    """Return batches of rows to push and to pull, for each worker."""
    return [
        [tuple(rng.choice(n_id, n_row, replace=False) for _ in range(2)) for _ in range(n_batch)]
        for _ in range(N_WORKER)
    ]


@pytest.mark.more
@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m.optimizer}-{m.embedding}")
@settings(deadline=None, max_examples=4)
@given(
    seed=st.integers(0, 2**32), n_thread=st.sampled_from([2, 3, 8]), n_row=st.sampled_from([30, 900]),
    early=st.sampled_from([300, 20_000]),
)  # fmt: skip
def test_no_update_is_lost_and_every_row_is_made_once(model, seed, n_thread, n_row, early):
    plan = draw(np.random.default_rng(seed), 12, n_row)
    alone, together = new_store(model, "numpy"), new_store(model)
    for batch in (batch for batches in plan for batch in batches):
        alone.push(batch[0], GRADIENTS[batch[0]])
        alone.push_dense(DENSE)
        alone.pull(batch[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "_EARLY", early / (12 * maps.N_LINE))
        with Service(together, n_thread) as service:
            service.train(plan)
    for mine, theirs in zip(in_order(together), in_order(alone), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (service.n_created > 0) == (model.embedding is Embedding.HASH and early < alone.n_row)
    if model.optimizer is Optimizer.ADAM:
        assert together._rates._most_steps == alone._rates._most_steps


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**32), n_thread=st.sampled_from([2, 4]))
def test_sums_of_different_updates_are_the_serial_ones_where_addition_is_exact(seed, n_thread):
    """SGD at a rate of 1/4 with gradients that are small integers: sums have no rounding."""
    model = replace(MODEL, optimizer=Optimizer.SGD, learning_rate=0.25)
    rng, expected = np.random.default_rng(seed), np.zeros(N_DENSE)
    of_rows = np.zeros(N_ID)
    with Service(new_store(model), n_thread) as service:
        for _ in range(15):
            plan = draw(rng, 1, 300, 400)
            for ringer, ((push, pull),) in zip(service.ringers, plan, strict=True):
                rows, dense = (
                    rng.integers(-8, 9, size).astype(np.float32) for size in ((N_ID, WIDTH), N_DENSE)
                )
                expected -= dense / 4
                of_rows[push] -= rows[push, -1] / 4
                ringer.ask(push, pull, rows, dense)
            for ringer in service.ringers:
                assert select.select([ringer.answers], [], [], LIMIT_S)[0]
                ringer.take()
    found = service.store.export()
    np.testing.assert_array_equal(found.dense[0], expected)
    np.testing.assert_array_equal(
        found.table[:, WIDTH - 1], of_rows[found.ids]
    )  # the wide weight begins at 0


@pytest.mark.parametrize("optimizer", Optimizer)
def test_a_row_is_read_as_some_update_left_it_and_no_older_than_ones_own(optimizer):
    model, n_batch, n_row = replace(MODEL, optimizer=optimizer), 150, 60
    alone, ids = new_store(model, "numpy"), np.arange(n_row)
    states, dense_states = [alone.pull(ids)], [alone.dense]
    for _ in range(N_WORKER * n_batch):
        alone.push(ids, GRADIENTS[ids])
        alone.push_dense(DENSE)
        states.append(alone.pull(ids))
        dense_states.append(alone.dense)
    steps = defaultdict(dict)
    for step, rows in enumerate(states):
        for row, values in enumerate(rows):
            steps[row].setdefault(values.tobytes(), step)
    with Service(new_store(model), 3) as service:
        found = service.train([[(ids, ids)] * n_batch for _ in range(N_WORKER)])
    firsts = np.array(dense_states)[:, 0]
    for answers in found:
        before = np.zeros(n_row, int)
        for rows, dense in answers:
            now = np.array([steps[row][values.tobytes()] for row, values in enumerate(rows)])
            assert (now > before).all()
            before = now
            step = int(np.flatnonzero(firsts == dense[0])[0])
            stripe = N_DENSE // 64
            np.testing.assert_array_equal(dense[:stripe], dense_states[step][:stripe])


PF_EXITING = 0x4  # of the kernel


def threads_here():
    """Return the threads of this process, without those on their way out: a joined one is listed a moment longer."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            flags = int((task / "stat").read_text().rpartition(")")[2].split()[6])
            if not flags & PF_EXITING:
                found.add(task.name)
    return found


def test_all_threads_have_ended_when_python_has_something_to_do():
    store = new_store(MODEL)
    service = Service(store, 4)
    before, server = threads_here(), store.plain_server(1)
    for i, ringer in enumerate(service.ringers):
        ringer.ask(np.arange(500), np.arange(500), epoch=1 + (i == 2))
    server.serve([each.bell for each in service.ringers], [], LIMIT_S, n_thread=4)  # ends long before
    store.settle(server)
    assert threads_here() <= before
    assert [each.bell.pending for each in service.ringers] == [0, 0, Outcome.NOT_PLAIN, 0]
    served = sum(each.bell.step == 1 for each in service.ringers)
    asked = sum(bool(select.select([each.bell.ask], [], [], 0)[0]) for each in service.ringers)
    assert served + asked == 3  # what was not served is still in its pipe
    assert server.parameters.n_answered == served
    assert not any(each.bell.is_held for each in service.ringers)
    for each in service.ringers:
        each.close()
    for each in (service._over, service._wake):
        os.close(each)


def assert_copied_as_it_is(store, change):
    """Assert that a copy of a store does not hold what changes while it is made."""
    before = {name: getattr(store.export(), name).copy() for name in ("ids", "table", "dense")}
    copied = {name: np.empty_like(array) for name, array in before.items()}
    thread = threading.Thread(target=store.cut().copy_to, args=(copied,))
    thread.start()
    while thread.is_alive():
        change()
    thread.join(LIMIT_S)
    for name, array in before.items():
        np.testing.assert_array_equal(copied[name], array)


@pytest.mark.parametrize("n_row_of_a_block", [400, 1 << 16])
def test_cuts_and_moves_amid_requests_of_threads_are_whole(tmp_path, monkeypatch, n_row_of_a_block):
    monkeypatch.setattr(cut, "_BLOCK_ROWS", n_row_of_a_block)
    monkeypatch.setattr(cut, "CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(cut, "PAUSE_S", 1e-4)
    rng, workers = np.random.default_rng(0), [f"w{i}" for i in range(4)]
    with World(tmp_path / "c", 1, kernel="c") as world:
        (store,), world.servings[0].rung.n_thread = world.stores, 3

        def exchange(n_round):
            for _ in range(n_round):
                for worker in workers:
                    push = replace(world.push(rng, 300), rate=1.0)
                    world.client(worker).start(push, push.batch)
                for worker in workers:
                    world.client(worker).finish(np.empty(store.answer_shape[1], np.float32))

        exchange(3)
        for _ in range(3):
            assert_copied_as_it_is(store, lambda: exchange(1))
            exchange(2)
            store.begin_move(buckets := rng.random(N_BUCKET) < 0.5)
            moved = {}
            while store.n_pending:
                part = store.take_pending(2000)
                moved.update(zip(part.ids.tolist(), part.table.copy(), strict=True))
                if len(moved) < 1500:
                    exchange(1)
            final = store.export()
            mine = buckets[final.ids % N_BUCKET]
            assert sorted(moved) == sorted(final.ids[mine].tolist())
            for row, values in zip(final.ids[mine].tolist(), final.table[mine], strict=True):
                np.testing.assert_array_equal(moved[row], values)
            store.cancel_move()
            exchange(2)
        assert store.n_held.sum() == store.n_row == len(np.unique(store.export().ids))
