from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.waiting import LIMIT_S

from dlrover_nb.core.errors import BackendError, InvalidValueError, WireError
from dlrover_nb.core.runtime.exchange import wire
from dlrover_nb.core.runtime.exchange.push_pull import Exchange, Form
from dlrover_nb.core.runtime.exchange.sockets import bind_router, connect_dealer, new_keys
from dlrover_nb.core.runtime.exchange.wire import INLINE_BYTES, decode, encode
from dlrover_nb.core.structs.job.exchange_spec import Precision
from dlrover_nb.core.structs.training.checkpoints import MemoryPart, PartSource
from dlrover_nb.core.structs.training.shards import Lease, Purpose, Shard
from dlrover_nb.core.structs.wire.messages import Drain, Granted, Load, ShardAsked

MESSAGES = (
    Drain(),
    ShardAsked("w0"),
    Exchange(3, 7),
    Granted(Shard(Lease(Purpose.TRAIN, 4, 2), 1, 10, 20, 3, 7)),
    Load(1, 0, 2, (0, 1) * 128, (PartSource("a", "b", MemoryPart("m", 1, "00", 5)),)),
    Exchange(3, 7, form=Form(Precision.FLOAT16, Precision.BFLOAT16, 2.0, wants_dense=False)),
)
IPV6 = ["tcp://[::1]"] if Path("/proc/net/if_inet6").exists() else []
ARRAYS = hnp.arrays(
    st.sampled_from(["<f4", "<f8", "<i4", "<i8", "u1", "<f2", "<u2"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0),
)


@pytest.fixture
def context():
    with zmq.Context() as context:
        yield context


@pytest.mark.more
@pytest.mark.parametrize("message", MESSAGES)
@settings(deadline=None, max_examples=30)
@given(arrays=st.lists(ARRAYS, max_size=4))
def test_decode_is_the_inverse_of_encode(message, arrays):
    got, got_arrays = decode([bytes(frame) for frame in encode(message, arrays)])
    assert got == message
    for array, other in zip(arrays, got_arrays, strict=True):
        assert (other.dtype, other.shape) == (array.dtype, array.shape)
        assert other.tobytes() == array.tobytes()


@settings(deadline=None, max_examples=300)
@given(noise=st.lists(st.binary(max_size=60), max_size=5))
def test_noise_is_a_wire_error_and_nothing_else(noise):
    with pytest.raises(WireError):
        decode(noise)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_a_damaged_message_is_refused_or_still_a_known_record(data):
    arrays = [np.arange(4)] * data.draw(st.booleans()) + [np.zeros(INLINE_BYTES)] * data.draw(st.booleans())
    frames = [bytes(f) for f in encode(MESSAGES[3], arrays)]
    at = data.draw(st.integers(0, len(frames[0]) - 1))
    head = bytearray(frames[0])
    head[at] ^= data.draw(st.integers(1, 255))
    try:
        message, _ = decode([bytes(head), *frames[1:]])
    except WireError:
        return
    assert isinstance(message, Granted)


def test_another_version_is_refused():
    frames = encode(Drain())
    with pytest.raises(WireError, match="version 2"):
        decode([b"DN\x02" + frames[0][3:]])


def test_arrays_of_other_types_are_not_sent():
    with pytest.raises(WireError, match="object"):
        encode(Drain(), [np.array([object()])])


def test_a_shape_that_lies_about_its_frame_is_refused():
    frames = [bytes(f) for f in encode(Drain(), [np.zeros((INLINE_BYTES, 3), np.float32)])]
    with pytest.raises(WireError, match="does not fit"):
        decode([frames[0], frames[1][:-4]])
    with pytest.raises(WireError, match="arrays"):
        decode([frames[0]])


def test_arrays_are_read_without_a_copy():
    large = np.arange(2.0 * INLINE_BYTES)
    frame = large.tobytes()
    _, (array,) = decode([encode(Drain(), [large])[0], frame])
    assert np.shares_memory(array, np.frombuffer(frame))
    (head,) = encode(Drain(), [np.arange(8.0)])
    _, (array,) = decode([head])
    assert np.shares_memory(array, np.frombuffer(head, np.uint8))


@settings(deadline=None, max_examples=100)
@given(sizes=st.lists(st.integers(0, 3 * INLINE_BYTES), max_size=4), data=st.data())
def test_small_arrays_travel_in_the_first_frame_with_the_bits_that_frames_of_their_own_carry(sizes, data):
    noise = np.random.default_rng(data.draw(st.integers(0, 9)))
    arrays = [np.frombuffer(noise.bytes(size), np.uint8) for size in sizes]
    frames = [bytes(frame) for frame in encode(MESSAGES[5], arrays)]
    assert len(frames) == 1 + sum(size > INLINE_BYTES for size in sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "INLINE_BYTES", -1)
        apart = [bytes(frame) for frame in encode(MESSAGES[5], arrays)]
    assert len(apart) == 1 + len(sizes)
    for message, got in (decode(frames), decode(apart)):
        assert message == MESSAGES[5]
        assert [array.tobytes() for array in got] == [array.tobytes() for array in arrays]


def test_arrays_in_the_first_frame_lie_at_multiples_of_eight():
    arrays = [np.arange(n, dtype=kind) for n, kind in ((3, "<u2"), (5, "<f4"), (7, "<i8"), (1, "u1"))]
    head = np.frombuffer(encode(Drain(), arrays)[0], np.uint8)
    base = head.__array_interface__["data"][0]
    for array in decode([head.data])[1]:
        assert (array.__array_interface__["data"][0] - base) % 8 == 0


def test_an_array_that_ends_behind_the_first_frame_is_refused():
    (head,) = encode(Drain(), [np.arange(8.0)])
    for n_byte in range(len(head)):
        with pytest.raises(WireError):
            decode([head[:n_byte]])


def test_messages_without_arrays_are_as_those_of_earlier_releases():
    assert encode(Drain()) == [b"DN\x01\x00\x92\xa5Drain\x81\xa7at_once\xc2"]


@pytest.mark.parametrize("listen", ["ipc", "tcp://127.0.0.1", *IPV6])
def test_messages_cross_a_socket_both_ways(context, tmp_path, listen):
    keys = new_keys()
    router, endpoint = bind_router(context, listen, tmp_path / "s", keys)
    dealer = connect_dealer(context, endpoint, "w0", keys)
    with router, dealer:
        dealer.send_multipart(encode(ShardAsked("w0"), [np.arange(100_000)]), copy=False)
        assert router.poll(1000 * LIMIT_S)
        identity, *frames = router.recv_multipart(copy=False)
        message, (array,) = decode(frames)
        assert (bytes(identity), message) == (b"w0", ShardAsked("w0"))
        np.testing.assert_array_equal(array, np.arange(100_000))
        router.send_multipart([b"w0", *encode(Drain())])
        assert dealer.poll(1000 * LIMIT_S)
        assert decode(dealer.recv_multipart())[0] == Drain()


def _answered(dealer, router, within_ms=700):
    with contextlib.suppress(zmq.Again):  # of a client whose connection was refused already
        dealer.send_multipart(encode(ShardAsked("x")), zmq.DONTWAIT)
    return router.poll(within_ms)


def test_a_client_without_the_jobs_pair_is_not_heard_on_tcp(context, tmp_path):
    keys, other = new_keys(), new_keys()
    router, endpoint = bind_router(context, "tcp://127.0.0.1", tmp_path / "s", keys)
    stranger = context.socket(zmq.DEALER)  # knows the server's public key, but holds another pair
    stranger.linger = 0
    stranger.curve_publickey, stranger.curve_secretkey = other.public.encode(), other.secret.encode()
    stranger.curve_serverkey = keys.public.encode()
    stranger.connect(endpoint)
    plain = context.socket(zmq.DEALER)
    plain.linger = 0
    plain.connect(endpoint)
    friend = connect_dealer(context, endpoint, "w0", keys)
    with router, stranger, plain, friend:
        assert not _answered(stranger, router)
        assert not _answered(plain, router)
        assert _answered(friend, router, LIMIT_S * 1000)


def test_two_jobs_of_one_context_do_not_admit_each_other(context, tmp_path):
    one, two = new_keys(), new_keys()
    first, at_first = bind_router(context, "tcp://127.0.0.1", tmp_path / "s", one)
    second, at_second = bind_router(context, "tcp://127.0.0.1", tmp_path / "s", two)
    good, bad = connect_dealer(context, at_second, "g", two), connect_dealer(context, at_first, "b", two)
    with first, second, good, bad:
        assert _answered(good, second, LIMIT_S * 1000)
        assert not _answered(bad, first)


def test_a_path_longer_than_a_unix_socket_may_have_is_reached_by_its_folder(context, tmp_path):
    folder, keys = tmp_path / ("x" * 120), new_keys()
    router, endpoint = bind_router(context, "ipc", folder / "master", keys)
    assert endpoint == f"ipc://{folder / 'master'}"  # the same for all processes
    dealer = connect_dealer(context, endpoint, "w0", keys)
    with router, dealer:
        assert _answered(dealer, router, LIMIT_S * 1000)


def test_a_long_path_whose_folder_is_gone_says_so(context, tmp_path, error_words):
    with error_words(BackendError):
        connect_dealer(context, f"ipc://{tmp_path / ('x' * 120) / 'master'}", "w0", new_keys())


def test_a_folder_open_to_others_is_refused(context, tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(BackendError, match="700"):
        bind_router(context, "ipc", tmp_path / "s", new_keys())


@pytest.mark.parametrize("listen", ["", "tcp://", "udp://1.2.3.4"])
def test_an_unknown_kind_of_address_is_refused(context, tmp_path, listen):
    with pytest.raises(InvalidValueError, match="listen"):
        bind_router(context, listen, tmp_path / "s", new_keys())


def test_a_repr_keeps_the_secret():
    keys = new_keys()
    assert keys.secret not in repr(keys)
