"""Pauses that a worker cannot follow, as a PS that it does not reach has yet to answer it."""

from __future__ import annotations

import pytest
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.wire import messages as m


@pytest.fixture
def world() -> World:
    """Return a job of which worker-1 waits for a PS, while the master wants a pause for a checkpoint."""
    made = World(spec(plan(2, 1), checkpoint_every_s=5.0), features(200_000))
    made.run_until(lambda: in_place(made, plan(2, 1)) and made.n_training == 2)
    made.nodes["worker-1"].is_stuck = True
    made.run_until(lambda: made.master.stage is Stage.PAUSING)
    return made


def live(world: World, seconds: float) -> None:
    end_s = world.at_s + seconds
    while world.at_s < end_s:
        world.round(1.0)


def n_done(world: World) -> int:
    return world.master.train_counts.n_sample_done


def pauses(world: World) -> list[tuple[int, bool]]:
    return [(each.number, each.drops) for each in world.nodes["worker-1"].heard if isinstance(each, m.Pause)]


def test_the_pause_is_given_up_and_training_goes_on(world: World, words) -> None:
    before = n_done(world)
    live(world, 44.0)
    assert (world.master.stage, n_done(world)) == (Stage.PAUSING, before)
    live(world, 3.0)
    assert world.master.stage is Stage.SERVING
    live(world, 5.0)
    assert n_done(world) > before
    assert world.said("worker-1") == words


def test_a_worker_that_gets_its_answer_goes_on_where_it_was(world: World) -> None:
    live(world, 50.0)
    held = world.nodes["worker-1"].shard
    world.nodes["worker-1"].is_stuck = False
    world.round(0.1)
    assert world.nodes["worker-1"].shard in (held, None)
    world.run_until(lambda: any(each.is_on_disk for each in world.master.checkpoints), 4000)
    assert [drops for _, drops in pauses(world)] == [False, False]
    assert world.living(Role.WORKER) == ["worker-0", "worker-1"]


def test_after_two_pauses_that_were_given_up_the_third_lets_it_drop_its_exchange(world: World) -> None:
    live(world, 3 * 46 + 2 * 21)
    first = pauses(world)[0][0]
    assert pauses(world) == [(first, False), (first + 1, False), (first + 2, False), (first + 2, True)]
    assert world.living(Role.WORKER) == ["worker-0", "worker-1"]
    live(world, 2.0)
    assert world.master.stage is Stage.SERVING


def test_a_job_that_is_to_stop_waits_for_ten_seconds_and_saves_its_model(world: World) -> None:
    world.do(world.master.stop("ada", "", world.at_s))
    live(world, 15.0)
    assert world.master.phase is JobPhase.STOPPED
    assert [drops for _, drops in pauses(world)] == [False, True]
    assert any(each.is_on_disk for each in world.master.checkpoints)


def test_every_row_is_trained_once_though_pauses_were_given_up() -> None:
    world = World(spec(plan(2, 1), checkpoint_every_s=2.0))
    world.run_until(lambda: in_place(world, plan(2, 1)) and n_done(world) > 0)
    world.nodes["worker-1"].is_stuck = True
    live(world, 60.0)
    world.nodes["worker-1"].is_stuck = False
    world.run_to_end()
    assert "could not pause" in str(world.told(PhaseChanged))
    trained_every_row(world)
