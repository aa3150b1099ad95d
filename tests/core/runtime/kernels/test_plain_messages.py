"""The kernel reads messages as Python does, answers with the same bytes, and leaves all else to Python."""

from __future__ import annotations

import struct
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import needs_c

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import Exchange, Exchanged, FinishedRound, Form, Join
from dlrover_nb.core.runtime.exchange.wire import INLINE_BYTES, MAX_FRAMES, decode, encode
from dlrover_nb.core.runtime.kernels.plain_messages import MOST_FRAMES, SMALL_BYTES, PlainMessage
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.exchange_spec import Precision
from dlrover_nb.core.structs.job.job import ModelSpec

pytestmark = needs_c

EPOCH, N_ID = 3, 9000
MODEL = ModelSpec(embedding_dim=4, hidden=(2,))
WIDTH = MODEL.row_width
COUNTS = st.sampled_from([0, 1, 3, 40, 1000, 3000])  # rows: below and above what lies in the first frame
DENSE = st.sampled_from([1, 7, 4097])
INTEGERS = st.integers(0, 130) | st.sampled_from([255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1])


def store_of(n_dense, epoch=EPOCH):
    store = ParameterStore(MODEL, N_ID, n_dense)
    store.init_dense(np.linspace(-1, 1, n_dense, dtype=np.float32))
    assert store.plain_server(epoch) is not None
    return store


def arrays_of(seed, n_push, n_pull, n_dense):
    rng = np.random.default_rng(seed)
    push, pull = (rng.choice(N_ID, n, replace=False).astype(np.int64) for n in (n_push, n_pull))
    return [push, numbers(rng, (n_push, WIDTH)), numbers(rng, n_dense), pull]


def numbers(rng, shape):
    return rng.normal(size=shape).astype(np.float32)


def placed(frames, at=0):
    """Return the frames in memory of their own, of exactly their lengths, that begins `at` bytes after any."""
    room = [np.empty(len(bytes(frame)) + at, np.uint8) for frame in frames]
    for each, frame in zip(room, frames, strict=True):
        each[at:] = np.frombuffer(bytes(frame), np.uint8)
    return [each[at:].data for each in room]


def answered(store, frames, epoch=EPOCH):
    """Return the frames by which the kernel answers; None: it leaves the message to Python."""
    message, server = PlainMessage(), store.plain_server(epoch)
    if not message.read(server, frames):
        return None
    answer = message.respond(server, store.new_answer(message.request.n_pull, is_copied=False), None)
    store.settle(server)
    return answer


def applied(store, arrays):
    """Return what the store answers without the kernel's `exchange`."""
    push, gradients, dense, pull = arrays
    if len(push):
        store.push(push, gradients)
    if len(dense):
        store.push_dense(dense)
    return store.pull(pull), store.dense


def test_python_and_the_kernel_agree_what_a_message_may_hold():
    assert (MOST_FRAMES, SMALL_BYTES) == (MAX_FRAMES, INLINE_BYTES)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32), n_push=COUNTS, n_pull=COUNTS, n_dense=DENSE, has_dense=st.booleans(),
    step=INTEGERS, epoch=INTEGERS, at=st.integers(0, 9),
)  # fmt: skip
def test_a_plain_message_is_answered_by_the_bytes_that_python_would_send(
    *, seed, n_push, n_pull, n_dense, has_dense, step, epoch, at
):
    store, expected = store_of(n_dense, epoch), store_of(n_dense, epoch)
    arrays = arrays_of(seed, n_push, n_pull, n_dense if has_dense else 0)
    frames = answered(store, placed(encode(Exchange(epoch, step), arrays), at), epoch)
    assert frames is not None
    record, found = decode(frames)
    assert record == Exchanged(epoch, step, record.update_s, record.lookup_s)
    for mine, theirs in zip(found, applied(expected, arrays), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [bytes(each) for each in frames] == [bytes(each) for each in encode(record, found)]
    np.testing.assert_array_equal(store.export().table, expected.export().table)
    np.testing.assert_array_equal(store.export().dense, expected.export().dense)


ODD = {
    "another record": Join(EPOCH, 5, "w"),
    "a round": Exchange(EPOCH, 5, FinishedRound(1, (("w", 1),))),
    "another rate": Exchange(EPOCH, 5, rate=0.5),
    "a place in a slab": Exchange(EPOCH, 5, answer_at=64),
    "packed numbers": Exchange(EPOCH, 5, form=Form(Precision.FLOAT32, Precision.FLOAT32)),
    "gradients to be gathered": Exchange(EPOCH, 5, n_row=3),
    "a step below zero": Exchange(EPOCH, -5),
    "another epoch": Exchange(EPOCH + 1, 5),
}


@pytest.mark.parametrize("request_", ODD.values(), ids=ODD)
def test_what_is_not_plain_is_left_to_python_and_changes_nothing(request_):
    store = store_of(7)
    before = store.dense
    assert answered(store, placed(encode(request_, arrays_of(0, 3, 3, 7)))) is None
    assert store.n_row == 0
    np.testing.assert_array_equal(store.dense, before)


def wrong_arrays():
    push, gradients, dense, pull = arrays_of(0, 3, 3, 7)
    yield "fewer arrays", [push, gradients, dense]
    yield "more arrays", [push, gradients, dense, pull, pull]
    yield "rows of another width", [push, gradients[:, :-1], dense, pull]
    yield "fewer gradients than rows", [push, gradients[:-1], dense, pull]
    yield "flat gradients", [push, gradients.ravel(), dense, pull]
    yield "another dense slice", [push, gradients, dense[:-1], pull]
    yield "numbers of eight bytes", [push, gradients.astype(np.float64), dense, pull]
    yield "ids of four bytes", [push.astype(np.int32), gradients, dense, pull]
    yield "an id below zero", [push, gradients, dense, np.array([-1])]
    yield "an id beyond the table", [push, gradients, dense, np.array([N_ID])]
    yield "a row twice", [np.array([4, 5, 4]), gradients, dense, pull]
    yield "no number", [push, gradients * np.float32(np.nan), dense, pull]


@pytest.mark.parametrize(
    "arrays", [each for _, each in wrong_arrays()], ids=[name for name, _ in wrong_arrays()]
)
def test_arrays_that_do_not_fit_are_left_to_python_and_change_nothing(arrays):
    store = store_of(7)
    before = store.dense
    assert answered(store, placed(encode(Exchange(EPOCH, 5), arrays))) is None
    np.testing.assert_array_equal(store.dense, before)
    assert store.n_row == 0


FIELDS = [("ps_epoch", EPOCH), ("step", 5), ("done", None), ("rate", 1.0), ("answer_at", -1), ("form", None)]
FIELDS += [("n_row", 0), ("n_step", None), ("part", None)]


@settings(deadline=None)
@given(fields=st.permutations(FIELDS), n=st.integers(0, len(FIELDS)), is_later=st.booleans())
def test_an_exchange_of_another_release_is_read_as_python_reads_it_or_left_to_it(fields, n, is_later):
    """Fields that are missing have their defaults; those that are not known may mean anything."""
    plain = encode(Exchange(EPOCH, 5), arrays_of(0, 3, 3, 7))[0]
    head = plain[: len(plain) - len(msgspec.msgpack.encode(("Exchange", dict(FIELDS))))]
    record = dict(fields[:n]) | ({"later": 6} if is_later else {})
    message = head + msgspec.msgpack.encode(("Exchange", record))
    frames = answered(store_of(7), placed([message]))
    assert (frames is not None) == ({"ps_epoch", "step"} <= record.keys() and not is_later)
    if frames is not None:
        assert decode([message])[0] == Exchange(EPOCH, 5)


def changed(draw, frames):
    """Return frames of which some bytes differ, or end early, or of which some are missing or come twice."""
    frames = [bytearray(bytes(frame)) for frame in frames]
    for _ in range(draw(st.integers(1, 3))):
        i = draw(st.integers(0, len(frames) - 1))
        match draw(st.sampled_from(["byte", "head", "length", "cut", "longer", "drop", "twice"])):
            case "byte" if frames[i]:
                frames[i][draw(st.integers(0, len(frames[i]) - 1))] = draw(st.integers(0, 255))
            case "head" if frames[0]:
                at = draw(st.integers(0, min(len(frames[0]) - 1, 60)))
                frames[0][at] = draw(st.integers(0, 255))
            case "length" if len(frames[0]) > 60:
                at = draw(st.sampled_from([6, 16, 24, 34, 44]))  # of the four arrays
                length = draw(
                    st.sampled_from([0, 1, 2**28, 2**31, 2**32 + 3, 2**61, 2**62 + 1, 2**63, 2**64 - 1])
                )
                frames[0][at : at + 8] = struct.pack("<Q", length)
            case "cut":
                del frames[i][draw(st.integers(0, len(frames[i]))) :]
            case "longer":
                frames[i] += draw(st.binary(max_size=9))
            case "drop" if len(frames) > 1:
                del frames[i]
            case "twice":
                frames.insert(i, frames[i])
    return frames


@settings(deadline=None, max_examples=200)
@given(data=st.data(), n_push=COUNTS, n_pull=COUNTS, at=st.integers(0, 9))
def test_of_a_message_that_was_changed_or_torn_the_kernel_reads_what_python_reads_or_nothing(
    data, n_push, n_pull, at
):
    store, expected = store_of(7), store_of(7)
    frames = placed(changed(data.draw, encode(Exchange(EPOCH, 5), arrays_of(1, n_push, n_pull, 7))), at)
    found = answered(store, frames)
    if found is None:
        return
    record, arrays = decode(frames)
    assert record == Exchange(EPOCH, record.step)
    rows, dense = applied(expected, arrays)
    answer, mine = decode(found)
    assert answer.step == record.step
    np.testing.assert_array_equal(mine[0], rows)
    np.testing.assert_array_equal(mine[1], dense)


@settings(deadline=None, max_examples=200)
@given(frames=st.lists(st.binary(max_size=80), max_size=MAX_FRAMES + 3))
def test_noise_is_left_to_python(frames):
    store = store_of(7)
    assert answered(store, placed(frames)) is None
    with suppress(WireError):
        decode([b"DN\x01\x04", *frames])
    assert answered(store, placed([b"DN\x01\x04" + b"".join(frames), *frames])) is None


def test_a_frame_that_may_not_be_written_is_read_too():
    frames = [bytes(frame) for frame in encode(Exchange(EPOCH, 5), arrays_of(0, 3000, 3, 4097))]
    assert len(frames) == 4
    assert answered(store_of(4097), frames) is not None
