"""Workers that keep in step (BSP, SSP), as real nodes in threads."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from support.runtime.node_world import FEATURES, SPEC, Gate, World, shard
from support.waiting import LIMIT_S

from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.models.learner import Learner
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.runtime.store.batches import BucketLayout, ShardWork, prepare_batch
from dlrover_nb.core.structs.job.spec_choices import Optimizer, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire.messages import (
    Adjust,
    BatchSkipped,
    Forget,
    Forgotten,
    Granted,
    Pause,
    Paused,
    Report,
    ShardAsked,
    ShardFinished,
)

BSP = replace(SPEC, sync=Sync.BSP)
SSP = replace(SPEC, sync=Sync.SSP, staleness=2)
ONE_PS = BucketLayout(np.zeros(N_BUCKET, np.int64), 1)


class Together:
    """Lets workers compute only when all have joined: then the first round is of all of them."""

    def __init__(self, n, monkeypatch):
        self.barrier, self._first = threading.Barrier(n), threading.local()
        step = Learner.step

        def held(learner, *args):
            if not getattr(self._first, "is_over", False):
                self._first.is_over = True
                self.barrier.wait(LIMIT_S)
            return step(learner, *args)

        monkeypatch.setattr(Learner, "step", held)


def start(world, shards, on_loss=None):
    """Start a worker per shard and one or more PS; grant each its shard."""
    names = [f"w{i}" for i in range(len(shards))]
    for name in names:
        world.start(name, Role.WORKER, (on_loss or {}).get(name))
    return names


def grant(world, names, train, shards):
    for name, each in zip(names, shards, strict=True):
        world.send(name, train)
        world.receive(ShardAsked, name)
        world.send(name, Granted(each))


def tell(world, order):
    """Give the first PS an order, and wait until it has it."""
    world.send("ps0", order)
    world.send("ps0", Forget("nobody"))
    world.receive(Forgotten, "ps0")


def double_batches(spec, shards):
    """Train in one process on the batches of all shards put together; return the weighted losses."""
    reader, learner = (
        ShardReader(spec.data, FEATURES),
        Learner(spec.model, len(FEATURES.categorical), len(FEATURES.numeric)),
    )
    works = [ShardWork(s, reader.read(s.start, s.stop), seed=spec.seed) for s in shards]
    store = ParameterStore(spec.model, FEATURES.n_table_row, len(learner.values))
    store.init_dense(learner.values)
    losses = []
    while all(batches := [work.take(spec.batch_size, ONE_PS) for work in works]):
        ids = np.concatenate([b.rows[b.inverse] for b in batches]).reshape(-1, len(FEATURES.categorical))
        dense, labels = (np.concatenate([getattr(b, n) for b in batches]) for n in ("dense", "labels"))
        batch = prepare_batch(ids, dense, labels, ONE_PS)
        learner.values[:] = store.dense
        gradients = learner.step(store.pull(batch.rows), batch.inverse, batch.dense, batch.labels)
        store.push(batch.rows, gradients.rows)
        store.push_dense(learner.gradients)
        losses.append(gradients.loss)
    return losses


@pytest.mark.parametrize("n_ps", [1, 2])
def test_two_workers_in_bsp_give_the_losses_of_one_process_with_the_double_batch(n_ps, monkeypatch):
    shards = [shard(0), shard(3)]
    expected = double_batches(BSP, shards)
    Together(2, monkeypatch)
    losses = {"w0": [], "w1": []}
    with World(BSP) as world:
        names = start(world, shards, {name: each.append for name, each in losses.items()})
        grant(world, names, world.start_ps(n_ps), shards)
        for name in names:
            world.receive(ShardFinished, name)
    mean = np.mean([losses["w0"], losses["w1"]], axis=0)
    np.testing.assert_allclose(mean, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("spec", "n_used"),
    [(SPEC, 1), (replace(SPEC, overlap=True), 2), (BSP, 1), (SSP, 2)],
    ids=["asp", "asp-overlap", "bsp", "ssp"],
)
def test_batches_of_a_model_that_diverges_are_skipped_and_its_parameters_stay_finite(spec, n_used):
    wild = replace(spec.model, optimizer=Optimizer.SGD, learning_rate=1e30)
    overlap = spec.overlap or spec.sync is Sync.SSP
    with World(replace(spec, model=wild, overlap=overlap)) as world:
        train = world.start_ps(2)
        names = start(world, [shard(0)])
        grant(world, names, train, [shard(0)])
        world.receive(ShardFinished, "w0")
        told = [world.receive(BatchSkipped, "w0")[0].batch for _ in range(spec.shard_batches - n_used)]
        assert world.save(["ps0", "ps1"])  # refused, were they not finite
    assert {each.n_row for each in told} == {spec.batch_size}
    assert all("loss is" in each.why or "gradients" in each.why for each in told)
    assert all(0 <= each.first < each.last < spec.shard_batches * spec.batch_size for each in told)


def test_a_worker_that_stands_still_is_waited_for_until_the_master_says_that_it_is_dead(monkeypatch):
    Together(2, monkeypatch)
    gates = {"w0": Gate(at=3), "w1": Gate(at=10)}
    with World(BSP) as world:
        names = start(world, [shard(0), shard(1)], gates)
        grant(world, names, world.start_ps(2), [shard(0), shard(1)])
        gates["w0"].reached()  # its fourth round is never pushed
        while not [r for r in world.reports if r.sample.node == "w1" and waits_for_peers(r)]:
            world.receive(Report)
        assert len(gates["w1"].losses) == 3
        while set(world.receive(Report)[0].members) != {"w0", "w1"}:
            pass
        world.send("ps0", Forget("w0"))
        gates["w1"].open()
        world.receive(ShardFinished, "w1")
        assert len(gates["w1"].losses) == 10
        gates["w0"].open()


def waits_for_peers(report):
    """Whether a window passed without an iteration, after three were made."""
    return report.n_row_done == 3 * SPEC.batch_size and report.sample.n_iter == 0


@pytest.mark.more
@pytest.mark.parametrize("spec", [BSP, SSP, replace(SSP, overlap=True)])
def test_workers_that_pause_amid_a_round_leave_nothing_half_done_and_go_on(spec, monkeypatch):
    Together(2, monkeypatch)
    shards = [shard(0, n_batch=60), shard(2, n_batch=40)]
    gates = {"w0": Gate(at=7), "w1": Gate(at=9)}
    with World(spec) as world:
        names = start(world, shards, gates)
        train = world.start_ps(2)
        grant(world, names, train, shards)
        gates["w0"].reached()
        for name in names:
            world.send(name, Pause(world.epoch))
        for gate in gates.values():
            gate.open(step_s=0.5)
        for name in names:
            paused = world.receive(Paused, name)[0]
            assert paused.n_row_done == len(gates[name].losses) * SPEC.batch_size
        for name in names:
            gates[name].open()
            world.send(name, train)
        for name in names:
            world.receive(ShardFinished, name)
    assert [len(gate.losses) for gate in gates.values()] == [60, 40]


def test_a_stale_synchronous_worker_runs_ahead_no_further_than_it_may(monkeypatch):
    Together(2, monkeypatch)
    gates = {"w0": Gate(at=2), "w1": Gate(at=100)}
    with World(SSP) as world:
        names = start(world, [shard(0), shard(1)], gates)
        grant(world, names, world.start_ps(1), [shard(0), shard(1)])
        gates["w0"].reached()
        n_ahead = (2 + 1 + SSP.staleness) * SPEC.batch_size
        while not [r for r in world.reports if r.n_row_done >= n_ahead - SPEC.batch_size]:
            world.receive(Report)
        world.receive(Report)
        assert len(gates["w1"].losses) * SPEC.batch_size <= n_ahead
        gates["w0"].open()
        gates["w1"].open()
        for name in names:
            world.receive(ShardFinished, name)
    assert [len(gate.losses) for gate in gates.values()] == [10, 10]


def test_other_batch_sizes_are_in_force_from_one_round_on(monkeypatch):
    Together(2, monkeypatch)
    shards = [shard(0, n_batch=40), shard(1, n_batch=40)]
    gates = {"w0": Gate(at=2), "w1": Gate(at=1000)}
    taken = {}
    take = ShardWork.take

    def noted(work, size, layout):
        batch = take(work, size, layout)
        if batch is not None:
            taken.setdefault(work.shard.lease.shard, []).append(len(batch.labels))
        return batch

    monkeypatch.setattr(ShardWork, "take", noted)
    with World(BSP) as world:
        names = start(world, shards, gates)
        grant(world, names, world.start_ps(2), shards)
        gates["w0"].reached()
        tell(world, Adjust((("w0", 32), ("w1", 96))))
        gates["w0"].open()
        for name in names:
            world.receive(ShardFinished, name)
    changed = {number: sizes.index(small) for number, sizes, small in of_size(taken)}
    assert changed[0] == changed[1] > 2
    assert [sum(sizes) for sizes in taken.values()] == [2560, 2560]


def test_a_batch_of_several_mini_batches_is_one_push_and_each_row_counts_once(monkeypatch):
    Together(2, monkeypatch)
    shards = [shard(0, n_batch=40), shard(1, n_batch=40)]
    gates = {"w0": Gate(at=2), "w1": Gate(at=1000)}
    computed, step = {}, Learner.step

    def noted(learner, rows, inverse, dense, labels):
        computed.setdefault(id(learner), []).append(len(labels))
        return step(learner, rows, inverse, dense, labels)

    monkeypatch.setattr(Learner, "step", noted)
    with World(BSP) as world:
        names = start(world, shards, gates)
        grant(world, names, world.start_ps(2), shards)
        gates["w0"].reached()
        tell(world, Adjust((("w0", 96), ("w1", 32)), (("w0", 3),)))
        gates["w0"].open()
        for name in names:
            world.receive(ShardFinished, name)
    one, other = computed.values()
    n_before = one.count(64)
    n_small = (2560 - 64 * n_before) // 32
    assert n_before > 2
    assert one == other == [64] * n_before + [32] * n_small, "both change in one round, and no row is lost"
    assert len(gates["w0"].losses) == n_before + -(-n_small // 3), "three of them are one update"
    assert len(gates["w1"].losses) == n_before + n_small


def of_size(taken):
    return [(0, taken[0], 32), (1, taken[1], 96)]
