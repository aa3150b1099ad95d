from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.runtime.node_world import FEATURES, MODEL, SPEC, Gate, World, shard
from support.runtime.single_process import train_single
from support.waiting import LIMIT_S

from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.models.learner import Learner
from dlrover_nb.core.runtime.checkpoints import ps_checkpoint
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.runtime.store.batches import BucketLayout, ShardWork
from dlrover_nb.core.runtime.worker import ps_client, worker
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.shards import Lease, Purpose, Shard
from dlrover_nb.core.structs.wire.messages import (
    Adjust,
    Drain,
    Granted,
    Left,
    NoShard,
    Pause,
    Paused,
    Report,
    ShardAsked,
    ShardFinished,
)

SHARDS = [shard(n) for n in (4, 0, 2)]
EVALUATION = Shard(Lease(Purpose.EVALUATE, 0, 1), 0, FEATURES.n_train, FEATURES.n_train + 1000)


@pytest.fixture(scope="module")
def single():
    return train_single(SPEC, FEATURES, shards=SHARDS)


@pytest.mark.more
@pytest.mark.parametrize("listen", ["ipc", "tcp://127.0.0.1"])
@pytest.mark.parametrize("n_ps", [1, 3])
def test_a_worker_and_its_ps_give_the_losses_and_scores_of_one_process(single, n_ps, listen):
    losses = []
    with World(listen=listen) as world:
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", world.start_ps(n_ps))
        world.train("w0", SHARDS)
        world.send("w0", Granted(EVALUATION))
        finished, (scores, labels) = world.receive(ShardFinished)
    assert finished.lease == EVALUATION.lease
    np.testing.assert_allclose(losses, single.losses, rtol=1e-6)
    np.testing.assert_allclose(scores, single.scores[:1000], atol=1e-6)
    np.testing.assert_array_equal(labels, single.labels[:1000])


@pytest.fixture
def measurable(monkeypatch):
    """Let a probe be tried so often that a busy machine slows not all of the empty ones beyond the full ones."""
    monkeypatch.setattr(ps_client, "N_PROBE", 30)


@pytest.mark.usefixtures("measurable")
def test_a_worker_measures_what_its_connection_carries_where_the_job_does_not_tell():
    with World() as world:
        train = world.start_ps(1)
        for name in ("w0", "w1"):  # one worker for each PS measures it
            world.start(name, Role.WORKER)
            world.send(name, train)
        for name in ("w0", "w1"):
            world.receive(ShardAsked, name)
        while not (measured_by(world, "w0") and samples_of(world, "w1")):
            world.receive(Report)
        (measured,) = set(measured_by(world, "w0"))
        assert measured > 0.01
        assert not measured_by(world, "w1") + measured_by(world, "ps0")


def test_a_probe_that_measured_a_wait_gives_way_to_a_better_one_after_a_later_shard(monkeypatch):
    carried = iter([0.006, 0.014, 0.24, 0.1])
    monkeypatch.setattr(ps_client.PsClient, "probe_link", lambda _client, _ps: next(carried, 0.05))
    monkeypatch.setattr(worker, "LINK_PROBE_EVERY_S", 0.0)
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        world.train("w0", [*SHARDS, shard(6)])
        assert next(carried, None) is None, "one probe at first, and one after each shard"
        while measured_by(world, "w0")[-1:] != [0.24]:
            world.receive(Report)


@pytest.mark.usefixtures("measurable")
def test_a_ps_that_joins_later_is_measured_after_a_shard_and_not_while_others_wait_for_it():
    gate = Gate(at=10)
    with World() as world:
        world.start("w1", Role.WORKER, gate)
        world.send("w1", world.start_ps(1))
        world.receive(ShardAsked)
        assert not measured_by(world, "w1")
        files = world.save(["ps0"])
        world.end("ps0")
        world.send("w1", world.start_ps(2, files, first=1))
        world.send("w1", Granted(SHARDS[0]))
        gate.reached()
        assert not measured_by(world, "w1")
        gate.open()
        world.receive(ShardFinished)
        while not measured_by(world, "w1"):
            world.receive(Report)


def pause(world, gate):
    gate.reached()
    world.send("w0", Pause(world.epoch))
    gate.open(step_s=0.2)
    return world.receive(Paused)[0]


def test_a_change_of_ps_amid_a_shard_goes_on_where_it_was(single):
    gate = Gate(at=13)
    with World() as world:
        world.start("w0", Role.WORKER, gate)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        world.receive(ShardFinished)
        world.send("w0", Granted(SHARDS[1]))
        paused = pause(world, gate)
        assert paused.lease == SHARDS[1].lease
        assert 3 * 64 <= paused.n_row_done == (len(gate.losses) - 10) * 64 < 640
        files = world.save(["ps0"])
        world.end("ps0")
        world.send("w0", world.start_ps(2, files, first=1))
        world.receive(ShardFinished)
        world.send("w0", Granted(SHARDS[2]))
        world.receive(ShardFinished)
    np.testing.assert_allclose(gate.losses, single.losses, rtol=1e-6)


def test_another_worker_goes_on_at_the_acknowledged_row(single):
    gate, rest = Gate(at=4), []
    with World() as world:
        world.start("w0", Role.WORKER, gate)
        train = world.start_ps(1)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        done = pause(world, gate).n_row_done
        world.end("w0")
        world.start("w1", Role.WORKER, rest.append)
        world.send("w1", train)
        world.train("w1", [replace(SHARDS[0], offset=done)])
    np.testing.assert_allclose([*gate.losses, *rest], single.losses[:10], rtol=1e-6)


def test_a_dead_ps_hangs_nobody_and_nothing_unacknowledged_is_claimed(single):
    gate = Gate(at=13)
    with World() as world:
        world.start("w0", Role.WORKER, gate)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        world.receive(ShardFinished)
        files = world.save(["ps0"])
        world.send("w0", Granted(SHARDS[1]))
        gate.reached()
        world.end("ps0")
        gate.open()
        world.send("w0", Pause(world.epoch))
        world.send("w0", Pause(world.epoch, drops=True))
        paused = world.receive(Paused)[0]
        assert paused.n_row_done == (len(gate.losses) - 10) * 64 < 640
        train = replace(world.start_ps(1, files, first=1), drop_shard=True)
        del gate.losses[10:]  # the new PS knows nothing of them
        world.send("w0", train)
        world.train("w0", [replace(s, lease=replace(s.lease, grant=2)) for s in SHARDS[1:]])
    np.testing.assert_allclose(gate.losses, single.losses, rtol=1e-6)


def test_other_ps_are_obeyed_at_once_though_the_old_ones_are_silent(single):
    gate = Gate(at=3)
    with World() as world:
        world.start("w0", Role.WORKER, gate)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        gate.reached()
        world.end("ps0")
        train = replace(world.start_ps(1, first=1), drop_shard=True)
        gate.open()
        world.send("w0", train)
        del gate.losses[:]
        world.train("w0", [replace(s, lease=replace(s.lease, grant=2)) for s in SHARDS])


def test_a_void_shard_is_dropped_though_a_pause_comes_right_after(single):
    gate = Gate(at=3)
    with World() as world:
        world.start("w0", Role.WORKER, gate)
        train = world.start_ps(1)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        gate.reached()
        world.send("w0", replace(train, drop_shard=True))
        world.send("w0", Pause(world.epoch))
        gate.open()
        paused = world.receive(Paused)[0]
        assert (paused.lease, paused.n_row_done) == (None, 0)


def test_a_drained_worker_finishes_its_shard_and_leaves():
    gate = Gate(at=2)
    with World() as world:
        world.start("w0", Role.WORKER, gate)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        gate.reached()
        world.send("w0", Drain())
        gate.open()
        assert world.receive(ShardFinished)[0].lease == SHARDS[0].lease
        assert world.receive(Left)[0].node == "w0"
        world.end("w0")
        assert len(gate.losses) == 10
        assert not world.errors


def test_a_worker_without_a_shard_asks_again_when_told():
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        for _ in range(3):
            world.receive(ShardAsked)
            world.send("w0", NoShard(0.01))
        world.train("w0", [SHARDS[0]])


def test_a_worker_asks_for_the_next_shard_amid_the_present_one_and_says_what_it_holds(single):
    losses = []
    with World() as world:
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", world.start_ps(1))
        assert world.receive(ShardAsked)[0].holding == ()
        held = SHARDS[0]
        world.send("w0", Granted(held))
        for following in SHARDS[1:]:
            assert world.receive(ShardAsked)[0].holding == (held.lease,)
            world.send("w0", Granted(following))
            assert world.receive(ShardFinished)[0].lease == held.lease
            held = following
        assert world.receive(ShardFinished)[0].lease == held.lease
    np.testing.assert_allclose(losses, single.losses, rtol=1e-6)


@pytest.mark.parametrize("n_ps", [1, 2])
def test_with_overlap_a_batch_misses_only_the_gradients_of_the_one_before(n_ps):
    spec, losses = replace(SPEC, overlap=True), []
    with World(spec) as world:
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", world.start_ps(n_ps))
        world.train("w0", SHARDS[:1])
    alone = losses_of_one_step_late(spec, SHARDS[0])
    np.testing.assert_allclose(losses, alone, rtol=1e-6)
    assert not np.allclose(losses, train_single(SPEC, FEATURES, shards=SHARDS[:1]).losses, rtol=1e-6)


def losses_of_one_step_late(spec, shard):
    """Train a shard in one process, each batch on parameters that miss the gradients before."""
    reader = ShardReader(spec.data, FEATURES)
    work, learner = ShardWork(shard, reader.read(shard.start, shard.stop), seed=spec.seed), new_learner()
    store = ParameterStore(spec.model, FEATURES.n_table_row, len(learner.values))
    store.init_dense(learner.values)
    losses, late = [], None
    while (batch := work.take(spec.batch_size, BucketLayout(np.zeros(N_BUCKET, np.int64), 1))) is not None:
        learner.values[:] = store.dense
        rows = store.pull(batch.rows)
        if late is not None:
            store.push(*late[:2])
            store.push_dense(late[2])
        gradients = learner.step(rows, batch.inverse, batch.dense, batch.labels)
        late = batch.rows, gradients.rows, learner.gradients.copy()
        losses.append(gradients.loss)
    return losses


def new_learner():
    return Learner(MODEL, len(FEATURES.categorical), len(FEATURES.numeric))


def test_a_pause_with_overlap_leaves_nothing_computed_unacknowledged():
    gate = Gate(at=3)
    with World(replace(SPEC, overlap=True)) as world:
        world.start("w0", Role.WORKER, gate)
        train = world.start_ps(2)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        paused = pause(world, gate)
        assert paused.lease == SHARDS[0].lease
        assert paused.n_row_done == len(gate.losses) * SPEC.batch_size > 3 * SPEC.batch_size
        world.send("w0", train)
        assert world.receive(ShardFinished)[0].lease == SHARDS[0].lease
    assert len(gate.losses) == SPEC.shard_batches


@pytest.mark.more
def test_a_pause_keeps_the_next_shard_and_a_drain_gives_it_back():
    gate, first = Gate(at=35), shard(0, n_batch=60)
    with World() as world:
        world.start("w0", Role.WORKER, gate)
        train = world.start_ps(1)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.send("w0", Granted(first))
        world.receive(ShardAsked)
        world.send("w0", Granted(shard(9)))
        assert pause(world, gate).lease == first.lease
        world.send("w0", train)
        world.send("w0", Drain())
        assert world.receive(ShardFinished)[0].lease == first.lease
        assert world.receive(Left)[0].node == "w0"
        world.end("w0")
    assert len(gate.losses) == 60


def test_a_shard_whose_rows_are_all_done_is_finished_without_training():
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        world.train("w0", [replace(SHARDS[0], offset=SHARDS[0].end), SHARDS[1]])


def test_rows_that_cannot_be_read_end_the_worker_with_the_reason():
    n_row = FEATURES.n_train + FEATURES.n_eval
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(replace(SHARDS[0], start=n_row, stop=n_row + 640)))
        world.threads.pop("w0").join(LIMIT_S)
        assert "rows must be within" in str(world.errors["w0"])


class Blocked:
    """A call that waits until it is let go; `reached` says that it is under way."""

    def __init__(self, call):
        self._call, self.is_under_way, self._may_go = call, threading.Event(), threading.Event()

    def __call__(self, *args):
        self.is_under_way.set()
        assert self._may_go.wait(LIMIT_S)
        return self._call(*args)

    def reached(self):
        assert self.is_under_way.wait(LIMIT_S)

    def open(self):
        self._may_go.set()


@pytest.mark.parametrize("what", ["read", "first batch"])
def test_what_rightly_takes_long_does_not_silence_a_worker(what, monkeypatch):
    kind, name = (ShardReader, "read") if what == "read" else (Learner, "step")
    blocked = Blocked(getattr(kind, name))
    monkeypatch.setattr(kind, name, lambda *args: blocked(*args))  # noqa: PLW0108 - a function takes self
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        blocked.reached()
        n_before = len(samples_of(world, "w0"))
        while len(samples_of(world, "w0")) < n_before + 2:
            world.receive(Report)
        blocked.open()
        world.receive(ShardFinished)


def test_a_shard_that_cannot_be_read_ends_its_worker(monkeypatch):
    blocked = Blocked(ShardReader.read)
    monkeypatch.setattr(ShardReader, "read", lambda *args: blocked(*args))  # noqa: PLW0108 - a function takes self
    monkeypatch.setattr(worker, "READ_LIMIT_S", 0.1)
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        world.threads.pop("w0").join(LIMIT_S)
        assert "were not read within" in str(world.errors["w0"])
        blocked.open()


def test_an_asynchronous_worker_takes_another_batch_size_from_its_next_batch_on():
    gate = Gate(at=20)
    with World() as world:
        world.start("w0", Role.WORKER, gate)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(shard(0, n_batch=40)))
        gate.reached()
        world.send("w0", Adjust((("w0", 128), ("w1", 7))))
        gate.open(step_s=0.1)
        world.receive(ShardFinished)
    assert 30 <= len(gate.losses) < 40


def test_a_pause_without_a_shard_is_answered_too():
    with World() as world:
        world.start("w0", Role.WORKER)
        world.send("w0", Pause(7))
        assert world.receive(Paused)[0] == Paused("w0", 7, None, 0)


def test_reports_add_up_and_say_where_the_time_went():
    gate = Gate(at=12)
    with World() as world:
        world.start("w0", Role.WORKER, gate)
        world.send("w0", world.start_ps(1))
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        world.receive(ShardFinished)
        world.send("w0", Granted(SHARDS[1]))
        gate.reached()  # the time behind the gate is a slow iteration
        world.receive(Report)
        gate.open()
        world.receive(ShardFinished)
        world.send("w0", NoShard(60))
        while sum(s.n_sample for s in samples_of(world, "w0")) < 1280:
            world.receive(Report)
        while not samples_of(world, "ps0")[-1:] or samples_of(world, "ps0")[-1].n_row == 0:
            world.receive(Report)
        while bytes_of(world, "ps0") < 0.95 * bytes_of(world, "w0"):  # heads of answers are not counted there
            world.receive(Report)
    for report in world.reports:
        assert report.sample.split.total_s == pytest.approx(report.sample.iter_s)
        assert report.sample.memory_mib > 10
    for node in ("w0", "ps0"):  # an iteration may begin in an earlier window than that which counts it
        busy_s = np.cumsum([s.n_iter * s.iter_s for s in samples_of(world, node)])
        window_s = np.cumsum([s.window_s for s in samples_of(world, node)])
        assert (busy_s <= window_s * 1.001).all()
    busy = [s for s in samples_of(world, "w0") if s.n_iter]
    assert sum(s.n_iter for s in busy) == 20
    mean_loss = np.average([s.loss for s in busy], weights=[s.n_iter for s in busy])
    assert mean_loss == pytest.approx(np.mean(gate.losses), rel=1e-6)
    assert all(s.split.compute_s > 0 and s.split.lookup_s > 0 and s.split.update_s > 0 for s in busy)
    assert all(s.split.peers_s == 0 for s in busy)
    n_row = sum(s.n_iter for s in busy) * SPEC.batch_size
    assert bytes_of(world, "w0") > 4 * MODEL.row_width * n_row / 10  # a tenth of a batch's ids are distinct
    ps = samples_of(world, "ps0")[-1]
    assert ps.n_row > 100
    assert ps.parameter_mib >= ps.n_row * 2 * 4 * MODEL.row_width / 2**20
    assert {r.n_row_done for r in world.reports if r.lease == SHARDS[1].lease} <= set(range(0, 640, 64))


def bytes_of(world, node):
    return sum(s.n_byte_sent + s.n_byte_received for s in samples_of(world, node))


def samples_of(world, node):
    return [r.sample for r in world.reports if r.sample.node == node]


def measured_by(world, node):
    return [sample.link_gbit_per_s for sample in samples_of(world, node) if sample.link_gbit_per_s]


def test_a_job_that_begins_anew_has_the_first_dense_parameters():
    """A worker holds trained ones by then."""
    first = Learner(SPEC.model, len(FEATURES.categorical), len(FEATURES.numeric)).values.copy()
    with World() as world:
        train = world.start_ps(1)
        world.start("w0", Role.WORKER)
        world.send("w0", train)
        world.train("w0", [shard(0)])
        again = world.load(["ps0"], train.endpoints)
        world.forget()
        world.send("w0", replace(again, drop_shard=True))
        world.receive(ShardAsked, "w0")  # it has connected
        files = world.save(["ps0"])
        dense = np.array(ps_checkpoint.read(Path(files[0][0]), files[0][1]).dense)
    np.testing.assert_array_equal(dense[0], first)


def test_a_grant_that_comes_again_is_trained_once():
    losses = []
    with World() as world:
        train = world.start_ps(1)
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", train)
        world.receive(ShardAsked, "w0")
        for _ in range(2):
            world.send("w0", Granted(shard(4)))
        assert world.receive(ShardFinished, "w0")[0].lease == shard(4).lease
        world.send("w0", Granted(shard(4)))
        world.send("w0", Pause(train.ps_epoch))
        assert world.receive(Paused, "w0")[0].lease is None
    assert len(losses) == SPEC.shard_batches
