"""Nodes that are resized in place: same nodes, no pause, and replaced where that cannot be had."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.any_order import PLANS, check, disturb, need_of
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.master.own.nodes.liveness import PLAN_LIMIT_S, RESIZE_LIMIT_S
from dlrover_nb.core.master.own.recovery_record import NodeRecord
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.shared.orders import ResizeNode, StartNode
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.capacity import fits, plan_needs
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.resize_messages import Resize
from dlrover_nb.core.structs.views.events import NodeReported, PhaseChanged, PlanApplied, PlanFailed

BEFORE = plan(2, 2)
AFTER = ResourcePlan(RolePlan(2, 1.0, 512), RolePlan(2, 0.5, 1024))


class Enforced(World):
    """The memory of ps-0 is limited when it starts; after a resize it answers that it is not."""

    def hello(self, name: str) -> None:
        node = self.nodes[name]
        node.has_come_up = True
        node.say(replace(node.hello(1), memory_enforced=name == "ps-0"))


def running(
    first: ResourcePlan = BEFORE, n_row: int = 20_000, kind: type[World] = World, **changes: object
) -> World:
    world = kind(spec(first, **changes), features(n_row))
    world.resize_in_place()
    world.run_until(lambda: in_place(world, first))
    return world


def order(world: World, target: ResourcePlan) -> None:
    world.do(world.master.set_target(target, world.at_s))


def notes(world: World) -> str:
    return "\n".join(event.message for event in world.told(PhaseChanged))


def shapes(world: World) -> dict[str, tuple[float, int]]:
    return {node.id: (node.cpu, node.memory_mib) for node in world.master.nodes}


@pytest.mark.more
def test_a_plan_that_changes_sizes_alone_keeps_every_node_and_pauses_nobody() -> None:
    world = running()
    n_start, n_group = len(world.starts), world.master.record.n_group
    order(world, AFTER)
    while not in_place(world, AFTER):
        world.round()
        assert world.master.stage is Stage.SERVING
        assert world.n_training == 2
    assert len(world.starts) == n_start
    assert world.master.record.n_group == n_group
    assert world.allotted == world.applied == shapes(world)
    assert world.told(PlanApplied)[-1].pause_s == 0
    world.run_to_end()
    trained_every_row(world)


def test_one_node_at_a_time_and_parameter_servers_first() -> None:
    world = running()
    order(world, AFTER)
    asked = []
    while not in_place(world, AFTER):
        asked += [name for name in world.resizings if name not in asked]
        assert len(world.resizings) <= 1
        world.round()
    assert asked == ["ps-0", "ps-1", "worker-0", "worker-1"]


def test_a_backend_that_resizes_nothing_is_not_asked() -> None:
    world = World(spec(BEFORE), features(20_000))
    world.run_until(lambda: in_place(world, BEFORE))
    orders = world.master.set_target(AFTER, world.at_s)
    assert not [each for each in orders if isinstance(each, ResizeNode)]
    assert [each.node for each in orders if isinstance(each, StartNode)] == [
        "ps-2",
        "ps-3",
        "worker-2",
        "worker-3",
    ]


def test_a_ps_that_cannot_be_resized_is_replaced_alone_and_the_story_says_why(words) -> None:
    world = running(plan(2, 3), 4000)
    world.cannot_resize = {"ps-1": "Infeasible: Node didn't have enough capacity"}
    before = world.master.record.group.bucket_owner
    order(world, plan(2, 3, ps_cpu=0.5))
    world.run_until(lambda: in_place(world, plan(2, 3, ps_cpu=0.5)))
    group = world.master.record.group
    assert group.nodes == ("ps-0", "ps-3", "ps-2")
    assert group.bucket_owner == before  # no bucket moved between those that stay
    assert world.said("ps-1") == words
    world.run_to_end()
    trained_every_row(world)


def test_a_worker_that_cannot_be_resized_is_replaced_as_without_resizing() -> None:
    world = running(n_row=4000)
    world.cannot_resize = {"worker-0": "pods/resize is forbidden"}
    order(world, plan(2, 2, worker_cpu=1.0))
    world.run_until(lambda: in_place(world, plan(2, 2, worker_cpu=1.0)))
    assert world.living(Role.WORKER) == ["worker-1", "worker-2"]
    world.run_to_end()
    trained_every_row(world)


def test_a_node_that_goes_back_is_given_its_old_size_again() -> None:
    world = running()
    world.cannot_resize = {"ps-0": "Deferred"}
    world.do(world.master.set_target(AFTER, world.at_s))
    world.allot("ps-0")
    assert world.resizings["ps-0"] == (0.25, 512)
    (node,) = (each for each in world.master.record.nodes if each.id == "ps-0")
    assert need_of(node) == (0.25, 512)


@pytest.mark.parametrize("answers", [False, True])
def test_a_cluster_or_a_node_that_never_answers_is_given_up_in_time(answers: bool) -> None:  # noqa: FBT001
    world = running(n_row=1_000_000, heartbeat_timeout_s=1e6)
    order(world, plan(2, 2, ps_cpu=0.5))
    from_s = world.at_s
    if answers:
        world.allot("ps-0")
        world.nodes["ps-0"].inbox.clear()
    while "ps-0 cannot" not in notes(world):
        assert world.at_s < from_s + RESIZE_LIMIT_S + 2.0
        for name in world.living(Role.WORKER):
            world.turn(name)
            world.hear(name)
        world.tick(1.0)
    assert world.at_s >= from_s + RESIZE_LIMIT_S
    assert world.master._state.last_step_s == world.at_s  # its successor has as long as any other
    world.run_until(lambda: in_place(world, plan(2, 2, ps_cpu=0.5)))
    assert world.living(Role.PS) == ["ps-1", "ps-2"]
    assert RESIZE_LIMIT_S < PLAN_LIMIT_S


def test_a_newer_plan_takes_back_what_was_done_and_what_was_asked_for() -> None:
    world = running()
    order(world, AFTER)
    world.run_until(lambda: "ps-1" in world.resizings)
    order(world, BEFORE)
    world.run_until(lambda: in_place(world, BEFORE))
    assert world.living(Role.PS) == ["ps-0", "ps-1"]
    assert {world.allotted[name] for name in ("ps-0", "ps-1")} == {(0.25, 512)}
    assert [type(event) for event in world.events if isinstance(event, PlanApplied | PlanFailed)][-2:] == [
        PlanFailed,
        PlanApplied,
    ]


def test_memory_that_shrinks_is_told_to_the_node_before_the_cluster_takes_it() -> None:
    world = running()
    orders = world.master.set_target(replace(BEFORE, ps=RolePlan(2, 0.25, 256)), world.at_s)
    told = [each for each in orders if getattr(each, "node", "") == "ps-0"]
    assert [type(each).__name__ for each in told] == ["Send", "ResizeNode"]
    assert told[0].message == Resize(0.25, 256, is_ahead=True)


def test_a_limit_that_is_enforced_no_longer_is_no_success() -> None:
    world = running(kind=Enforced)
    order(world, replace(BEFORE, ps=RolePlan(2, 0.25, 1024)))
    world.run_until(lambda: "its new limits are not enforced" in notes(world))
    world.run_until(lambda: world.living(Role.PS) == ["ps-1", "ps-2"])


def test_reports_from_before_the_last_node_was_resized_count_for_no_plan() -> None:
    world = running()
    order(world, AFTER)
    world.run_until(lambda: in_place(world, AFTER))
    applied_s = world.told(PlanApplied)[-1].at_s
    world.run_until(lambda: world.told(NodeReported)[-1].plan == AFTER)
    for event in world.told(NodeReported):
        if event.plan == AFTER:
            assert event.at_s - event.sample.window_s >= applied_s


@pytest.mark.parametrize("migration", Migration)
def test_a_checkpoint_on_the_way_restarts_nothing(migration: Migration) -> None:
    world = running(checkpoint_every_s=0.5, migration=migration)
    n_group = world.master.record.n_group
    order(world, AFTER)
    for _ in range(20):  # the cluster takes its time
        kept, world.resizings = world.resizings, {}
        world.round()
        world.resizings = kept
    assert world.disk
    world.run_until(lambda: in_place(world, AFTER))
    assert world.master.record.n_group == n_group


@pytest.mark.more
@pytest.mark.parametrize("n_round", range(12))
def test_a_master_that_restarts_on_the_way_goes_on_with_the_same_nodes(n_round: int) -> None:
    world = running(n_row=4000)
    names = sorted(world.nodes)
    order(world, AFTER)
    for _ in range(n_round):
        world.act() if n_round % 2 else world.round()
    world.crash(n_kept=n_round % 3)
    world.run_until(lambda: in_place(world, AFTER))
    assert sorted(world.nodes) == names
    assert world.allotted == world.applied == shapes(world)
    world.run_to_end()
    trained_every_row(world)


def test_a_master_that_restarts_on_the_way_back_knows_which_node_was_given_something_else() -> None:
    world = running(n_row=1_000_000)
    world.do(world.master.set_target(AFTER, world.at_s))
    world.allot("ps-0")
    world.nodes["ps-0"].inbox.clear()
    world.do(world.master.set_target(BEFORE, world.at_s))
    world.crash()
    world.run_until(lambda: in_place(world, BEFORE))
    assert world.allotted == {"ps-0": (0.25, 512)}
    assert sorted(world.nodes) == ["ps-0", "ps-1", "worker-0", "worker-1"]


def test_memory_after_a_lost_ps_is_raised_in_place_for_those_that_live() -> None:
    world = running(plan(2, 3), checkpoint_every_s=1.0)
    world.run_until(lambda: bool(world.disk))
    world.nodes["ps-0"].is_alive = False
    world.do(world.master.on_exit("ps-0", "memory", world.at_s, out_of_memory=True))
    assert world.master.target.ps.memory_mib == 768
    world.run_until(lambda: in_place(world, world.master.target))
    assert world.living(Role.PS) == ["ps-1", "ps-2", "ps-3"]
    assert world.allotted == {"ps-1": (0.25, 768), "ps-2": (0.25, 768)}


def test_memory_after_a_lost_worker_is_raised_in_place_for_the_others() -> None:
    world = running()
    world.nodes["worker-0"].is_alive = False
    world.do(world.master.on_exit("worker-0", "memory", world.at_s, out_of_memory=True))
    world.run_until(lambda: in_place(world, world.master.target))
    assert world.living(Role.WORKER) == ["worker-1", "worker-2"]
    assert world.master.target.worker.memory_mib == 768


def test_a_node_grows_only_where_the_machines_have_room_for_it_beside_the_others() -> None:
    world = World(spec(plan(2, 1)), features(20_000), cpu=1.5)
    world.resize_in_place()
    world.run_until(lambda: in_place(world, plan(2, 1)))
    target = plan(2, 1, worker_cpu=0.25, ps_cpu=1.0)  # first the PS does not fit beside the workers
    order(world, target)
    while not in_place(world, target):
        world.round()
        assert fits(world.capacity, list(map(need_of, world.master.record.nodes)))
    assert world.living(Role.PS) == ["ps-0"]


def test_a_record_of_a_node_from_before_resizing_can_be_read() -> None:
    record = NodeRecord("ps-0", Role.PS, 0.25, 512, 0.0, True, False, False, False, "", 1, True, True, 1)
    old = to_json(record).replace(b',"resizing":null', b"")
    assert b"resizing" not in old
    assert from_json(old, NodeRecord) == record


def interleaved(
    seed: int, first: ResourcePlan, plans: list[ResourcePlan], cpu: float, *, crashes: bool
) -> None:
    """Let anything happen while nodes are resized; what they have is what they were given at each moment."""
    job = spec(first, n_epoch=2, checkpoint_every_s=3.0, heartbeat_timeout_s=30.0)
    world = World(job, features(395), cpu=cpu)
    world.resize_in_place()
    wanted, rng = [first], random.Random(seed)
    for _ in range(250):
        disturb(world, rng, wanted, plans)
        if crashes and rng.random() < 0.02 and world.master.stage is not Stage.ENDED:
            world.crash(n_kept=rng.randrange(3))
        check(world, wanted)
    for _ in range(3000):
        if world.master.stage is Stage.ENDED:
            break
        if world.master.running is not None:
            for name, size in shapes(world).items():
                assert world.allotted.get(name, size) == size
        world.round()
        check(world, wanted)
    assert world.master.phase in {JobPhase.SUCCEEDED, JobPhase.FAILED}
    if world.master.phase is JobPhase.FAILED:
        assert "keep failing" in world.master.message
        return
    assert world.master.train_counts.n_sample_done == len(world.learnt) == 790


@pytest.mark.more
@pytest.mark.parametrize(
    ("seed", "first", "plans", "cpu"),
    [
        # a PS is evicted while others are resized; a PS gets its shape while its successor takes over
        (29021, plan(1, 3, ps_cpu=0.5), [plan(1, 3), plan(3, 1, worker_cpu=1.0, ps_cpu=0.5)], 4.6),
        (29021, plan(1, 2, ps_cpu=0.5), [plan(1, 1), plan(2, 1, worker_cpu=1.0, ps_cpu=0.5)], 4.6),
        (0, plan(2, 2), [plan(2, 2, worker_cpu=1.0, ps_cpu=0.5), plan(2, 2, ps_cpu=0.5)], 16.0),
    ],
)
@pytest.mark.parametrize("crashes", [False, True])
def test_a_few_interleavings_with_resizing_end_with_every_row_trained(
    seed: int,
    first: ResourcePlan,
    plans: list[ResourcePlan],
    cpu: float,
    crashes: bool,  # noqa: FBT001
) -> None:
    interleaved(seed, first, [*plans], cpu, crashes=crashes)


@pytest.mark.release
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**9), PLANS, st.lists(PLANS, max_size=4), st.sampled_from([4.6, 16.0]), st.booleans())
def test_any_interleaving_with_resizing_ends_with_every_row_trained(
    seed: int,
    first: ResourcePlan,
    plans: list[ResourcePlan],
    cpu: float,
    crashes: bool,  # noqa: FBT001
) -> None:
    interleaved(seed, first, plans, cpu, crashes=crashes)


@settings(deadline=None, max_examples=40)
@given(PLANS, PLANS, st.sets(st.sampled_from(["ps-0", "ps-1", "worker-0", "worker-1"])))
def test_with_resizing_too_the_observed_becomes_the_target(
    first: ResourcePlan, second: ResourcePlan, refused: set[str]
) -> None:
    world = World(spec(first), features(50_000), cpu=4.6)
    world.resize_in_place()
    world.cannot_resize = dict.fromkeys(refused, "no")
    world.run_until(lambda: in_place(world, first))
    assert fits(world.capacity, plan_needs(second))
    order(world, second)
    world.run_until(lambda: in_place(world, second), 200)
    if not refused and first.ps.count == second.ps.count and first.worker.count == second.worker.count:
        assert len(world.starts) == first.ps.count + first.worker.count
