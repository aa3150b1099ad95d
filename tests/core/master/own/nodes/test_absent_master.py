"""A master that did nothing for a while (stopped, swapped out, behind a slow disk) blames no node for it."""

from __future__ import annotations

import pytest
from support.master.master_world import World, features, in_place, plan, spec

from dlrover_nb.core.master.own.nodes.liveness import LONGEST_TURN_S
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged

HEARTBEAT_S = 10.0


def running(**changes: object) -> World:
    world = World(spec(plan(2, 2), heartbeat_timeout_s=HEARTBEAT_S, **changes), features(200_000))  # type: ignore[arg-type]
    world.run_until(lambda: in_place(world, plan(2, 2)))
    return world


@pytest.mark.parametrize("absent_s", [HEARTBEAT_S - 0.5, 4 * HEARTBEAT_S, 3600.0])
def test_a_master_that_was_stopped_keeps_its_nodes_although_it_has_read_nothing(
    absent_s: float, words
) -> None:
    world = running()
    before = [node.id for node in world.master.nodes]
    world.tick(absent_s)
    world.tick(1.0)
    assert [node.id for node in world.master.nodes] == before
    assert world.master.stage is Stage.SERVING
    assert world.said("stalled") == words


def test_a_node_that_is_silent_after_the_absence_is_given_up_in_the_usual_time(words) -> None:
    world = running()
    (worker, _) = world.living(Role.WORKER)
    world.tick(60.0)
    others = [name for name in (*world.living(Role.WORKER), *world.living(Role.PS)) if name != worker]
    for _ in range(round(HEARTBEAT_S)):
        assert worker in world.living(Role.WORKER)
        for name in others:
            world.report(name)
            while world.hear(name):
                pass
        world.tick(1.0)
    assert world.said("no report") == words
    assert worker not in {node.id for node in world.master.nodes}
    assert all(name in {node.id for node in world.master.nodes} for name in others)


def test_a_turn_of_ordinary_length_excuses_nobody(words) -> None:
    world = running()
    for _ in range(3):
        world.tick(LONGEST_TURN_S)
    assert "did nothing" not in str(world.told(PhaseChanged))
    assert world.said("no report") == words
