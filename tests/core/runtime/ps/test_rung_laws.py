"""What workers ring for gets the same bits from the compiled kernel, from Python, and as messages."""

from __future__ import annotations

import contextlib
import os
import tempfile
from ctypes import addressof, byref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import needs_c
from support.runtime.slab_world import MODEL, N_DENSE, N_ID, World, n_open

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import DescriptorName
from dlrover_nb.core.runtime.exchange.slab import bell
from dlrover_nb.core.runtime.exchange.slab.memory import HEAD_BYTES
from dlrover_nb.core.runtime.kernels import maps
from dlrover_nb.core.runtime.kernels.bell_requests import Answer, Outcome, Request
from dlrover_nb.core.runtime.kernels.compiled import Compiled
from dlrover_nb.core.runtime.kernels.plain_server import Arrays
from dlrover_nb.core.runtime.kernels.rule import Rule
from dlrover_nb.core.runtime.ps.rung import RungRequests
from dlrover_nb.core.runtime.ps.serving import Serving
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.runtime.worker.ps_client import ExchangeDroppedError, FencedError
from dlrover_nb.core.structs.job.spec_choices import Embedding, Optimizer, StaleSteps
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.gradient_ages import GradientAges

pytestmark = needs_c

MODELS = [
    replace(MODEL, optimizer=optimizer, embedding=embedding)
    for optimizer in Optimizer
    for embedding in Embedding
]
KINDS = (
    "exchange",
    "exchange",
    "halved",
    "same",
    "first",
    "repeated",
    "poisoned",
    "moved",
    "marked",
    "restarted",
)
ACTIONS = st.tuples(
    st.sampled_from(KINDS), st.integers(0, 2**32), st.sampled_from(["w0", "w1"]), st.integers(0, 400), st.integers(0, 400)
)  # fmt: skip


@contextlib.contextmanager
def worlds(n_ps=1, model=MODEL, stale_steps=StaleSteps.PLAIN):
    """The same PS with bells in C, with bells in Python, and with messages in Python and in C."""
    with tempfile.TemporaryDirectory(prefix="dr") as name:
        folder = Path(name)
        with (
            World(folder / "c", n_ps, model=model, kernel="c", stale_steps=stale_steps) as compiled,
            World(folder / "p", n_ps, model=model, kernel="numpy", stale_steps=stale_steps) as python,
            World(
                folder / "f", n_ps, model=model, kernel="numpy", shares=False, stale_steps=stale_steps
            ) as frames,
            World(
                folder / "m", n_ps, model=model, kernel="c", shares=False, stale_steps=stale_steps
            ) as messages,
        ):
            yield compiled, python, frames, messages


def act(world, action):
    """Let a world do something; return what its worker gets."""
    kind, seed, worker, n_push, n_pull = action
    rng = np.random.default_rng(seed)
    if kind in {"moved", "restarted"}:
        world.move(rng, len(world.endpoints), restarted=kind == "restarted")
    if kind == "marked":
        for store in world.stores:
            store.begin_move(rng.random(N_BUCKET) < 0.5)
    poison = {"poisoned": float(rng.choice([np.nan, -np.inf, 1e30, 1e12]))}.get(kind, 0.0)
    push = None if kind == "first" else replace(world.push(rng, n_push, poison=poison), rate=1.0)
    if kind == "halved":
        push = replace(push, rate=0.5)
    pull = push.batch if kind == "same" else world.batch(rng, n_pull)
    try:
        return world.exchange(worker, push, pull, repeats=2 * (kind == "repeated"))
    except WireError as error:
        world.disconnect()
        return str(error)


def assert_same_stores(compiled, python, *others):
    """What both kinds of bells count is the same; a repeated message, other than by bell, is counted again."""
    for other in (python, *others):
        for mine, theirs in zip(compiled.parameters(), other.parameters(), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        for mine, theirs in zip(compiled.stores, other.stores, strict=True):
            np.testing.assert_array_equal(mine.n_held, theirs.n_held)
            np.testing.assert_array_equal(mine.export().ids, theirs.export().ids)
            assert mine.n_pending == theirs.n_pending
            changed = [store._rows._changed.array[: store.n_row].copy() for store in (mine, theirs)]
            np.testing.assert_array_equal(*changed)
            if mine._rule.is_adam:
                assert mine._rates._most_steps == theirs._rates._most_steps
    for mine, theirs in zip(compiled.stores, python.stores, strict=True):
        np.testing.assert_array_equal(mine.served.take(), theirs.served.take())
    ages = ages_of(compiled)
    for other in (python, *others):
        assert ages_of(other) == ages


def ages_of(world):
    """Return what each PS counted, but for times, which are those of the machine."""
    return [[replace(each, milliseconds=()) for each in serving.ages.take()] for serving in world.servings]


@pytest.mark.more
@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m.optimizer}-{m.embedding}")
@settings(deadline=None, max_examples=8)
@given(
    actions=st.lists(ACTIONS, min_size=4, max_size=10),
    n_ps=st.integers(1, 2),
    stale_steps=st.sampled_from(StaleSteps),
)
def test_kernel_python_and_messages_give_the_same_bits_and_counts(model, actions, n_ps, stale_steps):
    with worlds(n_ps, model, stale_steps) as (compiled, python, *messages):
        for action in actions:
            found = [act(world, action) for world in (compiled, python, *messages)]
            for other in found[1:]:
                np.testing.assert_array_equal(found[0], other)
        assert_same_stores(compiled, python, *messages)


HASHED = [model for model in MODELS if model.embedding is Embedding.HASH]


@pytest.mark.more
@pytest.mark.parametrize("model", HASHED, ids=lambda m: f"{m.optimizer}")
@settings(deadline=None, max_examples=6)
@given(
    actions=st.lists(ACTIONS, min_size=4, max_size=8),
    early=st.sampled_from([0, 30, 90]), most=st.sampled_from([90, 240]),
)  # fmt: skip
def test_a_map_is_split_at_the_same_rows_whoever_creates_them(model, actions, early, most):
    """A kernel leaves it to Python: so the maps are the same, with other lines at most."""
    with pytest.MonkeyPatch.context() as patch, worlds(1, model) as (compiled, python, *messages):
        patch.setattr(maps, "_EARLY", (early + 0.5) / (12 * maps.N_LINE))
        patch.setattr(maps, "_MOST_USED", (most + 0.5) / (12 * maps.N_LINE))
        for action in actions:
            found = [act(world, action) for world in (compiled, python, *messages)]
            for other in found[1:]:
                np.testing.assert_array_equal(found[0], other)
        assert_same_stores(compiled, python, *messages)
        mine, *others = [world.stores[0]._rows._map for world in (compiled, python, *messages)]
        for other in others:
            for name in ("_directory", "_n_row", "_start", "_stop"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(other, name))
        assert len(mine._n_row) > 1 or compiled.stores[0].n_row <= most


def exchanges(world, seeds, n=50):
    return [act(world, ("same", seed, "w0", n, n)) for seed in seeds]


def test_plain_requests_need_no_python_and_others_do(monkeypatch):
    served, serve = [], Serving._exchange

    def noted(self, identity, request, arrays, store, *, rung=False):
        served.append((request.step, rung))
        serve(self, identity, request, arrays, store, rung=rung)

    monkeypatch.setattr(Serving, "_exchange", noted)
    with worlds() as (compiled, python, *messages):
        frames, read_in_c = messages
        for world in (compiled, python, *messages):
            exchanges(world, range(3))
            served.clear()
            exchanges(world, [*range(4), 17])  # known rows, then new ones
            act(world, ("halved", 1, "w0", 50, 50))
            expected = {
                compiled: [(9, True)],
                python: [(step, True) for step in range(4, 10)],
                frames: [(step, False) for step in range(4, 10)],
                read_in_c: [(9, False)],
            }
            assert served == expected[world]
        assert_same_stores(compiled, python, *messages)


def test_a_kernel_serves_the_plain_requests_of_messages_too(monkeypatch):
    pushed, push = [], ParameterStore.push

    def noted(self, ids, gradients, rate=1.0):
        pushed.append((self, rate))
        push(self, ids, gradients, rate)

    monkeypatch.setattr(ParameterStore, "push", noted)
    with worlds() as (*_, frames, messages):
        for world in (frames, messages):
            exchanges(world, [*range(4), 17])
            act(world, ("halved", 1, "w0", 50, 50))
        assert [rate for store, rate in pushed if store is messages.stores[0]] == [0.5]
        assert [rate for store, rate in pushed if store is frames.stores[0]] == [1.0] * 5 + [0.5]
        for world in (frames, messages):  # while rows move and are copied as well
            world.stores[0].begin_move(np.ones(N_BUCKET, np.bool_))
            world.stores[0].take_pending(100)
            cut = world.stores[0].cut()
            exchanges(world, [0])
            cut.stop()
        assert pushed[-2:] == [(messages.stores[0], 0.5), (frames.stores[0], 1.0)]
        assert messages.stores[0].n_pending == frames.stores[0].n_pending


def test_only_a_growing_map_keeps_a_kernel_from_new_rows(monkeypatch):
    """As the rows have room for the memory of the machine."""
    left = []
    creates = RungRequests.creates

    def noted(self, identity, rows, store, epoch):
        left.append(pending := self._slabs.bells[identity].pending)
        done = creates(self, identity, rows, store, epoch)
        assert done == (pending == Outcome.MAP_GROWS)
        return done

    monkeypatch.setattr(RungRequests, "creates", noted)
    monkeypatch.setattr(maps, "_EARLY", 500 / (12 * maps.N_LINE))
    with worlds(model=replace(MODEL, embedding=Embedding.HASH)) as (compiled, python, *messages):
        exchanges(compiled, range(20))
        n_piece = compiled.stores[0].plain_server(compiled.epoch).parameters.n_piece
        assert n_piece > 1
        assert left == [Outcome.MAP_GROWS] * (n_piece - 1)
        exchanges(python, range(20))
        for world in messages:
            exchanges(world, range(20))
        assert_same_stores(compiled, python, *messages)


def test_rows_beyond_the_room_are_left_to_python():
    with worlds() as (compiled, python, *messages):
        for world in (compiled, python, *messages):
            exchanges(world, [0, 1])
        rows = compiled.stores[0]._rows
        for part in rows._parts:
            part.array = part.array[: rows.n + 70]
        for world in (compiled, python, *messages):
            exchanges(world, range(2, 9))
        assert rows.n > 300
        assert_same_stores(compiled, python, *messages)


def test_what_a_kernel_serves_counts_as_requests_and_time_of_the_ps():
    with worlds() as found:
        for world in found:
            accounting = world.servings[0]._accounting
            exchanges(world, range(3))
            accounting.take("ps", Role.PS)
            exchanges(world, [0, 1, 2, 5])
            sample = accounting.take("ps", Role.PS)
            assert sample.n_iter == 4
            assert sample.split.update_s > 0
            assert sample.split.lookup_s > 0
            parts = sample.split.total_s * sample.n_iter
            assert parts == pytest.approx(sample.window_s, rel=0.01)


def test_a_worker_that_was_given_up_is_refused_though_it_rings():
    with worlds() as found:
        for world in found:
            exchanges(world, range(4))
            before = world.parameters()
            world.servings[0].forget("w0")
            with pytest.raises(FencedError):
                exchanges(world, [1])
            for mine, theirs in zip(before, world.parameters(), strict=True):
                np.testing.assert_array_equal(mine, theirs)


def test_a_request_of_another_epoch_is_refused_though_it_is_rung():
    with worlds() as found:
        for world in found:
            exchanges(world, range(4))
            world.servings[0].epoch += 1
            with pytest.raises(ExchangeDroppedError, match="serves epoch 2"):
                exchanges(world, [1])


@pytest.mark.parametrize("other", ["inode", "descriptor"])
def test_a_ps_that_cannot_open_the_pipes_is_asked_by_messages(monkeypatch, other):
    def named(descriptor):
        inode = os.fstat(descriptor).st_ino
        return (
            DescriptorName(descriptor, inode + 1)
            if other == "inode"
            else DescriptorName(descriptor + 900, inode)
        )

    monkeypatch.setattr(bell, "named", named)
    with worlds() as (compiled, python, *messages):
        for world in (compiled, python, *messages):
            exchanges(world, range(4))
        assert compiled.client("w0").carrier == "shared memory"
        assert compiled.slabs[0].bells == {}
        assert_same_stores(compiled, python, *messages)


def test_an_answer_that_was_lost_is_given_again_as_it_was():
    with worlds() as found:
        for world in found[:2]:
            exchanges(world, range(4))
            client, dense = world.client("w0"), np.empty(N_DENSE, np.float32)
            push = replace(world.push(np.random.default_rng(1), 50), rate=1.0)
            client.start(push, push.batch)
            served = world.servings[0]
            served.wait((), 1.0)
            served.serve_rung()
            client._links[0].slab.bell.answer()  # it is lost
            before = world.parameters()
            client._ask_again()
            rows = client.finish(dense)
            np.testing.assert_array_equal(rows, world.stores[0].pull(push.batch.rows))
            for mine, theirs in zip(before, world.parameters(), strict=True):
                np.testing.assert_array_equal(mine, theirs)


class Router:
    """Keeps what would be sent."""

    def __init__(self):
        self.sent = []

    def send_multipart(self, frames, *, copy):
        assert not copy
        self.sent.append(frames)


def test_a_copy_is_of_the_moment_of_its_cut_though_workers_exchange():
    with worlds() as found:
        for world in found:
            exchanges(world, range(4))
            store = world.stores[0]
            before = store.export()
            expected = {name: getattr(before, name).copy() for name in ("ids", "table", "dense")}
            cut = store.cut(is_awaited=True)
            exchanges(world, [0, 1, 7])  # known and new rows
            copied = {name: np.empty_like(array) for name, array in expected.items()}
            cut.copy_to(copied)
            for name, array in expected.items():
                np.testing.assert_array_equal(copied[name], array)
            exchanges(world, [2])
        assert_same_stores(*found)


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300) | st.integers(0, 2000).map(lambda n: 64 * n)


@pytest.mark.more
@settings(deadline=None, max_examples=60)
@given(
    numbers=st.lists(NUMBERS, min_size=6, max_size=6), plain=st.lists(st.booleans(), min_size=6, max_size=6),
    rate=st.sampled_from([1.0, 1.0, 0.5, 0.0, -1.0, float("nan")]), n_byte=st.sampled_from([72, 72, 72, 1, 0, 80]),
)  # fmt: skip
def test_no_request_ends_a_ps_and_kernel_and_python_answer_it_alike(numbers, plain, rate, n_byte):
    with worlds() as (compiled, python, *_):
        fates = []
        for world in (compiled, python):
            exchanges(world, range(4))
            link, serving = world.client("w0")._links[0], world.servings[0]
            link.slab.block.data[:HEAD_BYTES] = (
                0  # a request may ring for what lies there: a token of each slab
            )
            usual = (4096, 20, MODEL.row_width, N_DENSE, 20, 4096)
            at, n_push, width, n_dense, n_pull, answer_at = (
                usual[i] if plain[i] else number for i, number in enumerate(numbers)
            )
            request = bytes(Request(1, 99, at, n_push, width, n_dense, n_pull, answer_at, rate))
            serving._router = router = Router()
            link.slab.bell.ask((request + bytes(8))[:n_byte])
            serving.wait((), 0.0)
            serving.serve_rung()
            serving._router = world.routers[0]
            answer = link.slab.bell.answer()
            place = None if answer is None else (answer.step, answer.at, answer.n_row)
            assert serving.n_dropped + bool(answer) + len(router.sent) == (n_byte > 0)
            fates.append((serving.n_dropped, place, len(router.sent)))
        assert fates[0] == fates[1]
        assert_same_stores(compiled, python)


@pytest.mark.parametrize("field", ["n_push", "n_pull"])
@pytest.mark.parametrize("n", [-1, (1 << 26) + 1, 1 << 61])
def test_counts_beyond_any_request_are_left_to_python_before_memory_is_taken_for_them(field, n):
    """Eight bytes for each of 2^61 rows and one more are, in 64 bits, eight bytes."""
    with worlds() as (compiled, *_):
        exchanges(compiled, [0])
        server, memory = compiled.stores[0].plain_server(1), np.zeros(8)
        arrays, request = Arrays(*[memory.ctypes.data] * 6), Request(epoch=1, **{field: n})
        places = (addressof(server.parameters), byref(request), byref(arrays), byref(Answer()))
        assert server._c.exchange(*places) == Outcome.NOT_PLAIN


def test_a_ps_closes_the_pipes_of_workers_that_are_gone():
    with worlds() as found:
        for world in found[:2]:
            exchanges(world, range(4))
            assert len(world.slabs[0].bells) == 1
            bell = world.client("w0")._links[0].slab.bell.name
            assert n_open(bell) == 2 + 4  # of the PS, and of the worker, which holds both ends of each
            world.disconnect()
            assert n_open(bell) == 2
            world.slabs[0].release()
            assert world.slabs[0].bells == {}
            assert n_open(bell) == 0


def test_ids_are_those_of_the_table_before_any_row_changes():
    with worlds() as found:
        for world in found:
            exchanges(world, range(4))
            before = world.parameters()
            push = world.push(np.random.default_rng(1), 3)
            batch = replace(push.batch, rows=np.array([1, 2, N_ID]))
            with pytest.raises(WireError, match="rows must be in"):
                world.exchange(
                    "w0", replace(push, batch=batch, rate=1.0), world.batch(np.random.default_rng(2), 5)
                )
            for mine, theirs in zip(before, world.parameters(), strict=True):
                np.testing.assert_array_equal(mine, theirs)
            world.disconnect()


@pytest.mark.parametrize("row", [1, N_ID - 1])  # of a PS that has it, and a new one
def test_a_push_that_repeats_a_row_is_refused_before_any_row_changes(row):
    with worlds(model=replace(MODEL, embedding=Embedding.HASH)) as found:
        for world in found:
            exchanges(world, range(4))
            before = [each.copy() for each in world.parameters()]
            push = world.push(np.random.default_rng(1), 3)
            batch = replace(push.batch, rows=np.array([row, 2, row]))
            with pytest.raises(WireError, match=f"got {row} more than once"):
                world.exchange(
                    "w0", replace(push, batch=batch, rate=1.0), world.batch(np.random.default_rng(2), 5)
                )
            for mine, theirs in zip(before, world.parameters(), strict=True):
                np.testing.assert_array_equal(mine, theirs)
            world.disconnect()


@pytest.mark.parametrize("optimizer", Optimizer)
def test_what_a_worker_writes_after_its_gradients_were_checked_breaks_no_parameter(optimizer):
    rule, values = Rule.of(replace(MODEL, optimizer=optimizer)), np.full(5, 0.5, np.float32)
    corrections = np.ones((2, 2), np.float32) if optimizer is Optimizer.ADAM else None
    for bad in (np.nan, np.inf, -np.inf, 3e38, 1e16):
        gradient = np.array([0.5, bad, 0.5, bad, 0.5], np.float32)
        n_state = rule.row_state(5)
        table = np.concatenate([values, np.full(n_state, rule.first_state, np.float32)])[None]
        Compiled().update_rows(table, np.zeros(1, np.int32), gradient[None], rule, corrections)
        assert np.isfinite(table).all()
        assert (table[0, [1, 3]] == 0.5).all()
        assert (table[0, [0, 2, 4]] != 0.5).all()


@pytest.mark.parametrize("optimizer", Optimizer)
def test_a_kernel_takes_normalised_steps_without_python(monkeypatch, optimizer):
    """The dense part moves by the factor of its gradient's age; rows take whole steps."""
    served = []
    plain = ParameterStore.push_dense
    monkeypatch.setattr(ParameterStore, "push_dense", lambda *a, **k: (served.append(a), plain(*a, **k))[1])
    model, rng = replace(MODEL, optimizer=optimizer), np.random.default_rng(0)
    with worlds(1, model, StaleSteps.NORMALISED) as (compiled, python, *messages):
        everyone = (compiled, python, *messages)
        pushes = [(worker, compiled.push(rng, 5)) for worker in ("w0", "w1", "w0", "w0", "w0", "w1", "w1")]
        for world in everyone:
            for worker in ("w0", "w1"):
                world.exchange(worker, None, compiled.batch(np.random.default_rng(1), 4))
            served.clear()
            for worker, push in pushes:
                world.exchange(worker, replace(push, rate=1.0), compiled.batch(np.random.default_rng(1), 4))
            assert len(served) == (0 if world.kernel == "c" else len(pushes))
        ages = [GradientAges("w0", (2, 2)), GradientAges("w1", (0, 1, 0, 1, 1))]
        assert [replace(each, milliseconds=(), rows=()) for each in python.servings[0].ages.take()] == ages
        for world in everyone:
            for mine, theirs in zip(compiled.parameters(), world.parameters(), strict=True):
                np.testing.assert_array_equal(mine, theirs)
