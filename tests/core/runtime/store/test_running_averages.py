"""Running averages on parameter servers: their order, what leaves them alone, and what carries them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import needs_c
from support.runtime.node_world import FEATURES, SPEC, World, shard
from support.runtime.single_process import LocalClient, LocalSource

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.models.custom import check
from dlrover_nb.core.models.learner import set_threads
from dlrover_nb.core.models.trainable import Columns
from dlrover_nb.core.rundir.same_model import differences
from dlrover_nb.core.runtime.allreduce.replica import Replica
from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import read
from dlrover_nb.core.runtime.exchange.packing import Packer, pack_answer, unpack_answer, unpack_push
from dlrover_nb.core.runtime.exchange.slab.of_worker import OfferedSlab
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.store import ParameterStore, even_bucket_owner
from dlrover_nb.core.runtime.store.batches import BucketLayout, ShardWork
from dlrover_nb.core.runtime.worker.trainer import Trainer
from dlrover_nb.core.structs.job.exchange_spec import ExchangeSpec, Precision
from dlrover_nb.core.structs.job.job import Averages, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer
from dlrover_nb.core.structs.job.trained import Trained
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.training.shards import Shard, SkippedBatch

    Floats = NDArray[np.float32]


class Normed(torch.nn.Module):
    """A linear model of normalized numbers; rows with the number `BROKEN` spoil gradients or variances."""

    BROKEN, FACTOR, SCALE = float("nan"), 1.0, 1.0

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(columns.n_numeric, momentum=0.2)
        self.out = torch.nn.Linear(columns.n_numeric, 1)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        is_broken = dense[:, :1] == self.BROKEN
        normed = self.norm(dense * torch.where(is_broken, self.SCALE, 1.0))
        logits = self.out(normed).squeeze(1) + embedded.sum((1, 2))
        larger = (self.FACTOR - 1.0) * (logits - logits.detach())  # zero, but not to its gradient
        return logits + torch.where(is_broken.squeeze(1), larger, 0.0)


N_NUMERIC = len(FEATURES.numeric)
N_AVERAGE = 2 * N_NUMERIC
N_BATCH = 12
CHECKED = check(Normed, Columns(len(FEATURES.categorical), N_NUMERIC, SPEC.model.embedding_dim), [8])
MODEL = replace(
    SPEC.model,
    name="custom",
    code="test_running_averages:Normed",
    n_dense=CHECKED.n_dense,
    averages=CHECKED.averages,
)
NORMED = replace(SPEC, model=MODEL)
FIRST = np.repeat(np.float32([0, 1]), N_NUMERIC)
NO_ROWS, NO_FLOATS = np.empty(0, np.int64), np.empty(0, np.float32)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    set_threads(1)


def statistics(numbers: Floats) -> Floats:
    """Return means and variances of a batch, in 64 bits."""
    return np.concatenate([numbers.mean(0, np.float64), numbers.var(0, np.float64, ddof=1)])


def works(shards: list[Any]) -> list[ShardWork]:
    reader = ShardReader(SPEC.data, FEATURES)
    return [ShardWork(each, reader.read(each.start, each.stop), seed=SPEC.seed) for each in shards]


def averages_of(batches: list[Floats]) -> Floats:
    """Return the average of batches in this order."""
    value = FIRST.astype(np.float64)
    for numbers in batches:
        value = 0.8 * value + 0.2 * statistics(numbers)
    return value


@settings(deadline=None, max_examples=20)
@given(n_worker=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_the_average_is_that_of_all_batches_in_the_order_in_which_they_arrive(n_worker, seed):
    rng, model = (
        np.random.default_rng(seed),
        ModelSpec(n_dense=4, averages=(Averages(4, 0.2),), embedding_dim=1),
    )
    store = ParameterStore(model, 10, 4)
    store.init_dense(np.float32([0, 0, 1, 1]))
    pulled = [store.dense for _ in range(n_worker)]
    expected, seen = store.dense.astype(np.float64), [store.dense]
    for worker in rng.integers(0, n_worker, 150):
        seen.append(batch := rng.normal(3, 2, 4).astype(np.float32) ** 2)
        after = 0.8 * pulled[worker] + 0.2 * batch  # of a value that may be old
        store.push_dense(np.float32(after - 0.8 * pulled[worker]))
        expected = 0.8 * expected + 0.2 * batch
        pulled[worker] = store.dense
        assert (np.min(seen, 0) * 0.999 <= store.dense).all()
        assert (store.dense <= np.max(seen, 0) * 1.001).all()
    np.testing.assert_allclose(store.dense, expected, rtol=1e-5)


def trained(spec: Any, shards: list[Any]) -> tuple[ParameterStore, list[SkippedBatch]]:
    reader = ShardReader(spec.data, FEATURES)
    trainer = Trainer(spec, FEATURES, reader, TimeAccounting(SystemClock()))
    store = ParameterStore(spec.model, FEATURES.n_table_row, len(trainer.learner.values))
    store.init_dense(trainer.learner.values)
    source = LocalSource(reader, shards, spec.seed)
    trainer.run(source, LocalClient(store, spec.exchange))
    return store, source.skipped


def test_a_job_averages_the_batches_that_it_trains() -> None:
    (work,) = works([shard(0)])
    layout, batches = BucketLayout(np.array(even_bucket_owner(1), np.int64), 1), []
    while (batch := work.take(SPEC.batch_size, layout)) is not None:
        batches.append(batch.dense)
    for spec in (
        NORMED,
        replace(NORMED, gradient_clip_norm=1e-3),
        replace(NORMED, model=replace(MODEL, optimizer=Optimizer.ADAM, learning_rate=0.5)),
        replace(NORMED, exchange=ExchangeSpec(dense=Precision.BFLOAT16)),
    ):
        store, skipped = trained(spec, [shard(0)])
        assert not skipped
        np.testing.assert_allclose(store.dense[-N_AVERAGE:], averages_of(batches), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("spoilt", "why"), [("FACTOR", "far above the usual"), ("SCALE", "mean or variance .* is not finite")]
)
def test_a_batch_that_is_skipped_leaves_them(spoilt: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at, shards = 7, [shard(number, n_batch=1) for number in range(N_BATCH)]
    expected, _ = trained(NORMED, [each for n, each in enumerate(shards) if n != at])
    numbers = ShardReader(SPEC.data, FEATURES).read(0, N_BATCH * SPEC.batch_size).dense[:, 0]
    mine = numbers[at * SPEC.batch_size : (at + 1) * SPEC.batch_size]
    alone = next(number for number in mine if (numbers == number).sum() == 1)
    monkeypatch.setattr(Normed, "BROKEN", float(alone))
    monkeypatch.setattr(Normed, spoilt, 1e30 if spoilt == "SCALE" else 1e12)
    store, (skipped,) = trained(NORMED, shards)
    np.testing.assert_array_equal(store.dense, expected.dense)
    assert re.search(why, skipped.why)


def random_push(rng: np.random.Generator, store: ParameterStore, push: Floats, *, as_requests: bool) -> None:
    """Push a dense vector as a worker's request does, or by the store's own method."""
    start, n = store.export().dense_offset, store.answer_shape[1]
    mine = np.ascontiguousarray(push[start : start + n])
    pushed, out = (NO_ROWS, NO_FLOATS, mine), store.new_answer(0, is_copied=False)
    if not as_requests or store.exchange(1, pushed, NO_ROWS, out) is None:
        store.push_dense(mine)


@needs_c
@pytest.mark.parametrize("optimizer", Optimizer)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), numbers=st.lists(st.integers(1, 6), min_size=2, max_size=4))
def test_changes_of_ps_carry_averages_to_the_bit(optimizer, seed, numbers):
    rng, averages = np.random.default_rng(seed), (Averages(3, 0.1), Averages(4, 0.5))
    model = ModelSpec(n_dense=12, averages=averages, embedding_dim=1, optimizer=optimizer)
    whole = ParameterStore(model, 10, 12)
    whole.init_dense(np.arange(12, dtype=np.float32))
    parts = [whole.export()]
    expected = np.arange(5, 12, dtype=np.float64)
    kept = 1 - np.repeat([0.1, 0.5], [3, 4])
    for n_ps in numbers:
        stores = [ParameterStore(model, 10, 12, index=i, n_ps=n_ps) for i in range(n_ps)]
        for store in stores:
            for part in parts:
                store.load_dense(part)
        push = rng.normal(size=12).astype(np.float32)
        for store in stores:
            random_push(rng, store, push, as_requests=True)
        random_push(rng, whole, push, as_requests=False)
        expected = (kept * expected + push[5:]).astype(np.float32)
        parts = [store.export() for store in stores]
        found = np.concatenate([part.dense for part in parts], 1)
        np.testing.assert_array_equal(found, whole.export().dense)
        np.testing.assert_array_equal(found[0, 5:], expected)


def test_what_is_not_finite_is_refused_and_a_large_variance_is_not() -> None:
    store = ParameterStore(ModelSpec(n_dense=3, averages=(Averages(2, 0.1),), embedding_dim=1), 10, 3)
    store.init_dense(np.ones(3, np.float32))
    store.check_push(NO_ROWS, np.empty((0, 2), np.float32), np.float32([1, 1e20, 1]))
    for bad in ([1, np.nan, 1], [1, 1, np.inf], [1e20, 1, 1]):
        with pytest.raises(WireError):
            store.check_push(NO_ROWS, np.empty((0, 2), np.float32), np.float32(bad))


@pytest.mark.parametrize("precision", Precision)
def test_packed_averages_keep_their_bits_and_those_of_several_batches_arrive_as_their_mean(
    precision: Precision,
    error_words,
) -> None:
    spec = ExchangeSpec(dense=precision, dense_every=2)
    packer = Packer(spec, 5, 3)
    packer.pack([NO_ROWS, NO_FLOATS, NO_FLOATS])  # the first asks for rows alone
    pushes = np.float32([[1e-6, 2e-6, np.pi, 1e9, 1e-9], [1e-6, 0, np.e, 3e9, 3e-9]])
    for _ in range(2):
        for push in pushes:
            sent, form = packer.pack([NO_ROWS, NO_FLOATS, push])
        dense = unpack_push(sent, form, 3)[2]
        np.testing.assert_array_equal(dense[2:], pushes[:, 2:].sum(0) / np.float32(2))
        np.testing.assert_allclose(dense[:2], pushes[:, :2].sum(0), rtol=2.0**-7)
    packed, *scales = pack_answer(NO_FLOATS, pushes[0], form, 3)
    np.testing.assert_array_equal(unpack_answer(packed, form, *scales, 3)[1][2:], pushes[0, 2:])
    if precision is not Precision.FLOAT32:
        with error_words(WireError):
            unpack_push([NO_ROWS, NO_FLOATS, sent[2][:5]], form, 3)


def test_workers_in_step_push_the_mean_of_their_batches_as_one() -> None:
    layout = BucketLayout(np.array(even_bucket_owner(1), np.int64), 1)
    replica, numbers = Replica(NORMED, FEATURES), []
    for work, size in zip(works([shard(0), shard(1)]), (64, 32), strict=True):
        batch = work.take(size, layout)
        assert batch is not None
        assert not replica.learn(batch)
        numbers.append(batch.dense)
    replica.apply(96, [replica.packed()])
    mean = (2 * statistics(numbers[0]) + statistics(numbers[1])) / 3
    np.testing.assert_allclose(replica.store.dense[-N_AVERAGE:], 0.8 * FIRST + 0.2 * mean, rtol=1e-5)


def test_a_checkpoint_without_averages_is_no_start_for_a_model_with_them(words) -> None:
    before = replace(MODEL, averages=())
    (text,) = differences(Trained(before, SPEC.data, FEATURES), MODEL, FEATURES)
    assert text == words
    slower = replace(MODEL, averages=(Averages(N_AVERAGE, 0.01),))
    assert not differences(Trained(slower, SPEC.data, FEATURES), MODEL, FEATURES)


SHARDS = [shard(n) for n in (4, 0, 2)]


def dense_of(world: World, names: list[str]) -> Floats:
    parts = [read(*file).dense[0] for file in world.save(names)]
    return np.concatenate(parts)


def granted_anew(shard: Shard) -> Shard:
    """Return a shard under another number: no two grants of a job have the same."""
    return replace(shard, lease=replace(shard.lease, grant=shard.lease.grant + 100))


@pytest.mark.parametrize("is_packed", [False, pytest.param(True, marks=pytest.mark.more)])
def test_a_lost_ps_and_a_change_of_their_number_end_with_the_averages_of_one_process(
    is_packed: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = trained(NORMED, SHARDS)
    spec, listen = NORMED, "ipc"
    if is_packed:
        monkeypatch.setattr(OfferedSlab, "offer", lambda *_: None)  # as on two hosts
        spec, listen = replace(NORMED, exchange=ExchangeSpec(dense=Precision.FLOAT16)), "tcp://127.0.0.1"
    with World(spec, listen) as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        world.train("w0", SHARDS[:1])
        files = world.save(["ps0"])
        world.train("w0", SHARDS[1:2])  # these steps are lost with the PS
        world.end("ps0")
        world.send("w0", world.start_ps(3, files, first=1))
        world.train("w0", [granted_anew(shard) for shard in SHARDS[1:]])
        found = dense_of(world, ["ps1", "ps2", "ps3"])
    np.testing.assert_array_equal(found[-N_AVERAGE:], expected.dense[-N_AVERAGE:])
    assert np.array_equal(found, expected.dense) == (not is_packed)
