"""Nodes that run out of memory come back with more, in every mode, and the job ends exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.master.own.nodes.oom_recovery import FULL
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.events import NodeOutOfMemory, PlanApplied
from dlrover_nb.core.structs.wire import messages as m


def report_memory(world: World, name: str, memory_mib: float) -> None:
    world.nodes[name].memory_mib = memory_mib
    world.report(name)
    while world.hear(name):
        pass


def end_for_memory(world: World, name: str) -> None:
    world.nodes[name].is_alive = False
    orders = world.master.on_exit(name, "memory", world.at_s, was_killed=True, out_of_memory=True)
    world.do(orders)


@pytest.mark.parametrize("role", Role)
def test_the_role_gets_half_as_much_again_and_keeps_it(role: Role) -> None:
    world = World(spec(plan(2, 2)))
    world.run_until(lambda: in_place(world, plan(2, 2)))
    end_for_memory(world, f"{role}-0")
    fed = replace(plan(2, 2), **{str(role): replace(plan(2, 2).role(role), memory_mib=768)})
    assert world.master.target == fed
    world.run_until(lambda: in_place(world, fed))
    (told,) = world.told(NodeOutOfMemory)
    assert (told.role, told.memory_mib) == (role, 512.0)
    assert world.told(PlanApplied)[-1].plan == fed
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_two_nodes_that_end_together_raise_it_once() -> None:
    world = World(spec(plan(2, 1)), features(4000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    end_for_memory(world, "worker-0")
    end_for_memory(world, "worker-1")
    assert world.master.target.worker.memory_mib == 768


def test_no_more_than_the_machine_has_and_where_it_has_none_that_is_said(words) -> None:
    first = ResourcePlan(RolePlan(1, 0.5, 600), RolePlan(1, 0.5, 400))
    world = World(spec(first), features(4000))
    world.capacity = Capacity((NodeShape(8.0, 1024),))
    world.do(world.master.set_capacity(world.capacity, world.at_s))
    world.run_until(lambda: in_place(world, first))
    end_for_memory(world, "worker-0")
    assert world.master.target == first
    assert world.master.message == words


def test_a_node_killed_at_its_advisory_limit_counts_and_one_killed_below_does_not() -> None:
    world = World(spec(plan(1, 1)), features(4000))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    report_memory(world, "worker-0", FULL * 512 - 1)
    world.nodes["worker-0"].is_alive = False
    world.do(world.master.on_exit("worker-0", "killed", world.at_s, was_killed=True))
    assert not world.told(NodeOutOfMemory)
    world.run_until(lambda: in_place(world, plan(1, 1)))
    report_memory(world, "worker-1", FULL * 512)
    world.nodes["worker-1"].is_alive = False
    world.do(world.master.on_exit("worker-1", "killed", world.at_s, was_killed=True))
    assert world.master.target.worker.memory_mib == 768


def test_a_node_given_up_before_its_end_was_heard_is_fed_once_it_is() -> None:
    world = World(spec(plan(1, 1)), features(4000))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    world.nodes["worker-0"].is_alive = False
    world.run_until(lambda: in_place(world, plan(1, 1)) and "worker-1" in world.living(Role.WORKER))
    assert not world.told(NodeOutOfMemory)
    end_for_memory(world, "worker-0")
    fed = replace(plan(1, 1), worker=replace(plan(1, 1).worker, memory_mib=768))
    world.run_until(lambda: in_place(world, fed))
    end_for_memory(world, "worker-0")
    assert [told.node for told in world.told(NodeOutOfMemory)] == ["worker-0"]
    world.run_to_end()


def test_a_program_that_says_memory_error_is_fed_too() -> None:
    world = World(spec(plan(1, 1)), features(4000))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    failed = m.NodeFailed("worker-0", "MemoryError: ", retryable=True, out_of_memory=True)
    world.do(world.master.on_message("worker-0", failed, world.at_s))
    assert world.master.target.worker.memory_mib == 768
