"""A worker that was given up and is alive: refused by all PS before others get its shards, counted exactly."""

from __future__ import annotations

import pytest
from master_world import World, features, plan, spec, trained_every_row

from dlrover_nb.core.runtime.state import Stage
from dlrover_nb.core.structs import messages as m
from dlrover_nb.core.structs.job import JobPhase, Sync
from dlrover_nb.core.structs.resources import Role

PAUSED = "worker-0"


class Frozen(World):
    """A world in which one worker stands still for a while, and its backend cannot reach it."""

    is_still = False

    def turn(self, name: str) -> bool:
        return False if name == PAUSED and self.is_still else super().turn(name)

    def report(self, name: str) -> None:
        if not (name == PAUSED and self.is_still):
            super().report(name)

    def do(self, orders: object) -> None:
        orders = tuple(orders)  # type: ignore[arg-type]
        was_alive = PAUSED in getattr(self, "nodes", {}) and self.nodes[PAUSED].is_alive
        super().do(orders)
        if was_alive and self.is_still:
            self.nodes[PAUSED].is_alive = True


def frozen(n_ps: int = 1, **changes: object) -> Frozen:
    """Return a world whose first worker stands still amid a shard."""
    world = Frozen(spec(plan(2, n_ps), **changes), features(1600))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 60)
    shard = world.nodes[PAUSED].shard
    while shard is None or not 0 < world.nodes[PAUSED].n_done < shard.end - 10:
        world.round()
        shard = world.nodes[PAUSED].shard
    world.is_still = True
    return world


def give_up(world: Frozen) -> None:
    while world.master._state.roster.get(PAUSED) is not None:
        for name in list(world.nodes):
            if world.nodes[name].is_alive:
                world.report(name)
                while world.hear(name):
                    pass
        world.tick(1.0)


@pytest.mark.parametrize("sync", [Sync.ASP, Sync.SSP, Sync.BSP])
@pytest.mark.parametrize("n_ps", [1, 2])
def test_its_shards_are_given_to_others_when_no_ps_listens_to_it_any_more(n_ps: int, sync: Sync) -> None:
    world = frozen(n_ps, sync=sync)
    give_up(world)
    held = world.master._state.train.leases(PAUSED)
    assert held
    assert {fence.worker for fence in world.master._state.fences} == {PAUSED}
    world.run_until(lambda: not world.master._state.fences)
    assert all(PAUSED in ps.forgotten for ps in world.ps.values())
    assert not world.master._state.train.leases(PAUSED)
    world.is_still = False  # it comes back, with gradients of its old shard
    world.nodes[PAUSED].inbox.clear()  # the order to stop is lost, or late
    world.run_to_end()
    assert world.refused == [PAUSED]
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world, exactly_once=False)
    assert max(world.learnt.values()) <= 2  # rows that were done and not yet acknowledged
    again = {shard.lease.shard for name, shard in world.granted if name == PAUSED}
    assert {row // 40 for (_, row), n in world.learnt.items() if n > 1} <= again


def test_a_lost_order_or_answer_is_repeated() -> None:
    world = frozen()
    give_up(world)
    ps = world.nodes["ps-0"]
    ps.inbox.clear()
    world.tick(1.0)
    assert [each for each in ps.inbox if isinstance(each, m.Forget)] == [m.Forget(PAUSED)]
    assert world.turn("ps-0")
    ps.outbox.clear()
    world.run_until(lambda: not world.master._state.fences)
    world.nodes[PAUSED].is_alive = world.is_still = False
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_a_successor_of_the_master_goes_on_to_fence_and_loses_no_shard() -> None:
    world = frozen()
    give_up(world)
    world.nodes[PAUSED].is_alive = False
    world.is_still = False
    world.nodes["ps-0"].inbox.clear()
    world.crash()
    assert {fence.worker for fence in world.master._state.fences} == {PAUSED}
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world, exactly_once=False)


def test_a_process_that_is_gone_after_all_holds_nothing_up() -> None:
    world = frozen()
    give_up(world)
    world.is_still = False
    world.kill(PAUSED)
    assert not world.master._state.fences
    assert not world.master._state.train.leases(PAUSED)
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_a_lost_ps_takes_the_fence_along() -> None:
    world = frozen(2)
    give_up(world)
    world.kill("ps-1")
    assert not world.master._state.fences
    world.nodes[PAUSED].is_alive = world.is_still = False
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_nothing_is_copied_while_a_given_up_worker_may_still_push() -> None:
    world = frozen(heartbeat_timeout_s=10.0)  # less than the limit of a stop
    world.do(world.master.stop("ada", "", world.at_s))
    world.nodes["worker-1"].inbox.clear()
    give_up(world)
    assert world.master._state.fences
    assert world.master.stage is Stage.PAUSING
    for worker in world.living(Role.WORKER):
        if worker != PAUSED:
            world.kill(worker)
    assert world.master.stage is Stage.PAUSING
    world.nodes[PAUSED].is_alive = world.is_still = False
    world.run_until(lambda: world.master.stage is not Stage.PAUSING)
    assert PAUSED in world.ps["ps-0"].forgotten
