"""A connection between master and worker breaks, and what is on its way is lost: both say again what counts."""

from __future__ import annotations

import pytest
from master_world import World, features, plan, spec, trained_every_row

from dlrover_nb.core.runtime.state import JobState, Stage
from dlrover_nb.core.structs import messages as m
from dlrover_nb.core.structs.resources import Role


@pytest.mark.parametrize("kind", [m.Train, m.Pause])
def test_an_order_that_is_lost_with_its_connection_is_given_again(kind: type[m.ToNode]) -> None:
    world = World(spec(plan(1, 1), checkpoint_every_s=0.0), features(395))
    world.run_until(lambda: world.master._state.n_pause > 0 and _is_ordered(world, kind))
    (worker,) = world.living(Role.WORKER)
    world.nodes[worker].inbox.clear()
    world.hello(worker)
    world.run_until(lambda: world.master.stage is Stage.ENDED, 400)
    trained_every_row(world)
    assert world.master._state.roster.n_named[0][1] == 1, "the worker was replaced"


def _is_ordered(world: World, kind: type[m.ToNode], role: Role = Role.WORKER) -> bool:
    """Whether an order of this kind is on its way to a node."""
    return any(isinstance(order, kind) for name in world.living(role) for order in world.nodes[name].inbox)


@pytest.mark.parametrize("is_final", [False, True])
def test_a_checkpoint_whose_order_is_lost_holds_nothing_up(*, is_final: bool) -> None:
    world = World(spec(plan(1, 2), checkpoint_every_s=0.5), features(395))
    state = world.master._state
    world.run_until(lambda: _writes(state, is_final=is_final) and _is_ordered(world, m.Save, Role.PS))
    (writing,) = state.writing.values()
    ps = next(name for name in world.living(Role.PS) if name not in writing.saved)
    world.nodes[ps].inbox.clear()
    lost_s = world.at_s
    world.hello(ps)
    world.run_until(lambda: world.master.stage is Stage.ENDED, 400)
    assert world.at_s < lost_s + 60, "training waited for what was lost"
    trained_every_row(world)
    assert state.checkpoints[-1].is_on_disk
    assert not state.not_saved


def _writes(state: JobState, *, is_final: bool) -> bool:
    return any(each.is_ordered and each.is_final is is_final for each in state.writing.values())
