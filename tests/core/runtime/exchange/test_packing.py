"""Fewer bytes on the way: bounds of what is lost, nothing lost over time, and the same wherever it is packed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from support.cases import for_each
from support.runtime.node_world import FEATURES, SPEC, World, shard
from support.runtime.single_process import train_single

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError, WireError
from dlrover_nb.core.runtime.exchange.packing import (
    CODECS,
    Packer,
    pack,
    pack_answer,
    unpack,
    unpack_answer,
    unpack_push,
)
from dlrover_nb.core.runtime.exchange.push_pull import Exchange, Form, Probe
from dlrover_nb.core.runtime.exchange.slab.of_worker import OfferedSlab
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.job.exchange_spec import Encryption, ExchangeSpec, Precision
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role

SHARDS = [shard(n) for n in (4, 0, 2)]
LONG = [shard(0, n_batch=30)]  # one stream of batches, which sums are sent in the midst of
ROWS = np.arange(3, dtype=np.int64)
FLOATS = arrays(
    np.float32,
    array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=6),
    elements=st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False),
)
INTEGERS = arrays(np.float32, 5, elements=st.integers(-20, 20).map(float))
SPECS = st.builds(ExchangeSpec, st.sampled_from(Precision), st.sampled_from(Precision), st.integers(1, 5))


def there_and_back(values, precision):
    packed, scale = pack(values, precision)
    _, (arrived,) = decode(encode(Probe(1), [packed]))
    assert packed.nbytes <= values.nbytes * (1 if precision is Precision.FLOAT32 else 0.5)
    return unpack(arrived, precision, scale)


def bound_of(values, precision):
    """Half a unit in the last place; float16 has its smallest step 2^-39 below the largest number."""
    match precision:
        case Precision.BFLOAT16:
            return np.abs(values) * 2.0**-8
        case Precision.FLOAT16:
            return np.abs(values) * 2.0**-11 + np.abs(values).max(initial=0) * 2.0**-38
        case _:
            return np.zeros_like(values)


@pytest.mark.parametrize("precision", Precision)
@settings(deadline=None, max_examples=100)
@given(values=FLOATS)
def test_a_number_loses_no_more_than_half_a_unit_in_its_last_place(precision, values):
    found = there_and_back(values, precision)
    assert found.dtype == np.float32
    assert found.shape == values.shape
    assert (np.abs(found - values) <= bound_of(values, precision) + 2.0**-126).all()


@settings(deadline=None, max_examples=100)
@given(spec=SPECS, gradients=st.lists(INTEGERS, min_size=1, max_size=12))
def test_dense_gradients_arrive_as_their_exact_sum_not_each_with_its_batch(spec, gradients):
    packer = Packer(spec, 5)
    arrived, n_sent = np.zeros(5, np.float32), 0
    packer.pack([ROWS[:0], np.empty(0, np.float32), np.empty(0, np.float32)])  # the first asks for rows alone
    for each in gradients:
        sent, form = packer.pack([ROWS, np.ones((3, 2), np.float32), each])
        dense = unpack_push(sent, form)[2]
        n_sent += dense.size > 0
        arrived[: len(dense)] += dense
        assert packer.owes == (dense.size == 0)
        assert form.wants_dense == (dense.size > 0)
    assert n_sent == len(gradients) // spec.dense_every
    sent, form = packer.pack([ROWS[:0], np.empty(0, np.float32), np.empty(0, np.float32)], is_last=True)
    dense = unpack_push(sent, form)[2]
    arrived[: len(dense)] += dense
    assert not packer.owes
    total = np.sum(gradients, 0)
    largest = np.abs(np.cumsum(gradients, 0)).max(initial=1) + 20
    lost = 0 if spec.dense is Precision.FLOAT32 else largest * 2.0**-8  # of the last rounding alone
    assert (np.abs(arrived - total) <= lost).all()


@settings(deadline=None, max_examples=50)
@given(spec=SPECS, seed=st.integers(0, 99))
def test_an_answer_has_what_was_asked_for(spec, seed):
    rng = np.random.default_rng(seed)
    rows, dense = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=7).astype(np.float32)
    for wants in (True, False):
        form = Form(spec.rows, spec.dense, wants_dense=wants)
        packed, *scales = pack_answer(rows, dense, form)
        found_rows, found_dense = unpack_answer(packed, form, *scales)
        assert (np.abs(found_rows - rows) <= bound_of(rows, spec.rows)).all()
        assert len(found_dense) == len(dense) * wants
        if wants:
            assert (np.abs(found_dense - dense) <= bound_of(dense, spec.dense)).all()


def test_without_a_form_nothing_is_changed():
    sent = [ROWS, np.ones((3, 2), np.float32), np.ones(4, np.float32), ROWS]
    assert unpack_push(sent, None) is sent
    (rows, dense), *scales = pack_answer(sent[1], sent[2], None)
    assert rows is sent[1]
    assert dense is sent[2]
    assert unpack_answer((rows, dense), None, *scales) == (rows, dense)


@pytest.mark.parametrize("precision", Precision)
def test_numbers_of_another_type_than_announced_are_refused(precision):
    other = next(codec.dtype for codec in CODECS.values() if codec.dtype != CODECS[precision].dtype)
    with pytest.raises(WireError, match="expected an array of"):
        unpack(np.ones(3, other), precision, 1.0)


@for_each("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(scale, error_words):
    with error_words(WireError):
        unpack(np.ones(3, np.float16), Precision.FLOAT16, scale)


def test_a_request_of_an_earlier_release_is_not_packed():
    request, _ = decode(encode(Exchange(1, 2)))
    assert request.form is None


PACKED = [
    ExchangeSpec(Precision.BFLOAT16),
    ExchangeSpec(rows=Precision.FLOAT16),
    ExchangeSpec(Precision.BFLOAT16, Precision.FLOAT16, 4),
]


@pytest.mark.more
@pytest.mark.parametrize("exchange", PACKED, ids=lambda each: each.words)
def test_a_job_over_tcp_trains_as_one_process_that_packs(exchange, monkeypatch):
    monkeypatch.setattr(OfferedSlab, "offer", lambda *_: None)  # as on two hosts
    spec = replace(SPEC, exchange=exchange)
    plain, single = (train_single(each, FEATURES, shards=LONG) for each in (SPEC, spec))
    losses = []
    with World(spec=spec, listen="tcp://127.0.0.1") as world:
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", world.start_ps(1))
        world.train("w0", LONG)
        assert not world.errors
    np.testing.assert_allclose(losses, single.losses, rtol=1e-6)
    assert losses != list(plain.losses)
    np.testing.assert_allclose(losses, plain.losses, rtol=0.1)


@pytest.mark.parametrize("listen", ["ipc", "tcp://127.0.0.1"])
def test_nothing_is_packed_that_lies_in_shared_memory(listen):
    losses = []
    with World(spec=replace(SPEC, exchange=PACKED[-1]), listen=listen) as world:
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", world.start_ps(1))
        world.train("w0", SHARDS)
        assert not world.errors
    plain = train_single(SPEC, FEATURES, shards=SHARDS).losses
    # over TCP the first batches are packed, until the memory is shared
    np.testing.assert_allclose(losses, plain, rtol=1e-6 if listen == "ipc" else 0.1)


@pytest.mark.parametrize("sync", [Sync.BSP, Sync.ALLREDUCE])
def test_rounds_are_not_packed(sync, error_words):
    with error_words(InvalidValueError):
        validate_job(JobSpec("one", sync=sync, exchange=PACKED[0]))


def test_gathered_gradients_are_packed_batch_by_batch(error_words):
    with error_words(InvalidValueError):
        validate_job(JobSpec("one", sync=Sync.GBA, exchange=ExchangeSpec(dense_every=4)))
    assert validate_job(JobSpec("one", sync=Sync.GBA, exchange=PACKED[0])).spec.sync is Sync.GBA


def test_wrong_settings_are_refused_with_what_is_possible(error_words):
    with error_words(InvalidValueError):
        ExchangeSpec("int8")
    with error_words(InvalidValueError):
        ExchangeSpec(dense_every=0)
    with error_words(InvalidValueError):
        ExchangeSpec(encryption="off")


def test_a_job_of_an_earlier_release_packs_nothing():
    earlier = json.loads(to_json(JobSpec("one")))
    del earlier["exchange"]
    assert from_json(json.dumps(earlier).encode(), JobSpec) == JobSpec("one")


def test_what_a_worker_says_of_its_exchanges_names_what_is_packed(words):
    assert PACKED[-1].words == words
    assert ExchangeSpec(dense_every=2).words == words
    assert ExchangeSpec().words == ""


def test_a_trusted_network_packs_nothing_and_is_said():
    trusted = from_json(b'{"encryption": "none"}', ExchangeSpec)
    assert (trusted.encryption, trusted.is_plain, trusted.words) == (Encryption.NONE, True, "")
    assert "can read gradients" in trusted.warning
    assert not any(each.warning for each in (ExchangeSpec(), *PACKED))
