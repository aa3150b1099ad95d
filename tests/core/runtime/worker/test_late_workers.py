"""Backup workers, rates of single workers and workers that leave at once, as real nodes in threads."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.node_world import FEATURES, SPEC, Gate, World, shard
from support.runtime.single_process import LocalClient, train_single
from support.waiting import LIMIT_S
from test_nodes_in_step import BSP, ONE_PS, SSP, Together, grant, start, tell

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.models.learner import Learner
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.runtime.store.batches import ShardWork, prepare_batch
from dlrover_nb.core.runtime.worker.shard_prefetcher import ShardPrefetcher
from dlrover_nb.core.runtime.worker.trainer import MOST_LATE, Trainer
from dlrover_nb.core.structs.job.spec_choices import Optimizer, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import (
    Drain,
    Granted,
    Left,
    NoShard,
    Pause,
    Paused,
    ShardAsked,
    ShardFinished,
)
from dlrover_nb.core.structs.wire.mitigation_messages import Backups, SetRate, ShardReturned

SHARDS = [shard(n) for n in (4, 0, 2)]


def losses_of_rounds(spec, shards, rounds):
    """Train in one process, each round on the next batches of some shards; return the losses of each shard."""
    reader = ShardReader(spec.data, FEATURES)
    learner = Learner(spec.model, len(FEATURES.categorical), len(FEATURES.numeric))
    works = [ShardWork(s, reader.read(s.start, s.stop), seed=spec.seed) for s in shards]
    store = ParameterStore(spec.model, FEATURES.n_table_row, len(learner.values))
    store.init_dense(learner.values)
    losses = [[] for _ in shards]
    for members in rounds:
        batches = [works[i].take(spec.batch_size, ONE_PS) for i in members]
        learner.values[:] = store.dense
        for i, batch in zip(members, batches, strict=True):
            rows = store.pull(batch.rows)
            losses[i].append(learner.step(rows, batch.inverse, batch.dense, batch.labels).loss)
        ids = np.concatenate([b.rows[b.inverse] for b in batches]).reshape(-1, len(FEATURES.categorical))
        dense, labels = (np.concatenate([getattr(b, n) for b in batches]) for n in ("dense", "labels"))
        union = prepare_batch(ids, dense, labels, ONE_PS)
        gradients = learner.step(store.pull(union.rows), union.inverse, union.dense, union.labels)
        store.push(union.rows, gradients.rows)
        store.push_dense(learner.gradients)
    assert all(not work.n_row_left for work in works)
    return losses


class Turns:
    """Lets workers compute one after the other, as a script says; a turn is over when its worker comes again.

    The first turn begins when all workers have come, in the same round. After the last one all are held.
    """

    def __init__(self, world, script, monkeypatch):
        self._world, self._script, self._changed = world, list(script), threading.Condition()
        self._come, self._turn, self._is_free = set(), None, False
        learn = Trainer._learn

        def held(trainer, batch, rows):
            self._wait_for_turn(threading.current_thread())
            return learn(trainer, batch, rows)

        monkeypatch.setattr(Trainer, "_learn", held)

    def _wait_for_turn(self, thread):
        name = next(name for name, each in self._world.threads.items() if each is thread)
        with self._changed:
            self._come.add(name)
            self._turn = None if self._turn == name else self._turn
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._is_free or self._is_next(name), LIMIT_S)
            if self._script:
                self._turn = self._script.pop(0)
                self._changed.notify_all()

    def _is_next(self, name):
        all_came = self._come >= set(self._script)
        return self._turn is None and all_came and self._script[:1] == [name]

    def played(self, last=None):
        """Wait until the script is over; its `last` worker need not come again."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._script and self._turn in {None, last}, LIMIT_S)

    def free(self):
        with self._changed:
            self._is_free = True
            self._changed.notify_all()


def test_a_worker_that_stands_still_holds_nobody_up_and_its_rows_are_trained_later(monkeypatch):
    shards = [shard(0), shard(3)]
    expected = losses_of_rounds(BSP, shards, [(0, 1)] * 2 + [(1,)] * 8 + [(0,)] * 8)
    Together(2, monkeypatch)
    gate, losses = Gate(at=2), []
    with World(BSP) as world:
        names = start(world, shards, {"w0": gate, "w1": losses.append})
        train = world.start_ps(2)
        grant(world, names, train, shards)
        gate.reached()
        world.send("ps0", Backups(1))
        assert world.receive(ShardFinished)[0].node == "w1"
        gate.open()
        assert world.receive(ShardFinished, "w0")[0].lease == shards[0].lease
        assert not world.errors
    np.testing.assert_allclose(gate.losses, expected[0], rtol=1e-4)
    np.testing.assert_allclose(losses, expected[1], rtol=1e-4)


def test_a_batch_that_came_too_late_is_trained_again_in_the_open_round(monkeypatch):
    """Round 0 ends with w1, so w0 is late; round 1 ends with w0, so w1 is; then rounds are of both."""
    shards = [shard(0), shard(3)]
    losses = {"w0": [], "w1": []}
    expected = losses_of_rounds(BSP, shards, [(1,), (0,)] + [(0, 1)] * 9)
    with World(BSP) as world:
        names = start(world, shards, {name: each.append for name, each in losses.items()})
        turns = Turns(world, ["w1", "w0", "w0", "w1"], monkeypatch)
        train = world.start_ps(2)
        tell(world, Backups(1))
        grant(world, names, train, shards)
        turns.played()
        assert {name: len(each) for name, each in losses.items()} == {"w0": 1, "w1": 1}
        tell(world, Backups(0))
        turns.free()
        for name in names:
            world.receive(ShardFinished, name)
        assert not world.errors
    np.testing.assert_allclose(losses["w0"], expected[0], rtol=1e-4)
    np.testing.assert_allclose(losses["w1"], expected[1], rtol=1e-4)


def test_a_worker_that_is_late_again_and_again_gives_the_rest_of_its_shard_to_others(monkeypatch):
    shards = [shard(0), shard(3)]
    losses = {"w0": [], "w1": []}
    expected = losses_of_rounds(BSP, shards, [(0,)] + [(1,)] * 10 + [(0,)] * 9)
    with World(BSP) as world:
        names = start(world, shards, {name: each.append for name, each in losses.items()})
        turns = Turns(world, ["w0", "w1", *["w1", "w0"] * 3], monkeypatch)
        train = world.start_ps(2)
        tell(world, Backups(1))
        grant(world, names, train, shards)
        turns.played(last="w0")
        returned = world.receive(ShardReturned)[0]
        assert returned == ShardReturned("w0", shards[0].lease, SPEC.batch_size)
        assert world.receive(ShardAsked, "w0")[0].holding == ()
        world.send("w0", NoShard(600.0))
        turns.free()
        assert world.receive(ShardFinished, "w1")[0].lease == shards[1].lease
        rest = replace(shards[0], offset=returned.n_row_done, lease=replace(shards[0].lease, grant=2))
        world.send("w1", Granted(rest))
        assert world.receive(ShardFinished, "w1")[0].lease == rest.lease
        assert not world.errors
    np.testing.assert_allclose([*losses["w0"], *losses["w1"][10:]], expected[0], rtol=1e-4)
    np.testing.assert_allclose(losses["w1"][:10], expected[1], rtol=1e-4)


def test_a_pause_finds_a_late_worker_at_the_rows_that_are_in_a_round(monkeypatch):
    shards = [shard(0), shard(1, n_batch=40)]
    Together(2, monkeypatch)
    gate, other = Gate(at=2), Gate(at=20)
    with World(BSP) as world:
        names = start(world, shards, {"w0": gate, "w1": other})
        train = world.start_ps(1)
        grant(world, names, train, shards)
        gate.reached()
        world.send("ps0", Backups(1))
        other.reached()
        for name in names:
            world.send(name, Pause(world.epoch))
        gate.open(step_s=1.0)  # it may make one step more, and no other waits for it
        paused = world.receive(Paused, "w0")[0]
        gate.open()
        assert paused.n_row_done == len(gate.losses) * SPEC.batch_size
        assert paused.n_row_done in {2 * SPEC.batch_size, 3 * SPEC.batch_size}
        other.open()
        world.receive(Paused, "w1")
        tell(world, Backups(0))
        for name in names:
            world.send(name, train)
        for name in names:
            world.receive(ShardFinished, name)
        assert not world.errors
    assert (len(gate.losses), len(other.losses)) == (10, 40)


# at once


@pytest.fixture(scope="module")
def single():
    return train_single(SPEC, FEATURES, shards=SHARDS)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_worker_that_is_to_leave_at_once_says_at_which_row_others_go_on(single, overlap):
    gate, rest = Gate(at=4), []
    with World(replace(SPEC, overlap=overlap)) as world:
        world.start("w0", Role.WORKER, gate)
        train = world.start_ps(2)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        gate.reached()
        world.send("w0", Drain(at_once=True))
        gate.open(step_s=0.2)
        left = world.receive(Left)[0]
        assert (left.node, left.lease) == ("w0", SHARDS[0].lease)
        assert left.n_row_done == len(gate.losses) * SPEC.batch_size < 640
        world.end("w0")
        assert not world.errors
        world.start("w1", Role.WORKER, rest.append)
        world.send("w1", train)
        world.train("w1", [replace(SHARDS[0], offset=left.n_row_done)])
    assert len(gate.losses) + len(rest) == 10
    if not overlap:
        np.testing.assert_allclose([*gate.losses, *rest], single.losses[:10], rtol=1e-6)


def test_a_worker_without_a_shard_leaves_at_once_too():
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", NoShard(600.0))
        world.send("w0", Drain(at_once=True))
        assert world.receive(Left)[0] == Left("w0")


def test_a_worker_that_leaves_at_once_leaves_the_rounds_too(monkeypatch):
    Together(2, monkeypatch)
    shards = [shard(0), shard(1)]
    gate, losses = Gate(at=3), []
    with World(BSP) as world:
        names = start(world, shards, {"w0": gate, "w1": losses.append})
        grant(world, names, world.start_ps(2), shards)
        gate.reached()
        world.send("w0", Drain(at_once=True))
        gate.open(step_s=0.5)
        left = world.receive(Left)[0]
        assert left.n_row_done == len(gate.losses) * SPEC.batch_size
        world.receive(ShardFinished, "w1")
    assert len(losses) == 10


# rates


@pytest.mark.more
@pytest.mark.parametrize("optimizer", Optimizer)
@pytest.mark.parametrize("spec", [SPEC, SSP], ids=["asp", "ssp"])
def test_gradients_of_a_worker_with_half_the_rate_move_parameters_half_as_far(optimizer, spec):
    model = replace(spec.model, optimizer=optimizer)
    slow = replace(spec, model=replace(model, learning_rate=model.learning_rate / 2))
    expected, losses = train_single(slow, FEATURES, shards=SHARDS[:1]).losses, []
    with World(replace(spec, model=model)) as world:
        world.start("w0", Role.WORKER, losses.append)
        train = world.start_ps(2)
        world.send("w0", SetRate(0.5))
        world.send("w0", train)
        world.train("w0", SHARDS[:1])
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert not np.allclose(
        losses, train_single(replace(spec, model=model), FEATURES, shards=SHARDS[:1]).losses
    )


@pytest.mark.parametrize("sync", [Sync.ASP, Sync.BSP])
def test_ps_with_half_the_rate_move_parameters_half_as_far(sync):
    slow = replace(SPEC, model=replace(SPEC.model, learning_rate=SPEC.model.learning_rate / 2))
    expected, losses = train_single(slow, FEATURES, shards=SHARDS[:1]).losses, []
    with World(replace(SPEC, sync=sync)) as world:
        world.start("w0", Role.WORKER, losses.append)
        train = world.start_ps(2)
        for ps in ("ps0", "ps1"):
            world.send(ps, SetRate(0.5))
        world.send("w0", train)
        world.train("w0", SHARDS[:1])
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


# laws


class LateClient(LocalClient):
    """Parameters of this process, for which gradients come too late as a list says."""

    def __init__(self, store, is_late):
        super().__init__(store)
        self._is_late, self._was_late, self.used = iter(is_late), False, []

    @property
    def was_late(self):
        return self._was_late

    def start(self, push, pull):
        self._was_late = push is not None and next(self._is_late, False)
        if push is not None and not self._was_late:
            self.used.append((push.loss, len(push.batch.labels)))
        super().start(None if self._was_late else push, pull)


class ReturningSource:
    """Shards that are granted again, to the same worker, when it gives them back."""

    def __init__(self, reader, shards):
        self.prefetcher, self.n_returned = ShardPrefetcher(reader.read, seed=SPEC.seed), 0
        for each in shards:
            self.prefetcher.add(each)
        self.rewind, self.finish = self.prefetcher.rewind, self.prefetcher.remove

    def take(self, size, layout):
        while self.prefetcher.is_reading:
            time.sleep(0.001)
        return self.prefetcher.take(size, layout)

    def give_back(self, work):
        self.n_returned += 1
        self.prefetcher.remove(work)
        anew = replace(work.shard.lease, grant=work.shard.lease.grant + 1)
        self.prefetcher.add(replace(work.shard, offset=work.n_row_done, lease=anew))


@pytest.mark.more
@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), max_size=40))
def test_however_late_a_worker_is_each_row_is_in_exactly_one_gradient_that_is_used(is_late):
    shards, losses = [shard(n, n_batch=3) for n in (0, 5)], []
    reader = ShardReader(SPEC.data, FEATURES)
    trainer = Trainer(BSP, FEATURES, reader, TimeAccounting(SystemClock()), on_loss=losses.append)
    store = ParameterStore(SPEC.model, FEATURES.n_table_row, len(trainer.learner.values))
    store.init_dense(trainer.learner.values)
    client, source = LateClient(store, is_late), ReturningSource(reader, shards)
    while source.prefetcher.leases:
        trainer.run(source, client)
    source.prefetcher.close()
    assert losses == [loss for loss, _ in client.used]
    assert sum(n_row for _, n_row in client.used) == 6 * SPEC.batch_size
    in_a_row = max((len(run) for run in "".join("x" if each else " " for each in is_late).split()), default=0)
    if in_a_row < MOST_LATE:
        assert not source.n_returned
    if is_late[:MOST_LATE] == [True] * MOST_LATE:
        assert source.n_returned
