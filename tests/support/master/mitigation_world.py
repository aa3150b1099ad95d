"""A job whose master acts against stragglers, among played nodes."""

from __future__ import annotations

import pytest

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.decisions.actions import (
    Action,
    ActionChoice,
    KillRestart,
    MitigationChoice,
)
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import MitigationEnded
from dlrover_nb.core.structs.wire import messages as m
from dlrover_nb.core.structs.wire.mitigation_messages import Backups
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

WITHOUT_PAUSE = {Stage.SERVING, Stage.PAUSING, Stage.SWITCHING}
WORKER_0, PS_0 = KillRestart("worker-0", Role.WORKER), KillRestart("ps-0", Role.PS)


def training(
    workers: int = 2, ps: int = 2, *, n_row: int = 8000, cpu: float = 8.0, **changes: object
) -> World:
    """Return a job that has trained some rows."""
    world = World(spec(plan(workers, ps), **changes), features(n_row), cpu=cpu)
    world.run_until(lambda: in_place(world, world.master.target) and n_done(world) > 800)
    return world


def n_done(world: World) -> int:
    return world.master.train_counts.n_sample_done


def mitigate(world: World, action: Action, decision: str = "d1") -> None:
    choice = MitigationChoice(decision, ActionChoice.of(action), "ada", "it is slow")
    world.do(world.master.mitigate(choice, world.at_s))


def ended(world: World) -> dict[str, str]:
    """Return why each answered action is not in effect; each is answered once."""
    told = world.told(MitigationEnded)
    assert len({each.decision for each in told}) == len(told)
    return {each.decision: each.why_not for each in told}


def answer(world: World, decision: str = "d1") -> str:
    """Run until an action is answered; return why it is not in effect."""
    world.run_until(lambda: decision in ended(world), 3000)
    return ended(world)[decision]


def settled(world: World) -> None:
    world.run_until(lambda: in_place(world, world.master.target))
    world.check_parameters()


def read(world: World) -> None:
    """Run until all orders were read."""
    world.run_until(lambda: not any(node.inbox for node in world.nodes.values() if node.is_alive))


def finished(world: World, *, exactly_once: bool = True) -> None:
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    trained_every_row(world, exactly_once=exactly_once)


def unchanged(world: World, action: Action, error: type[Exception], match: str) -> None:
    """Order what is refused; then nothing has changed."""
    before, n_event = world.master.record, len(world.events)
    with pytest.raises(error, match=match):
        mitigate(world, action, "refused")
    assert world.master.record == before
    assert len(world.events) == n_event
    assert not world.master.set_capacity(world.capacity, world.at_s)  # nothing is left to be sent


def heard(world: World, kind: type) -> list[tuple[str, object]]:
    return [(node.id, each) for node in world.nodes.values() for each in node.heard if isinstance(each, kind)]


def instructions(world: World, ps: str) -> list[object]:
    return [each for each in world.nodes[ps].heard if isinstance(each, m.Adjust | Backups)]
