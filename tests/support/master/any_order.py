"""What may befall a job, in any order, and what always holds of its master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import fits
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import ShardAction, ShardChoice
from support.master.master_world import World, plan

if TYPE_CHECKING:
    import random

    from dlrover_nb.core.master.own.recovery_record import NodeRecord
    from dlrover_nb.core.structs.plan.capacity import Need

PLANS = st.builds(
    plan,
    st.integers(1, 3),
    st.integers(1, 3),
    worker_cpu=st.sampled_from([0.5, 1.0]),
    ps_cpu=st.sampled_from([0.25, 0.5]),
)


def need_of(node: NodeRecord) -> Need:
    """Return the cores and MiB that a node holds; while it is resized, the larger of both."""
    cpu, memory_mib = node.resizing or (0.0, 0)
    return max(node.cpu, cpu), max(node.memory_mib, memory_mib)


def check(world: World, wanted: list[object]) -> None:
    """Assert what holds at every moment."""
    master, record = world.master, world.master.record
    for ledger in master.ledgers:
        counts = ledger.counts()
        assert counts.todo + counts.doing + counts.done + counts.quarantined == ledger.split.n_shard
        assert 0 <= counts.n_sample_done <= counts.n_sample_total
    assert master.train_counts.n_sample_done <= len(world.learnt) or not record.group
    if record.stage is Stage.ENDED:
        assert not record.nodes
        return
    serving = {n.loaded_epoch for n in record.nodes if record.group and n.id in record.group.nodes}
    assert len(serving) <= 1 or record.stage in {Stage.LOADING, Stage.SWITCHING}
    world.check_parameters()
    assert fits(world.capacity, [need_of(node) for node in record.nodes if not node.is_leaving])
    assert record.target in wanted


def acquit(world: World) -> None:
    """Decide that shards which ended their holders by chance are trained all the same."""
    for each in world.master.quarantined:
        world.do(world.master.choose(ShardChoice(each.shard, ShardAction.RETRY, "ada"), world.at_s))


def play_out(world: World, wanted: list[object]) -> bool:
    """Disturb nothing any more; return whether the job succeeds: it may fail only as nodes keep failing."""
    for _ in range(3000):
        if world.master.stage is Stage.ENDED:
            break
        acquit(world)
        world.round()
        check(world, wanted)
    assert world.master.phase in {JobPhase.SUCCEEDED, JobPhase.FAILED}
    assert world.master.phase is JobPhase.SUCCEEDED or "keep failing" in world.master.message
    return world.master.phase is JobPhase.SUCCEEDED


def evict_or_kill(world: World, rng: random.Random, name: str) -> None:
    """End a node; a PS that is up may have some time yet."""
    node = world.nodes[name]
    if node.order.role is Role.PS and node.has_come_up and rng.random() < 0.6:
        world.evict(name)
    else:
        world.kill(name)


def disturb(world: World, rng: random.Random, wanted: list[object], plans: list[object]) -> None:
    """Do one random thing: a node acts, is heard, reports, dies; time passes; the target changes."""
    names = [n for n in world.nodes if world.nodes[n].is_alive or world.nodes[n].outbox]
    if world.network.busy and rng.random() < 0.3:
        world.deliver(rng.choice(world.network.busy))
        return
    if world.resizings and rng.random() < 0.3:
        name = rng.choice(list(world.resizings))
        world.allot(name, rng.choice(["", "", "it does not fit"]))
        return
    act = rng.random()
    name = rng.choice(names) if names else ""
    if act < 0.45 and name:
        node = world.nodes[name]
        if node.is_alive and node.train is None and node.ps_epoch < 0 and not node.outbox:
            world.hello(name)
        world.turn(name)
    elif act < 0.85 and name:
        world.hear(name)
    elif act < 0.9 and name and world.nodes[name].is_alive:
        world.report(name)
    elif act < 0.915 and name and world.nodes[name].is_alive and rng.random() < 0.5:
        evict_or_kill(world, rng, name)
    elif act < 0.93 and plans:
        wanted.append(plans.pop())
        world.do(world.master.set_target(wanted[-1], world.at_s))  # type: ignore[arg-type]
    else:
        world.tick(rng.choice([0.0, 0.1, 0.5]))
