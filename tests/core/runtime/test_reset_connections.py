"""A connection between master and worker breaks, and what is on its way is lost: both say again what counts."""

from __future__ import annotations

import pytest
from master_world import World, features, plan, spec, trained_every_row

from dlrover_nb.core.runtime.state import Stage
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


def _is_ordered(world: World, kind: type[m.ToNode]) -> bool:
    """Whether an order of this kind is on its way to a worker."""
    return any(
        isinstance(order, kind) for name in world.living(Role.WORKER) for order in world.nodes[name].inbox
    )
