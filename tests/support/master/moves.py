"""Moves of buckets between parameter servers: brought to a stage, and asked for by their load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET, BucketLoad
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.wire import messages as m

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.state import Stage
    from support.master.master_world import World


def to(world: World, stage: Stage) -> World:
    """Let a move come as far as a stage, one small step after the other."""
    for n in range(5000):
        if world.master.stage is stage:
            return world
        for name in world.living(Role.PS) if n % 10 else [*world.nodes]:
            if world.master.stage is stage:
                return world
            world.turn(name)
            world.hear(name)
        if world.network.busy:
            world.deliver(world.network.busy[0])
    raise AssertionError(world.master.stage)


def load_of(world: World, ps: int, served: dict[int, int], busy_s: float) -> m.Report:
    """Return the report of a PS that served these rows of each of its buckets in ten seconds."""
    group = world.master.record.group
    assert group is not None
    mine = tuple(bucket for bucket in range(N_BUCKET) if group.bucket_owner[bucket] == ps)
    n_served = tuple(served.get(bucket, 1000) for bucket in mine)
    load = BucketLoad(group.ps_epoch, 10.0, busy_s, mine, (5,) * len(mine), n_served)
    sample = NodeSample(group.nodes[ps], Role.PS, 0.0, 1.0, 1, 0, 0.1, TimeSplit(), 0.5, 100.0)
    return m.Report(sample, load=load)


def report(world: World, name: str, message: m.Report) -> None:
    world.do(world.master.on_message(name, message, world.at_s))
