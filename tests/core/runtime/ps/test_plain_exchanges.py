"""Sealed messages that the kernel reads: the same bits as by Python, whatever else comes in between."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import needs_c
from support.runtime.played_router import PlayedRouter
from support.waiting import LIMIT_S

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import Exchange, Exchanged, Fenced
from dlrover_nb.core.runtime.exchange.sealed import SealedRouter, seal_of_worker
from dlrover_nb.core.runtime.exchange.slab import AttachedSlabs
from dlrover_nb.core.runtime.exchange.sockets import connect_plain_dealer
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.kernels import VARIABLE
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.ps.serving import Serving
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.exchange_spec import Encryption
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec

pytestmark = needs_c

EPOCH, N_ID, N_DENSE = 1, 4000, 5000
MODEL = ModelSpec(embedding_dim=4, hidden=(2,))
SPEC = JobSpec("law", model=MODEL)
KINDS = st.sampled_from(["exchange", "exchange", "exchange", "repeated step", "bit", "torn", "old", "noise"])
ACTIONS = st.tuples(KINDS, st.integers(0, 2**32), st.integers(0, 1500), st.integers(0, 1500))


class SealedPs:
    """A PS that workers reach by sealed sessions; all within one thread, so the test has the order."""

    def __init__(self, context: zmq.Context, kernel: str, encryption: Encryption) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, kernel)
            self.store = ParameterStore(MODEL, N_ID, N_DENSE)
        self.store.init_dense(np.linspace(-1, 1, N_DENSE, dtype=np.float32))
        self._context, self.sealed = context, SealedRouter(context, "tcp://127.0.0.1:5", encryption)
        accounting = TimeAccounting(SystemClock())
        self.serving = Serving(PlayedRouter(), accounting, "ps-0", SPEC, AttachedSlabs(), sealed=self.sealed)
        self.serving.open(self.store, EPOCH)
        self.n_read_in_python = 0  # and applied
        self._note()

    def _note(self) -> None:
        exchange = self.store.exchange

        def noted(*args, **named):
            self.n_read_in_python += 1
            return exchange(*args, **named)

        self.store.exchange = noted

    def connect(self, worker: str) -> Session:
        return Session(self, self._context, worker)

    def close(self) -> None:
        self.sealed.close()


class Session:
    """A worker's end of a session."""

    def __init__(self, ps: SealedPs, context: zmq.Context, worker: str) -> None:
        self._ps = ps
        opened = ps.sealed.open_session(f"{worker}/1/1".encode())
        self._seal = seal_of_worker(opened)
        self._dealer = connect_plain_dealer(context, opened.endpoint, opened.session, opened.password)
        self.last: list[bytes] = []

    def close(self) -> None:
        self._dealer.close()

    def send(self, frames: list[bytes]) -> None:
        """Send frames as they are, and let the PS serve."""
        self._dealer.send_multipart(frames)
        assert self._ps.sealed.socket.poll(LIMIT_S * 1000)
        self._ps.serving.serve_sealed()

    def ask(self, request, arrays):
        """Return the record and the arrays of the answer."""
        self.last = [bytes(frame) for frame in self._seal.seal(encode(request, arrays))]
        self.send(self.last)
        assert self._dealer.poll(LIMIT_S * 1000)
        answer, found = decode(self._seal.open(self._dealer.recv_multipart()))
        return answer, [np.array(each) for each in found]

    def send_spoilt(self, kind: str, rng: np.random.Generator) -> None:
        """Send what no worker sends: the PS drops it, and nothing is applied."""
        frames = [bytearray(frame) for frame in self.last or [bytes(40)]]
        at = int(rng.integers(len(frames)))
        match kind:
            case "bit" if self.last and frames[at]:
                frames[at][int(rng.integers(len(frames[at])))] ^= 1 << int(rng.integers(8))
            case "torn":
                del frames[at][int(rng.integers(len(frames[at]))) :]
            case "noise":
                frames = [
                    bytearray(rng.bytes(int(rng.integers(1, 200)))) for _ in range(int(rng.integers(1, 4)))
                ]
        n_dropped = self._ps.serving.n_dropped
        self.send([bytes(frame) for frame in frames])
        assert self._ps.serving.n_dropped == n_dropped + 1


def act(ps, session, step, action):
    """Let a worker do something; return the arrays of the answer, if there is one."""
    kind, seed, n_push, n_pull = action
    rng = np.random.default_rng(seed)
    if kind not in {"exchange", "repeated step"}:
        session.send_spoilt(kind, rng)
        return []
    push, pull = (rng.choice(N_ID, n, replace=False).astype(np.int64) for n in (n_push, n_pull))
    gradients = rng.normal(size=(n_push, MODEL.row_width)).astype(np.float32)
    dense = rng.normal(size=N_DENSE).astype(np.float32)
    found = []
    for _ in range(1 + (kind == "repeated step")):
        answer, found = session.ask(Exchange(EPOCH, step), [push, gradients, dense, pull])
        assert answer == Exchanged(EPOCH, step, answer.update_s, answer.lookup_s)
    return found


def ages_of(ps):
    return [replace(each, milliseconds=()) for each in ps.serving.ages.take()]


@pytest.mark.parametrize("encryption", list(Encryption))
@settings(deadline=None, max_examples=10)
@given(actions=st.lists(ACTIONS, min_size=3, max_size=12))
def test_sealed_messages_give_the_same_bits_and_ages_in_c_and_in_python(encryption, actions):
    with zmq.Context() as context, contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(contextlib.closing(SealedPs(context, k, encryption))) for k in ("c", "numpy")
        ]
        sessions = [
            [stack.enter_context(contextlib.closing(ps.connect(name))) for name in ("w0", "w1")]
            for ps in both
        ]
        for step, action in enumerate(actions):
            found = [act(ps, of_ps[step % 2], step, action) for ps, of_ps in zip(both, sessions, strict=True)]
            for mine, theirs in zip(*found, strict=True):
                np.testing.assert_array_equal(mine, theirs)
        compiled, python = both
        mine, theirs = compiled.store.export(), python.store.export()
        for name in ("ids", "table", "dense"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        assert ages_of(compiled) == ages_of(python)
        assert compiled.n_read_in_python == 0
        assert python.n_read_in_python == sum(kind in {"exchange", "repeated step"} for kind, *_ in actions)


@pytest.fixture
def ps():
    with zmq.Context() as context, contextlib.closing(SealedPs(context, "c", Encryption.AES_GCM)) as ps:
        yield ps


def test_a_worker_that_was_given_up_is_refused_and_changes_nothing(ps):
    ids, dense = np.arange(3), np.ones(N_DENSE, np.float32)
    arrays = [ids, np.ones((3, MODEL.row_width), np.float32), dense, ids]
    with contextlib.closing(ps.connect("w0")) as gone, contextlib.closing(ps.connect("w1")) as session:
        assert isinstance(gone.ask(Exchange(EPOCH, 1), arrays)[0], Exchanged)
        before = ps.store.dense
        ps.serving.forget("w0")
        assert gone.ask(Exchange(EPOCH, 2), arrays)[0] == Fenced(EPOCH)
        np.testing.assert_array_equal(ps.store.dense, before)
        assert isinstance(session.ask(Exchange(EPOCH, 1), arrays)[0], Exchanged)


def test_a_session_that_ended_is_not_heard_and_the_next_one_goes_on_with_its_steps(ps):
    ids = np.arange(3)
    arrays = [ids, np.ones((3, MODEL.row_width), np.float32), np.ones(N_DENSE, np.float32), ids]
    with contextlib.closing(ps.connect("w0")) as first:
        first.ask(Exchange(EPOCH, 1), arrays)
        with contextlib.closing(ps.connect("w0")) as second:
            with pytest.raises(WireError, match="no open session"):
                ps.sealed.unseal(b"0" * 32, first.last)
            before = ps.store.dense
            second.ask(Exchange(EPOCH, 1), arrays)  # repeated, since its answer may be lost
            np.testing.assert_array_equal(ps.store.dense, before)
            second.ask(Exchange(EPOCH, 2), arrays)
            assert (ps.store.dense != before).any()
    assert ps.n_read_in_python == 0
