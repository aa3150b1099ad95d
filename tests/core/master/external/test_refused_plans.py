"""A rule of the cluster that refuses pods costs an external job a change of plan, and not its life."""

from __future__ import annotations

import pytest
from support.master.external_world import TF, TORCH, World, plan, running

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import NodeLimits
from dlrover_nb.core.structs.views.events import PlanFailed

LIMITS = NodeLimits(most_memory_mib=512, why="maximum memory usage per Container is 512Mi, but limit is 1Gi")


def refuse(world, node):
    world.leave(node, retryable=False, refused=LIMITS)


@pytest.mark.parametrize("foreign", [TF, TORCH])
@pytest.mark.parametrize("target", [plan(3), plan(2, memory_mib=1024)])
def test_a_refused_change_goes_back_to_the_plan_that_ran(foreign, target):
    world = running(foreign)
    before = world.master.target
    world.do(world.master.set_target(target, world.at_s))
    (refused, *_) = [node for node, address in world.pods.items() if not address]
    refuse(world, refused)
    (failed,) = world.of(PlanFailed)
    assert (failed.plan, f"the cluster refuses {refused}" in failed.why) == (target, True)
    world.come_up()
    world.train()
    assert (world.master.running, world.master.phase) == (before, JobPhase.TRAINING)


def test_a_refused_first_plan_names_its_line(words):
    world = World(first=plan(2, memory_mib=1024))
    refuse(world, "worker-0")
    assert world.master.phase is JobPhase.FAILED
    assert world.master.message == words
