"""Sealed sessions: only their two ends read and write them, each message counts once, and CURVE remains."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import replace

import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.node_world import FEATURES, SPEC, World, shard
from support.runtime.single_process import train_single
from support.waiting import LIMIT_S

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange import sealed
from dlrover_nb.core.runtime.exchange.ps_link import PsLink
from dlrover_nb.core.runtime.exchange.sealed import SEALS, Mark, Seal, SealedRouter, seal_of_worker
from dlrover_nb.core.runtime.exchange.slab import of_ps
from dlrover_nb.core.runtime.exchange.sockets import bind_router, connect_plain_dealer, new_keys
from dlrover_nb.core.runtime.exchange.wire import MAX_FRAMES, encode
from dlrover_nb.core.runtime.worker import ps_client
from dlrover_nb.core.structs.job.exchange_spec import Encryption, ExchangeSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role

FRAMES = st.lists(st.binary(max_size=50), min_size=1, max_size=MAX_FRAMES)
SHARDS = [shard(n) for n in (4, 0, 2)]
EVERY_SEAL = pytest.mark.parametrize("kind", SEALS.values())


def two_ends(kind=Seal):
    key = secrets.token_bytes(32)
    return kind(key, sends=1, receives=2), kind(key, sends=2, receives=1)


@EVERY_SEAL
@settings(deadline=None, max_examples=50)
@given(messages=st.lists(FRAMES, max_size=5), lost=st.sets(st.integers(0, 4)))
def test_what_one_end_seals_the_other_opens_also_when_messages_before_were_lost(kind, messages, lost):
    one, other = two_ends(kind)
    for number, frames in enumerate(messages):
        message = one.seal(frames)
        parts = bytes(message[0])[16 + 8 * len(frames) :]
        assert kind is Mark or not any(len(frame) > 16 and frame in parts for frame in frames)
        if number not in lost:
            if number % 2:
                message = [bytearray(frame) for frame in message]  # as ZeroMQ's, which may be written
            assert other.open(message) == frames
            assert one.open(other.seal(frames[::-1])) == frames[::-1]


def test_a_trusted_network_reads_the_frames_and_their_memory_is_used_at_both_ends():
    one, other = two_ends(Mark)
    array = np.arange(100.0)
    message = one.seal([b"head", array.data.cast("B")])
    assert len(message[0]) == 8 + 2 * 16
    assert np.shares_memory(np.frombuffer(message[2]), array)
    assert np.shares_memory(np.frombuffer(other.open(message)[1]), array)


@EVERY_SEAL
def test_a_seal_says_whether_it_copies_what_it_seals(kind):
    array = np.arange(100.0)
    message = two_ends(kind)[0].seal([b"head", array.data.cast("B")])
    assert kind.copies != any(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in message)


@EVERY_SEAL
def test_arrays_of_a_sealed_message_lie_where_numbers_may(kind):
    one, other = two_ends(kind)
    arrays = [np.arange(7), np.arange(5.0), np.arange(9, dtype=np.float32)]
    message = one.seal([b"a record", *(array.data.cast("B") for array in arrays)])
    room = [
        np.empty(len(part) + 8, np.uint8) for part in message
    ]  # numpy's memory is aligned, as ZeroMQ's is
    copies = [each[: len(part)] for each, part in zip(room, message, strict=True)]
    for copy, part in zip(copies, message, strict=True):
        copy[:] = np.frombuffer(part, np.uint8)
    head, *found = other.open([copy.data for copy in copies])
    assert head == b"a record"
    for part, array in zip(found, arrays, strict=True):
        read = np.frombuffer(part, array.dtype)
        np.testing.assert_array_equal(read, array)
        assert read.flags.aligned


@EVERY_SEAL
@settings(deadline=None, max_examples=200)
@given(frames=FRAMES, data=st.data())
def test_no_changed_message_is_opened_and_the_right_one_still_is(kind, frames, data):
    one, other = two_ends(kind)
    message = one.seal(frames)
    changed = list(message)
    at = data.draw(st.integers(0, len(message) - 1))
    match data.draw(st.sampled_from(["bit", "drop", "double", "swap"])):
        case "bit":
            at = at if message[at] else 0  # an empty frame has none
            bit = data.draw(st.integers(0, len(message[at]) * 8 - 1))
            spoilt = bytearray(message[at])
            spoilt[bit // 8] ^= 1 << bit % 8
            changed[at] = bytes(spoilt)
        case "drop":
            del changed[at]
        case "double":
            changed.insert(at, message[at])
        case "swap":
            to = data.draw(st.integers(0, len(message) - 1))
            changed[at], changed[to] = changed[to], changed[at]
    if changed != message:
        if data.draw(st.booleans()):
            changed = [bytearray(frame) for frame in changed]
        with pytest.raises(WireError):
            other.open(changed)
    assert other.open(message) == frames


@EVERY_SEAL
@settings(deadline=None, max_examples=100)
@given(noise=st.lists(st.binary(max_size=60), max_size=MAX_FRAMES + 3))
def test_noise_is_refused(kind, noise):
    for message in (noise, [bytearray(frame) for frame in noise]):
        with pytest.raises(WireError):
            two_ends(kind)[0].open(message)


@EVERY_SEAL
def test_a_message_counts_once_in_its_direction_and_its_session_alone(kind):
    one, other = two_ends(kind)
    first, second = one.seal([b"first"]), one.seal([b"second"])
    assert other.open(second) == [b"second"]
    for old in (first, second):
        with pytest.raises(WireError, match="a repetition"):
            other.open(old)
    with pytest.raises(WireError, match="not of this session"):
        one.open(one.seal([b"back to its sender"]))
    with pytest.raises(WireError, match="not of this session"):
        two_ends(kind)[1].open(one.seal([b"of another session"]))


def test_the_two_kinds_do_not_open_each_others_messages():
    key = secrets.token_bytes(32)
    for kind, other in ((Seal, Mark), (Mark, Seal)):
        message = kind(key, sends=1, receives=2).seal([b"x" * 40])
        with pytest.raises(WireError):
            other(key, sends=2, receives=1).open(message)


@pytest.fixture
def context():
    with zmq.Context() as context:
        yield context


@pytest.fixture(params=list(Encryption))
def router(context, request):
    router = SealedRouter(context, "tcp://127.0.0.1:5", request.param)  # the port is that of the other router
    yield router
    router.close()


def exchanged(context, router, opened):
    """Send a message in a session, and return whose it is and the answer to it."""
    seal = seal_of_worker(opened)
    with connect_plain_dealer(context, opened.endpoint, opened.session, opened.password) as dealer:
        dealer.send_multipart(seal.seal([b"question"]))
        assert router.socket.poll(LIMIT_S * 1000)
        session, *message = router.socket.recv_multipart()
        peer, frames = router.unseal(session, message)
        assert frames == [b"question"]
        assert router.send(peer, [b"answer"])
        assert dealer.poll(LIMIT_S * 1000)
        return peer, seal.open(dealer.recv_multipart())


def test_a_session_is_answered_sealed_until_its_peer_asks_in_clear(context, router):
    opened = router.open_session(b"worker-0/1/1")
    assert not router.send(b"worker-0/1/1", [b"CURVE carries this"])
    assert exchanged(context, router, opened) == (b"worker-0/1/1", [b"answer"])
    router.answer_in_clear(b"worker-0/1/1")
    assert not router.send(b"worker-0/1/1", [b"and this"])


def test_a_later_session_of_a_node_ends_its_earlier_ones_and_no_others(context, router):
    opened = router.open_session(b"worker-0/1/1")
    kept = router.open_session(b"worker-1/1/1")
    router.open_session(b"worker-0/1/2")
    with pytest.raises(WireError, match="no open session"):
        router.unseal(opened.session.encode(), seal_of_worker(opened).seal([b"x"]))
    assert exchanged(context, router, kept) == (b"worker-1/1/1", [b"answer"])


def test_who_does_not_know_the_password_is_not_heard(context, router):
    opened = router.open_session(b"worker-0/1/1")
    wrong = replace(opened, password="0" * 32)
    stranger = connect_plain_dealer(context, wrong.endpoint, wrong.session, wrong.password)
    nobody = context.socket(zmq.DEALER)
    nobody.linger = 0
    nobody.connect(opened.endpoint)
    with stranger, nobody:
        for each in (stranger, nobody):
            with contextlib.suppress(zmq.Again):  # its connection was refused already
                each.send(b"noise", zmq.NOBLOCK)
        assert not router.socket.poll(500)
    assert exchanged(context, router, opened)[1] == [b"answer"]


def test_the_key_of_a_session_is_not_shown(router):
    opened = router.open_session(b"worker-0/1/1")
    assert opened.key not in repr(opened)
    assert opened.password not in repr(opened)


@pytest.fixture
def sealed_requests(monkeypatch):
    """List how messages were sealed, and in which direction."""
    sealings = []
    seal = Seal.seal

    def counted(self, frames):
        sealings.append((type(self), self._sends))
        return seal(self, frames)

    monkeypatch.setattr(Seal, "seal", counted)
    return sealings


@pytest.fixture
def without_shared_memory(monkeypatch):
    """PS see no slab of a worker, as on another host."""

    def open_slab(offer):
        raise OSError(f"no process {offer.pid} on this host")

    monkeypatch.setattr(of_ps, "open_slab", open_slab)


@pytest.mark.more
@pytest.mark.parametrize("encryption", list(Encryption))
@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.usefixtures("without_shared_memory")
def test_training_between_hosts_is_sealed_and_gives_the_losses_of_one_process(
    sync, encryption, sealed_requests, monkeypatch
):
    monkeypatch.setattr(ps_client, "ASK_AGAIN_S", LIMIT_S)
    spec = replace(SPEC, sync=sync, exchange=ExchangeSpec(encryption=encryption))
    single = train_single(SPEC, FEATURES, shards=SHARDS)
    losses = []
    with World(spec=spec, listen="tcp://127.0.0.1") as world:
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", world.start_ps(2))
        world.train("w0", SHARDS)
        assert not world.errors
    np.testing.assert_allclose(losses, single.losses, rtol=1e-6)
    kind, n_step = SEALS[encryption], len(losses)
    assert sealed_requests.count((kind, 1)) >= 2 * n_step, "two PS"
    assert sealed_requests.count((kind, 2)) >= 2 * n_step
    assert {each for each, _ in sealed_requests} == {kind}


def test_within_one_host_nothing_is_sealed(sealed_requests):
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        world.train("w0", SHARDS[:1])
    assert not sealed_requests


@pytest.mark.parametrize("fault", ["closed port", "spoilt answers"])
def test_training_goes_on_under_curve_where_a_session_does_not_work(fault, monkeypatch, sealed_requests):
    seal = Seal.seal

    def sealed_once(self, frames):
        monkeypatch.setattr(ps_client, "ASK_AGAIN_S", 0.3)  # not before, or no session comes about
        return seal(self, frames)

    monkeypatch.setattr(ps_client, "ASK_AGAIN_S", LIMIT_S)
    monkeypatch.setattr(Seal, "seal", sealed_once)
    if fault == "closed port":
        opening = SealedRouter.open_session
        monkeypatch.setattr(
            SealedRouter,
            "open_session",
            lambda *args: replace(opening(*args), endpoint="tcp://127.0.0.1:9"),
        )
    else:
        key = sealed.seal_of_worker
        monkeypatch.setattr(sealed, "seal_of_worker", lambda opened: Spoilt(key(opened)))
    single = train_single(SPEC, FEATURES, shards=SHARDS)
    losses = []
    with World(listen="tcp://127.0.0.1") as world:
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", world.start_ps(2))
        world.train("w0", SHARDS)
        assert not world.errors
    np.testing.assert_allclose(losses, single.losses, rtol=1e-6)
    assert sealed_requests, "a session was tried"


class Spoilt:
    """A seal whose answers are changed on their way."""

    def __init__(self, seal):
        self._seal = seal

    def seal(self, frames):
        return self._seal.seal(frames)

    def open(self, message):
        return self._seal.open([*message[:-1], message[-1].bytes[:-1]])


class Idle:
    """What a link needs of an agent."""

    def watch(self, socket):
        pass

    def unwatch(self, socket):
        pass


def test_a_link_within_a_host_asks_for_no_session(context, tmp_path):
    keys = new_keys()
    router, endpoint = bind_router(context, "ipc", tmp_path / "s" / "r", keys)
    with router:
        link = PsLink(context, endpoint, identity="w/1/1", keys=keys, agent=Idle())
        link.send([b"question"])
        assert router.poll(LIMIT_S * 1000)
        assert router.recv_multipart() == [b"w/1/1", b"question"]
        link.close()


def test_a_link_between_hosts_says_whether_its_session_is_encrypted(context, router, tmp_path):
    keys = new_keys()
    under_curve, endpoint = bind_router(context, "tcp://127.0.0.1", tmp_path, keys)
    with (
        under_curve,
        contextlib.closing(PsLink(context, endpoint, identity="w/1/1", keys=keys, agent=Idle())) as link,
    ):
        assert link.carrier == "TCP with CURVE"
        assert under_curve.poll(LIMIT_S * 1000)
        identity, *_ = under_curve.recv_multipart()
        opened = router.open_session(identity)
        under_curve.send_multipart([identity, *encode(opened)])
        (socket,) = link.sockets
        assert socket.poll(LIMIT_S * 1000)
        assert link.read(socket) is None
        assert ("not encrypted" in link.carrier) == (opened.encryption is Encryption.NONE)
        assert ("AES-GCM" in link.carrier) == (opened.encryption is Encryption.AES_GCM)
