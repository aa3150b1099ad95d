"""Workers that their cluster ends by SIGTERM: they finish their shard, others take their place, no row is lost."""

from __future__ import annotations

import pytest
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role


def training(n_worker: int = 2, **changes: object) -> World:
    """Return a job whose workers have trained some rows."""
    first = plan(n_worker, 1)
    world = World(spec(first, **changes), features(4000))
    world.run_until(lambda: in_place(world, first) and world.master.train_counts.n_sample_done > 400)
    return world


def evict(world: World, *names: str) -> None:
    """Send SIGTERM to workers: they ask for no other shard, and leave after the present one."""
    for name in names:
        world.nodes[name].is_draining = True


def replaced(world: World, *names: str) -> None:
    """Run until others train in the place of those, and their processes have ended."""
    world.run_until(lambda: not any(world.nodes[name].is_alive for name in names))
    for name in names:
        world.do(world.master.on_exit(name, "", world.at_s))
    target = world.master.target
    world.run_until(lambda: in_place(world, target))
    workers = world.living(Role.WORKER)
    assert len(workers) == target.worker.count
    assert not set(names) & set(workers)


def finished(world: World) -> None:
    """Run to the end: each row was trained once, no report was refused, and no node counts as lost."""
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    trained_every_row(world)
    assert world.master.train_counts.refused == 0
    assert "was lost" not in str(world.events)


@pytest.mark.more
@pytest.mark.parametrize("sync", [Sync.ASP, Sync.SSP, Sync.BSP])
@pytest.mark.parametrize("names", [("worker-0",), ("worker-1",), ("worker-0", "worker-1")])
def test_they_finish_their_shards_and_are_replaced(names: tuple[str, ...], sync: Sync) -> None:
    world = training(sync=sync)
    evict(world, *names)
    replaced(world, *names)
    finished(world)


def test_the_only_one_is_replaced_too() -> None:
    world = training(1)
    evict(world, "worker-0")
    replaced(world, "worker-0")
    finished(world)


def test_the_next_master_replaces_one_that_left_while_there_was_none() -> None:
    world = training()
    evict(world, "worker-0")
    while world.nodes["worker-0"].left is None:
        world.turn("worker-0")
    n_said = len(world.nodes["worker-0"].outbox)
    assert n_said
    world.crash(n_kept=n_said, dead=["worker-0"])
    world.run_until(lambda: in_place(world, plan(2, 1)))
    assert "worker-0" not in world.living(Role.WORKER)
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world, exactly_once=False)
