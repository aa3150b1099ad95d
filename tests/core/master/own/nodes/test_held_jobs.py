"""A job that waits in the queue: its master starts no node, for as long as that takes, over its own death too."""

from __future__ import annotations

from support.master.master_world import World, in_place, plan, spec, trained_every_row

from dlrover_nb.core.master.own.nodes.liveness import PLAN_LIMIT_S
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Admission
from dlrover_nb.core.structs.plan.queued_jobs import HELD
from dlrover_nb.core.structs.views.events import PhaseChanged


def held() -> World:
    world = World(spec(plan(2, 1), admission=Admission.QUEUE))
    world.round()
    assert not world.master.nodes
    assert (world.master.phase, world.master.message) == (JobPhase.STARTING, HELD)
    return world


def test_it_waits_beyond_every_limit_and_starts_on_the_plan_that_it_is_given() -> None:
    world = held()
    for _ in range(4):
        world.tick(PLAN_LIMIT_S)
    assert world.master.phase is JobPhase.STARTING
    world.do(world.master.set_target(plan(1, 1), world.at_s))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    world.run_to_end()
    trained_every_row(world)


def test_it_starts_on_the_plan_that_it_asks_for() -> None:
    world = held()
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    world.run_until(lambda: in_place(world, plan(2, 1)))


def test_another_master_holds_it_too_and_one_that_was_admitted_goes_on() -> None:
    world = held()
    world.crash()
    world.tick(1.0)
    assert not world.master.nodes
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    world.crash()
    world.run_until(lambda: in_place(world, plan(2, 1)))


def said_at_restart(world: World) -> str:
    n_before = len(world.events)
    world.crash()
    return "; ".join(e.message for e in world.events[n_before:] if isinstance(e, PhaseChanged) and e.message)


def test_another_master_says_that_it_waits_on_and_starts_nothing_anew(words) -> None:
    world = held()
    assert said_at_restart(world) == words


def test_another_master_says_which_nodes_run_and_which_still_wait_to_start(words) -> None:
    world = World(spec(plan(2, 1)))
    assert said_at_restart(world) == words
    world.run_until(lambda: in_place(world, plan(2, 1)))
    assert said_at_restart(world) == words


def test_it_ends_at_once_when_it_is_stopped() -> None:
    world = held()
    world.do(world.master.stop("ada", "not needed", world.at_s))
    world.tick(1.0)
    assert world.master.phase is JobPhase.STOPPED
