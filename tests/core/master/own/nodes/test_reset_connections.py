"""A connection between master and node breaks, and what is on its way is lost: both say again what counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row
from support.master.mitigation_world import mitigate

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.decisions.actions import AdjustRates, BackupWorkers
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.resize_messages import Resize, Resized
from dlrover_nb.core.structs.training.shards import BatchChoice, ShardProgress
from dlrover_nb.core.structs.wire import messages as m
from dlrover_nb.core.structs.wire.copy_messages import Cut
from dlrover_nb.core.structs.wire.mitigation_messages import Backups, SetRate, ShardReturned

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import Lease

SOON_S = 35.0  # a worker repeats a request in 30 s


class LossyWorld(World):
    """Loses the first message of a kind, with all that comes after it on that connection; then its node connects again."""

    def __init__(self, kind: type | None, first: ResourcePlan, **changes: object) -> None:
        self.kind, self.lost = kind, ""
        super().__init__(spec(first, **changes), features(395))

    def turn(self, name: str) -> bool:
        inbox = self.nodes[name].inbox
        if inbox and self._is_lost(inbox[0]):
            self._reset(name)
        return super().turn(name)

    def hear(self, name: str) -> bool:
        outbox = self.nodes[name].outbox
        if outbox and self._is_lost(outbox[0][0]):
            self._reset(name)
        return super().hear(name)

    def _is_lost(self, message: object) -> bool:
        return not self.lost and self.kind is not None and isinstance(message, self.kind)

    def _reset(self, name: str) -> None:
        self.lost = name
        self.nodes[name].outbox.clear()
        self.nodes[name].inbox.clear()
        if self.nodes[name].is_alive:
            self.hello(name)


def played(kind: type | None, **changes: object) -> LossyWorld:
    """Play a job whose plan gives it other numbers of nodes, and later other sizes, with one broken row."""
    world = LossyWorld(kind, plan(3, 2), **({"n_epoch": 3, "checkpoint_every_s": 1.5} | changes))
    world.broken = {17}
    world.resize_in_place()
    for n_done, target in [(100, plan(2, 3)), (500, plan(2, 3, worker_cpu=0.25)), (800, plan(2, 2))]:
        world.run_until(lambda n=n_done: world.master.train_counts.n_sample_done > n, 900)
        world.do(world.master.set_target(target, world.at_s))
        world.run_until(lambda t=target: world.master.running == t or world.master.record.is_evaluating, 900)
    world.run_to_end()
    return world


FROM_NODE = [
    m.ShardAsked, m.ShardFinished, m.BatchSkipped, m.Paused, m.Left, Cut, m.Copied, m.Saved, m.Loaded, m.Moved,
    m.Forgotten, Resized,
]  # fmt: skip
TO_NODE = [
    m.Load, m.Save, m.MoveOut, m.MoveEnd, m.Train, m.Pause, m.Granted, m.NoShard, m.Drain, m.Forget, Resize,
]  # fmt: skip


@pytest.fixture(scope="module")
def untroubled() -> LossyWorld:
    return played(None)


@pytest.mark.more
@pytest.mark.parametrize("kind", [*FROM_NODE, *TO_NODE], ids=lambda kind: kind.__name__)
def test_a_message_that_is_lost_with_its_connection_costs_no_row_and_little_time(
    kind: type, untroubled: LossyWorld
) -> None:
    world = played(kind)
    assert world.lost, "no such message was on its way"
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.at_s < untroubled.at_s + SOON_S
    assert world.master.record.n_named == untroubled.master.record.n_named, "it was replaced"
    assert world.master.train_counts.n_sample_done == 3 * 395
    assert set(world.learnt.values()) == {1}
    assert len(world.learnt) == 3 * (395 - 10)
    assert world.master.record.n_skipped == 3


def started(**changes: object) -> tuple[World, str]:
    world = World(spec(plan(1, 1), **changes), features(395))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 40)
    return world, world.living(Role.WORKER)[0]


def hear(world: World, name: str, message: m.FromNode) -> None:
    world.do(world.master.on_message(name, message, world.at_s))


def position(world: World, name: str) -> tuple[Lease, int]:
    node = world.nodes[name]
    assert node.shard is not None
    return node.shard.lease, node.n_done


@pytest.mark.parametrize("how", ["hello", "asked", "paused", "left"])
def test_what_a_worker_did_in_a_shard_that_it_let_go_is_heard_with_its_next_message(how: str) -> None:
    world, name = started()
    lease, n_done = position(world, name)
    before, done = world.master.train_counts, (ShardProgress(lease, 40),)
    said: dict[str, m.FromNode] = {
        "hello": m.Hello(name, Role.WORKER, 1, "host", "", False, released=done),
        "asked": m.ShardAsked(name, (), done),
        "paused": m.Paused(name, 1, None, 0, 0, done),
        "left": m.Left(name, None, 0, done),
    }
    hear(world, name, said[how])
    hear(world, name, said[how])
    counts = world.master.train_counts
    assert (counts.done, counts.refused) == (before.done + 1, before.refused)
    assert n_done < 40


@pytest.mark.parametrize("n_row_done", [0, 10])
def test_a_worker_has_worked_only_once_rows_of_a_shard_that_it_let_go_are_done(n_row_done: int) -> None:
    world = World(spec(plan(1, 1)), features(395))
    world.run_until(lambda: bool(world.granted))
    name, shard = world.granted[0]
    (node,) = (each for each in world.master.record.nodes if each.id == name)
    assert not node.has_worked
    released = (ShardProgress(shard.lease, n_row_done),)
    hear(world, name, m.Hello(name, Role.WORKER, 1, "host", "", False, released=released))
    assert world.master.train_counts.returned == 1
    (node,) = (each for each in world.master.record.nodes if each.id == name)
    assert node.has_worked == (n_row_done > 0)


def test_rows_of_a_shard_that_was_given_back_count_though_that_was_not_heard() -> None:
    world, name = started()
    lease, n_done = position(world, name)
    before = world.master.train_counts
    hear(world, name, m.Hello(name, Role.WORKER, 1, "host", "", False, released=(ShardProgress(lease, 30),)))
    hear(world, name, ShardReturned(name, lease, 30))
    counts = world.master.train_counts
    assert (counts.done, counts.returned) == (before.done, before.returned + 1)
    assert world.master.ledgers[0].checkpoint().begun == ((lease.shard, 30),)
    assert n_done < 30 or before.n_sample_done < counts.n_sample_done


def test_a_master_that_comes_later_hears_what_the_one_before_did_not_write() -> None:
    world, name = started()
    world.run_until(lambda: isinstance(_next_said(world, name), m.ShardFinished))
    world.crash()
    world.run_to_end()
    trained_every_row(world)


def _next_said(world: World, name: str) -> object:
    """Let a worker work until it has something to say; return that."""
    node = world.nodes[name]
    while not node.outbox:
        world.turn(name)
    return node.outbox[0][0]


def test_the_coordinator_hears_again_what_rounds_are_like() -> None:
    world = World(spec(plan(2, 1), sync=Sync.BSP), features(4000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.do(world.master.choose(BatchChoice((("worker-0", 5),), "ada"), world.at_s))
    mitigate(world, BackupWorkers(1))
    (ps,) = world.living(Role.PS)
    for _ in range(4):
        world.round()
    world.nodes[ps].heard.clear()
    world.hello(ps)
    for _ in range(4):
        world.round()
    heard = world.nodes[ps].heard
    assert m.Adjust((("worker-0", 5),)) in heard
    assert Backups(1) in heard


def test_a_worker_that_did_not_hear_of_a_rollback_drops_what_it_holds() -> None:
    world = World(spec(plan(2, 2), checkpoint_every_s=1.0), features(800))
    world.run_until(lambda: world.disk and world.master.train_counts.n_sample_done > 300)
    workers = world.living(Role.WORKER)
    world.kill(world.living(Role.PS)[0])
    world.run_until(lambda: any(_is_dropped(world, name) for name in workers))
    name = next(name for name in workers if _is_dropped(world, name))
    world.nodes[name].inbox.clear()
    assert world.nodes[name].hello(1).unfinished
    world.hello(name)
    world.run_to_end()
    trained = world.master.train_counts
    assert trained.n_sample_done == 800
    assert set(world.learnt.values()) == {1}


def _is_dropped(world: World, name: str) -> bool:
    orders = world.nodes[name].inbox
    return any(isinstance(order, m.Train) and order.drop_shard for order in orders)


def test_a_worker_hears_again_how_fast_it_is_to_learn() -> None:
    world, name = started()
    mitigate(world, AdjustRates(((name, 0.5),)))
    world.round()
    world.round()
    world.nodes[name].heard.clear()
    world.hello(name)
    world.round()
    world.round()
    assert SetRate(0.5) in world.nodes[name].heard


@pytest.mark.parametrize("kind", [m.Train, m.Pause])
def test_an_order_that_is_lost_with_its_connection_is_given_again(kind: type[m.ToNode]) -> None:
    world = World(spec(plan(1, 1), checkpoint_every_s=0.0), features(395))
    world.run_until(lambda: world.master.record.n_pause > 0 and _is_ordered(world, kind))
    (worker,) = world.living(Role.WORKER)
    world.nodes[worker].inbox.clear()
    world.hello(worker)
    world.run_until(lambda: world.master.stage is Stage.ENDED, 400)
    trained_every_row(world)
    assert world.master.record.n_named[0][1] == 1, "the worker was replaced"


def _is_ordered(world: World, kind: type[m.ToNode], role: Role = Role.WORKER) -> bool:
    """Whether an order of this kind is on its way to a node."""
    return any(_hears(world, name, kind) for name in world.living(role))


def _hears(world: World, name: str, kind: type[m.ToNode]) -> bool:
    return any(isinstance(order, kind) for order in world.nodes[name].inbox)


@pytest.mark.parametrize("is_final", [False, True])
def test_a_checkpoint_whose_order_is_lost_holds_nothing_up(*, is_final: bool) -> None:
    world = World(spec(plan(1, 2), checkpoint_every_s=0.5), features(395))
    world.run_until(
        lambda: world.master.train_counts.finished is is_final and _is_ordered(world, m.Save, Role.PS)
    )
    ps = next(name for name in world.living(Role.PS) if _hears(world, name, m.Save))
    world.nodes[ps].inbox.clear()
    lost_s = world.at_s
    world.hello(ps)
    world.run_until(lambda: world.master.stage is Stage.ENDED, 400)
    assert world.at_s < lost_s + 60, "training waited for what was lost"
    trained_every_row(world)
    assert world.master.checkpoints[-1].is_on_disk
    assert not world.master.record.not_saved
