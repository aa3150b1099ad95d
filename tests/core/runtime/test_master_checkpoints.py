"""Checkpoints that are copied while workers stand still and written while they train."""

from __future__ import annotations

import pytest
from master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.runtime.state import Stage
from dlrover_nb.core.structs.events import PhaseChanged
from dlrover_nb.core.structs.job import JobPhase


def copied(**changes: object) -> World:
    """Return a job that has copied its first checkpoint and cannot write it yet."""
    world = World(spec(plan(2, 2), checkpoint_every_s=1.0, **changes), features(8000))
    world.writes_nothing = True
    world.run_until(lambda: world.memory and world.master.stage is Stage.SERVING)
    return world


def n_trained(world: World) -> int:
    return world.master.train_counts.n_sample_done


def test_workers_train_on_while_a_checkpoint_is_written_and_the_next_one_waits_for_it() -> None:
    world = copied()
    before = n_trained(world)
    world.run_until(lambda: n_trained(world) > before + 500)
    assert world.at_s > 3.0
    assert (list(world.memory), list(world.disk)) == ([1], [])
    world.writes_nothing = False
    world.run_until(lambda: len(world.disk) == 2)
    assert world.disk[1][0].ledger == world.master._state.checkpoints[0].manifest.ledger
    assert len(world.disk[1][1]) == len(world.memory[1]) <= before


def test_a_ps_that_dies_while_its_part_is_written_goes_on_from_memory() -> None:
    world = copied()
    world.run_until(lambda: n_trained(world) > len(world.memory[1]) + 100)
    world.kill("ps-1")
    assert "ps-1 was lost: exit code -9; going on from checkpoint 1 in memory" in str(
        world.told(PhaseChanged)
    )
    assert n_trained(world) == len(world.memory[1])
    world.run_until(lambda: in_place(world, plan(2, 2)))
    world.writes_nothing = False
    world.run_to_end()
    trained_every_row(world, exactly_once=False)
    assert world.disk[max(world.disk)][0].ledger == world.master._state.train.checkpoint()


def test_what_is_only_in_memory_and_cannot_be_read_gives_way_to_the_beginning() -> None:
    world = copied()
    world.memory.clear()
    world.kill("ps-0")
    world.run_until(lambda: in_place(world, plan(2, 2)))
    assert "going on from the beginning" in str(world.told(PhaseChanged))
    world.writes_nothing = False
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_a_checkpoint_that_cannot_be_written_can_still_be_restored_from_memory() -> None:
    world = copied()
    world.fails_to_save = "No space left on device"
    world.writes_nothing = False
    world.run_until(lambda: "could not be written" in str(world.told(PhaseChanged)))
    assert world.master.stage is Stage.SERVING
    world.kill("ps-0")
    assert "going on from checkpoint 1 in memory" in str(world.told(PhaseChanged))
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_memory_is_preferred_then_the_last_good_file_then_the_one_before() -> None:
    world = World(spec(plan(1, 1), checkpoint_every_s=1.0), features(8000))
    world.run_until(lambda: len(world.disk) == 2)
    first, second = sorted(world.disk)
    world.damaged = {second}
    world.kill("ps-0")
    world.run_until(lambda: in_place(world, plan()))
    assert world.master._state.source is not None
    assert world.master._state.source.number == second
    world.memory.clear()
    world.kill("ps-1")
    world.run_until(lambda: in_place(world, plan()))
    assert world.master._state.source.number == first


def test_a_job_stops_when_its_last_checkpoint_is_on_the_disk() -> None:
    world = copied()
    world.do(world.master.stop("ada", "enough", world.at_s))
    world.run_until(lambda: world.master.stage is Stage.SAVING)
    for _ in range(100):
        world.round()
    assert world.master.stage is Stage.SAVING
    world.writes_nothing = False
    world.run_to_end()
    assert (world.master.phase, world.master.message) == (JobPhase.STOPPED, "stopped by ada: enough")
    assert world.disk[2][0].ledger == world.master._state.train.checkpoint()


def test_rows_are_evaluated_while_the_final_checkpoint_is_written_and_the_end_waits_for_it() -> None:
    world = World(spec(plan(2, 1)), features(400, 400))
    world.writes_nothing = True
    world.run_until(lambda: world.master.evaluation_counts.finished)
    for _ in range(20):
        world.round()
    assert (world.master.phase, world.disk) == (JobPhase.EVALUATING, {})
    world.writes_nothing = False
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.disk[1][0].ledger == world.master._state.train.checkpoint()


@pytest.mark.parametrize("has_memory", [False, True])
def test_a_ps_that_dies_before_the_final_checkpoint_is_on_the_disk_does_not_cost_the_result(
    *, has_memory: bool
) -> None:
    world = World(spec(plan(2, 1)), features(400, 4000))
    world.has_memory = has_memory
    world.writes_nothing = True
    if has_memory:
        world.run_until(lambda: world.master.evaluation_counts.done > 2)
    else:
        world.run_until(lambda: world.master.stage is Stage.COPYING)
    world.kill("ps-0")
    assert n_trained(world) == (400 if has_memory else 0)
    world.writes_nothing = False
    world.run_to_end()
    trained_every_row(world, exactly_once=False)
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.disk[max(world.disk)][0].ledger == world.master._state.train.checkpoint()
    assert world.master.evaluation_counts.done == 100


def test_a_final_checkpoint_on_a_full_disk_is_told_and_the_job_succeeds() -> None:
    world = World(spec(plan(2, 1)), features(400, 400))
    world.fails_to_save = "No space left on device"
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert "checkpoint 1 could not be written: ps-0: No space left on device" in str(world.told(PhaseChanged))
