"""PS that their cluster ends: what they hold is elsewhere before they go, and no row is trained twice."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.full_machine import FullMachines
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.master.own.servers.bucket_owners import assign_buckets, carried_over, next_members
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PlanApplied
from dlrover_nb.core.structs.views.snapshot import NodePhase
from dlrover_nb.core.structs.wire import messages as m
from dlrover_nb.core.structs.wire.pod_contract import STATE

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

WITHOUT_PAUSE = {Stage.SERVING, Stage.PAUSING, Stage.SWITCHING}


def training(first: object, *, n_row: int = 8000, **changes: object) -> World:
    """Return a job that has trained some rows."""
    world = World(spec(first, **changes), features(n_row))  # type: ignore[arg-type]
    world.run_until(lambda: in_place(world, first) and world.master.train_counts.n_sample_done > 800)
    return world


def move_away(world: World, *names: str) -> set[Stage]:
    """Run until PS that got SIGTERM have gone and the plan runs again; nothing that was learnt is lost."""
    stages, n_done = set(), 0
    while set(names) & set(world.living(Role.PS)) or not in_place(world, world.master.target):
        world.round()
        world.check_parameters()
        stages.add(world.master.stage)
        n_before, n_done = n_done, world.master.train_counts.n_sample_done
        assert n_done >= n_before
        assert world.master.stage is not Stage.ENDED
    return stages


def finished(world: World) -> None:
    """Run to the end, where every row was trained exactly once, and no node was lost."""
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    trained_every_row(world)
    assert world.master.train_counts.returned == 0
    assert "was lost" not in str(world.events)


@pytest.mark.more
@pytest.mark.parametrize(
    ("n_ps", "names"),
    [(1, ["ps-0"]), (2, ["ps-0"]), (2, ["ps-1"]), (2, ["ps-0", "ps-1"]), (3, ["ps-0", "ps-2"])],
)
def test_what_ps_hold_that_leave_moves_while_workers_train(n_ps: int, names: list[str], words) -> None:
    world = training(plan(2, n_ps))
    world.evict(*names)
    assert move_away(world, *names) <= WITHOUT_PAUSE
    assert not world.copies
    new = [f"ps-{n_ps + at}" for at in range(len(names))]
    assert set(world.living(Role.PS)) == {f"ps-{at}" for at in range(n_ps)} - set(names) | set(new)
    assert all(node in world.said("being evicted") for node in [*names, *new])
    assert world.said("being evicted") == words
    assert len(world.told(PlanApplied)) == 1
    finished(world)


def test_who_stays_neither_gives_nor_takes() -> None:
    world = training(plan(2, 3))
    world.evict("ps-1")
    move_away(world, "ps-1")
    group = world.master.record.group
    assert group is not None
    assert group.nodes == ("ps-0", "ps-3", "ps-2")
    assert not [o for name in ("ps-0", "ps-2") for o in world.nodes[name].heard if isinstance(o, m.MoveOut)]


def test_one_that_leaves_is_shown_so_before_anything_moves(words) -> None:
    world = training(plan(1, 1))
    world.evict("ps-0")
    world.report("ps-0")
    world.hear("ps-0")
    assert [n.phase for n in world.master.nodes if n.id == "ps-0"] == [NodePhase.DRAINING]
    assert world.master.message == words
    assert world.master.phase is JobPhase.TRAINING


@pytest.mark.more
@pytest.mark.parametrize("second", ["ps-1", "ps-2", "ps-3"])
def test_another_one_on_the_way_leaves_too(second: str) -> None:
    """Also the one that the first one's parameters are moving to."""
    world = training(plan(2, 3))
    world.n_step = 0
    world.evict("ps-0")
    world.run_until(lambda: world.master.record.move is not None)
    world.evict(second)
    for _ in range(3):
        world.round()
    world.n_step = 6
    assert move_away(world, "ps-0", second) <= WITHOUT_PAUSE
    finished(world)


PLANS = st.builds(plan, st.just(2), st.integers(1, 3), ps_cpu=st.sampled_from([0.25, 0.5]))


def changed_meanwhile(first: ResourcePlan, second: ResourcePlan, rng: random.Random) -> None:
    """Evict some PS and change the plan, in either order, some rounds apart."""
    world = training(first, n_row=5000)
    servers = world.living(Role.PS)
    names = rng.sample(servers, rng.randint(1, len(servers)))
    acts = [
        lambda: world.evict(*[n for n in names if n in world.living(Role.PS)]),
        lambda: world.do(world.master.set_target(second, world.at_s)),
    ]
    rng.shuffle(acts)
    for act in acts:
        for _ in range(rng.randint(0, 8)):
            world.round()
        act()
    assert move_away(world, *names) <= WITHOUT_PAUSE
    assert world.master.running == second
    finished(world)


@pytest.mark.more
@pytest.mark.parametrize("n_ps", [1, 2, 3])
@pytest.mark.parametrize("second", [plan(2, 1), plan(2, 3, ps_cpu=0.5)])
def test_a_plan_that_changes_some_rounds_apart_is_what_comes_of_it(n_ps: int, second: ResourcePlan) -> None:
    changed_meanwhile(plan(2, n_ps), second, random.Random(n_ps))


@pytest.mark.release
@settings(deadline=None, max_examples=25)
@given(PLANS, PLANS, st.randoms())
def test_a_plan_that_changes_meanwhile_is_what_comes_of_it(
    first: ResourcePlan, second: ResourcePlan, rng: random.Random
) -> None:
    changed_meanwhile(first, second, rng)


@pytest.mark.more
@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
def test_a_master_that_comes_back_meanwhile_goes_on_with_it(stage: Stage) -> None:
    world = training(plan(2, 2))
    world.evict("ps-1")
    world.run_until(lambda: world.master.record.move is not None)
    while world.master.stage is not stage:
        for name in [*world.nodes]:
            if world.master.stage is not stage:
                world.turn(name)
                world.hear(name)
        if world.network.busy:
            world.deliver(world.network.busy[0])
    world.crash(n_kept=0)
    assert move_away(world, "ps-1") <= WITHOUT_PAUSE
    assert world.living(Role.PS) == ["ps-0", "ps-2"]
    finished(world)


def test_sigterm_while_the_master_is_away_is_told_to_the_next_one() -> None:
    world = training(plan(2, 2))
    world.evict("ps-0")
    world.crash(n_kept=0)
    assert move_away(world, "ps-0") <= WITHOUT_PAUSE
    finished(world)


def test_one_that_is_gone_before_its_parameters_are_is_lost_as_any_other(words) -> None:
    world = training(plan(2, 2))
    world.n_step = 0
    world.evict("ps-1")
    world.run_until(lambda: world.master.record.move is not None)
    world.kill("ps-1", "evicted")
    assert world.master.train_counts.n_sample_done == 0
    assert world.said("ps-1") == words
    world.n_step = 6
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


@pytest.mark.parametrize("is_up", [False, True])
def test_one_that_leaves_before_it_holds_anything_is_replaced(is_up: bool) -> None:  # noqa: FBT001
    world = World(spec(plan(1, 2)), features(4000))
    world.hello("ps-0")
    world.evict("ps-0")
    if is_up:
        world.hello("ps-1")
    world.report("ps-0")
    while world.hear("ps-0"):
        pass
    world.run_until(lambda: in_place(world, plan(1, 2)))
    assert world.living(Role.PS) == ["ps-1", "ps-2"]
    finished(world)


def test_one_that_leaves_while_it_loads_serves_until_another_takes_over() -> None:
    world = training(plan(2, 2), checkpoint_every_s=1.0)
    world.run_until(lambda: bool(world.disk))
    world.kill("ps-0")
    world.run_until(lambda: world.master.stage is Stage.ASSEMBLING)
    world.evict("ps-1")
    world.run_until(lambda: in_place(world, plan(2, 2)))
    assert not {"ps-0", "ps-1"} & set(world.living(Role.PS))
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_in_the_last_evaluation_what_is_evaluated_moves_too() -> None:
    world = World(spec(plan(1, 2)), features(395, n_eval=4000))
    world.run_until(lambda: world.master.phase is JobPhase.EVALUATING)
    world.evict("ps-0")
    world.run_until(lambda: world.living(Role.PS) == ["ps-1", "ps-2"])
    assert world.master.phase is JobPhase.EVALUATING
    assert len(world.copies) == 1, "the final checkpoint, and no other"
    finished(world)


def test_at_the_last_row_the_final_checkpoint_comes_first() -> None:
    world = training(plan(1, 1), n_row=1200)
    world.n_step = 0
    world.evict("ps-0")
    world.run_until(lambda: world.master.record.move is not None)
    finished(world)
    assert len(world.copies) == 1


def test_a_job_that_is_stopped_saves_what_one_that_leaves_holds() -> None:
    world = training(plan(2, 2))
    world.evict("ps-0")
    world.run_until(lambda: world.master.record.move is not None)
    world.do(world.master.stop("ada", "enough", world.at_s))
    world.run_to_end()
    assert world.disk[1][1] == world.learnt
    assert "was lost" not in str(world.events)


def test_a_job_that_wants_restarts_moves_them_through_a_checkpoint(words) -> None:
    world = training(plan(2, 2), migration=Migration.RESTART)
    world.evict("ps-0")
    assert Stage.LOADING in move_away(world, "ps-0")
    assert world.said("through a checkpoint") == words
    finished(world)


def test_that_a_drained_machine_is_no_part_of_the_capacity_any_more_holds_nothing_up() -> None:
    world = training(plan(2, 2))
    world.do(world.master.set_capacity(Capacity((NodeShape(1.0, 65536),)), world.at_s))
    world.evict("ps-0")
    assert move_away(world, "ps-0") <= WITHOUT_PAUSE
    assert not world.copies
    finished(world)


# full machines

FULL = ((1.5, 8192),)
ON_FULL = plan(2, 2)


class InPods(FullMachines):
    """Pods without storage: no checkpoint outlives its nodes."""

    folder = f"{STATE}/run"


def full(kind: type[FullMachines] = FullMachines) -> FullMachines:
    world = kind(spec(ON_FULL), features(40_000), FULL)
    world.wait_for(lambda: world.master.running == ON_FULL, 60.0)
    for _ in range(5):
        world.second()
    assert all(not n_step for n_step, _ in world.free())
    return world


def test_on_a_full_machine_they_move_through_a_checkpoint(words) -> None:
    world = full()
    n_done = world.master.train_counts.n_sample_done
    world.evict("ps-0")
    world.wait_for(lambda: "ps-0" not in world.living(Role.PS) and world.master.running is not None, 60.0)
    assert world.living(Role.PS) == ["ps-1", "ps-2"]
    assert world.said("through a checkpoint") == words
    assert world.master.train_counts.n_sample_done >= n_done
    world.check_parameters()
    assert set(world.learnt.values()) == {1}
    assert world.master.train_counts.returned == 0
    assert "was lost" not in str(world.events)


def test_on_a_full_machine_whose_disk_takes_nothing_it_serves_to_its_end() -> None:
    world = full()
    world.fails_to_write = "no space left on the disk"
    world.evict("ps-0")
    for _ in range(60):
        world.second()
    assert len(world.copies) == 1, "one attempt, not a pause after the other"
    assert world.living(Role.PS)[:2] == ["ps-0", "ps-1"]
    assert set(world.learnt.values()) == {1}
    world.kill("ps-0", "evicted")
    world.wait_for(lambda: world.master.running is not None, 60.0)
    assert world.master.phase is JobPhase.TRAINING


def test_on_a_full_machine_without_storage_it_serves_to_its_end_and_its_replacement_waits() -> None:
    world = full(InPods)
    world.evict("ps-0")
    for _ in range(60):
        world.second()
    assert not world.copies
    assert world.living(Role.PS) == ["ps-0", "ps-1", "ps-2"]
    assert set(world.learnt.values()) == {1}
    world.kill("ps-0", "evicted")
    world.wait_for(lambda: world.master.running is not None, 60.0)
    assert world.living(Role.PS) == ["ps-1", "ps-2"]


def test_room_that_is_found_meanwhile_is_used() -> None:
    world = full(InPods)
    world.evict("ps-0")
    for _ in range(10):
        world.second()
    world.machines = ((2.0, 8192),)
    world.wait_for(lambda: world.living(Role.PS) == ["ps-1", "ps-2"], 60.0)
    assert set(world.learnt.values()) == {1}
    assert "was lost" not in str(world.events)


# placement


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 5), st.data())
def test_the_next_group_moves_no_bucket_of_who_stays_unless_there_are_more_or_fewer_ps(
    n_old: int, data: st.DataObject
) -> None:
    old = [f"ps-{at}" for at in range(n_old)]
    kept = data.draw(st.lists(st.sampled_from(old), unique=True)) if n_old else []
    kept.sort()
    n_new = data.draw(st.integers(0 if kept else 1, 4))
    new = [f"new-{at}" for at in range(n_new)]
    owner = assign_buckets((), n_old)
    members = next_members(old, kept, new)
    assert sorted(members) == sorted([*kept, *new])
    assert all(members[at] == name for at, name in enumerate(old[: len(members)]) if name in kept)
    was = carried_over(owner, old, members)
    will = assign_buckets(was, len(members))
    moved = [bucket for bucket, ps in enumerate(will) if members[ps] != old[owner[bucket]]]
    if len(members) == n_old:
        assert all(old[owner[bucket]] not in kept for bucket in moved)
    held = [will.count(at) for at in range(len(members))]
    assert max(held) - min(held) <= 1
