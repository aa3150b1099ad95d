"""Noise, foreign words and floods at real sockets: dropped and counted, and those who are healthy never notice."""

from __future__ import annotations

import dataclasses
import random
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.runtime.node_world import FEATURES, MODEL, World
from support.waiting import LIMIT_S

from dlrover_nb.core.driver.own.transport import MasterSocket
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.runtime.exchange import sockets, wire
from dlrover_nb.core.runtime.exchange.message_decoder import MessageDecoder, receive
from dlrover_nb.core.runtime.exchange.push_pull import (
    DenseReady,
    Exchange,
    Exchanged,
    ExchangeRefused,
    InitDense,
)
from dlrover_nb.core.runtime.exchange.sockets import bind_router, connect_dealer, new_keys
from dlrover_nb.core.runtime.exchange.wire import INLINE_BYTES, MAX_FRAMES, decode, encode
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import Lease, Purpose
from dlrover_nb.core.structs.wire.messages import Drain, FromNode, Report, ShardAsked, ShardFinished, Stop

NAMES = st.sampled_from(sorted(wire._RECORDS._decoders))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def frame(body: bytes, *, mark: bytes = b"DN", version: int = 1, n_array: int = 0) -> bytes:
    return mark + bytes([version, n_array]) + body


@pytest.mark.more
@settings(deadline=None, max_examples=300)
@given(NAMES, VALUES)
def test_any_value_under_a_known_name_is_that_record_or_a_wire_error(name: str, value: object) -> None:
    try:
        message, _ = decode([frame(msgspec.msgpack.encode((name, value)))])
    except WireError:
        return
    assert type(message).__name__ == name


@pytest.mark.more
@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_record_with_any_field_replaced_is_a_record_or_a_wire_error(data: st.DataObject) -> None:
    finished = ShardFinished("worker-0", Lease(Purpose.TRAIN, 3, 4))
    fields = msgspec.to_builtins(finished)
    at = data.draw(st.sampled_from([fields, fields["lease"]]))
    at[data.draw(st.sampled_from(sorted(at)))] = data.draw(VALUES)
    try:
        message, _ = decode([frame(msgspec.msgpack.encode(("ShardFinished", fields)))])
    except WireError:
        return
    assert isinstance(message, ShardFinished)
    assert isinstance(message.lease.shard, int)


@for_each(
    "body",
    [
        pytest.param(b"\x91" * 200_000, id="nested arrays"),
        pytest.param(b"\x92\xa5Drain" + b"\x81\xa1x" * 200_000, id="nested maps"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="an endless array"),
        pytest.param(b"\xc6\xff\xff\xff\xff", id="endless bytes"),
    ],
)
def test_what_would_exhaust_the_stack_or_memory_is_a_wire_error(body: bytes) -> None:
    with pytest.raises(WireError):
        decode([frame(body)])


def test_a_record_of_megabytes_is_refused_before_it_becomes_objects() -> None:
    with pytest.raises(WireError, match="at most 1024 KiB"):
        decode([frame(bytes(wire.MAX_HEAD_BYTES))])
    with pytest.raises(WireError, match="at most 1024 KiB"):
        encode(ShardAsked("x" * wire.MAX_HEAD_BYTES))


def test_another_version_and_another_program_are_told_apart(error_words) -> None:
    with error_words(WireError):
        decode([frame(b"", version=7)])
    with pytest.raises(WireError, match="another program"):
        decode([frame(b"", mark=b"GE")])


def test_an_intake_counts_what_it_drops_and_logs_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    decoder = MessageDecoder("worker-0", FromNode)
    for n in range(200):
        assert decoder.read([b"noise"] if n % 2 else encode(Drain())) is None
    assert decoder.read(encode(ShardAsked("a"))) == (ShardAsked("a"), [])
    assert decoder.n_dropped == 200
    assert [record.args[1] for record in caplog.records] == [1, 10, 100]  # type: ignore[index]


@pytest.mark.parametrize("copy", [True, False])
def test_of_a_message_with_many_frames_few_are_kept_and_the_next_one_is_whole(
    *, copy: bool, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    with zmq.Context() as context:
        router, endpoint = bind_router(context, "ipc", tmp_path / "s", new_keys())
        dealer = connect_dealer(context, endpoint, "w0", new_keys())
        with router, dealer:
            dealer.send_multipart([b"x"] * 5_000)
            dealer.send_multipart(encode(ShardAsked("w0")))
            assert router.poll(1000 * LIMIT_S)
            assert len(receive(router, copy=copy)) == MAX_FRAMES + 2
            assert router.poll(1000 * LIMIT_S)
            assert decode(receive(router, copy=copy)[1:])[0] == ShardAsked("w0")


def junk(seed: int, n: int) -> list[list[bytes]]:
    """Return messages that no node would send, and some that only a node of another kind would."""
    noise = random.Random(seed)
    good = encode(ShardFinished("worker-0", Lease(Purpose.TRAIN, 0, 1)), [np.zeros(INLINE_BYTES)])
    kinds = [
        lambda: [noise.randbytes(noise.randrange(300)) for _ in range(noise.randrange(1, 20))],
        lambda: [good[0][: noise.randrange(len(good[0]))], good[1]],
        lambda: [good[0], bytes(good[1])[: noise.randrange(24)]],
        lambda: encode(Drain()),
        lambda: [frame(bytes(encode(Stop())[0][4:]), version=noise.randrange(2, 256))],
        lambda: [b"x"] * 1000,
    ]
    return [kinds[i % len(kinds)]() for i in range(n)]


def test_noise_at_a_ps_gets_no_answer_and_its_workers_go_on() -> None:
    n_dense = dense_parameter_count(MODEL, len(FEATURES.categorical), len(FEATURES.numeric))
    no_rows, no_floats, rows = np.empty(0, np.int64), np.empty(0, np.float32), np.array([5, 9])
    with World() as world:
        (endpoint,) = world.start_ps(1).endpoints
        stranger = connect_dealer(world.context, endpoint, "stranger", world.keys)
        worker = connect_dealer(world.context, endpoint, "w0", world.keys)
        with stranger, worker:
            for step, frames in enumerate(junk(1, 240), start=1):
                stranger.send_multipart(frames)
                if step % 60 == 0:
                    request = InitDense(1) if step == 60 else Exchange(1, step)
                    dense = [np.zeros(n_dense, np.float32)]
                    arrays = dense if step == 60 else [no_rows, no_floats, no_floats, rows]
                    worker.send_multipart(encode(request, arrays))
                    assert worker.poll(1000 * LIMIT_S)
                    answer, _ = decode(worker.recv_multipart())
                    assert isinstance(answer, DenseReady if step == 60 else Exchanged)
            while world.receive(Report, "ps0")[0].n_dropped < 240:
                pass
            assert not stranger.poll(0)  # nobody answers noise
            stranger.send_multipart(encode(Exchange(1, 1), [no_floats]))
            assert stranger.poll(1000 * LIMIT_S)
            assert isinstance(decode(stranger.recv_multipart())[0], ExchangeRefused)
    assert not world.errors


def test_a_worker_drops_noise_in_the_place_of_orders_and_counts_it() -> None:
    with World() as world:
        world.start("w0", Role.WORKER)
        for frames in junk(2, 30):
            if frames != encode(Drain()) and len(frames) < 1000:
                world.router.send_multipart([b"w0", *frames])
        n_sent = sum(frames != encode(Drain()) and len(frames) < 1000 for frames in junk(2, 30))
        world.send("w0", ShardAsked("w0"))  # a record, but no order
        while world.receive(Report, "w0")[0].n_dropped < n_sent + 1:
            pass
    assert not world.errors


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="dn") as name:
        yield Path(name)


def test_the_masters_line_hears_its_nodes_through_any_noise(folder: Path) -> None:
    keys = new_keys()
    line = MasterSocket("ipc", folder, keys)
    with zmq.Context() as context:
        stranger = connect_dealer(context, line.endpoint, "stranger", keys)
        node = connect_dealer(context, line.endpoint, "worker-0", keys)
        with stranger, node:
            for frames in junk(3, 120):
                stranger.send_multipart(frames)
            stranger.send_multipart(encode(ShardAsked("worker-0")))  # signed by another
            heard = []
            while line.n_dropped < 121:
                heard += line.receive(10.0)
            node.send_multipart(encode(ShardAsked("worker-0")))
            while not heard:
                heard += line.receive(10.0)
    line.close()
    assert [(h.sender, h.message) for h in heard] == [("worker-0", ShardAsked("worker-0"))]
    assert line.n_dropped == 121


def test_who_sends_a_frame_beyond_the_limit_is_cut_off_before_it_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MAX_FRAME_BYTES", 1 << 16)
    keys = new_keys()
    line = MasterSocket("ipc", folder, keys)
    with zmq.Context() as context:
        flood = connect_dealer(context, line.endpoint, "flood", keys)
        node = connect_dealer(context, line.endpoint, "worker-0", keys)
        with flood, node:
            monitor = flood.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            flood.send_multipart([bytes(1 << 17)])
            assert monitor.poll(1000 * LIMIT_S)
            node.send_multipart(encode(ShardAsked("worker-0")))
            heard = []
            while not heard:
                heard += line.receive(10.0)
            flood.disable_monitor()
            monitor.close()
    line.close()
    assert [h.sender for h in heard] == ["worker-0"]


@pytest.mark.parametrize("holds", ["nothing", "other keys", "the public key"])
def test_clients_without_the_key_are_turned_away_and_counted(folder: Path, holds: str) -> None:
    keys, other = new_keys(), new_keys()
    line = MasterSocket("tcp://127.0.0.1", folder, keys)
    with zmq.Context() as context:
        node = connect_dealer(context, line.endpoint, "worker-0", keys)
        client = context.socket(zmq.DEALER)
        client.linger = 0
        if holds in {"other keys", "the public key"}:
            client.curve_publickey, client.curve_secretkey = other.public.encode(), other.secret.encode()
            client.curve_serverkey = (keys if holds == "the public key" else other).public.encode()
        client.connect(line.endpoint)
        with node, client:
            heard = []
            while not line.n_refused:
                heard += line.receive(10.0)
            node.send_multipart(encode(ShardAsked("worker-0")))
            while not heard:
                heard += line.receive(10.0)
    assert [h.sender for h in heard] == ["worker-0"]
    assert line.n_dropped == 0
    line.close()


def test_every_record_of_the_wire_is_a_plain_dataclass() -> None:
    for decoder in wire._RECORDS._decoders.values():
        assert dataclasses.is_dataclass(decoder.type)
