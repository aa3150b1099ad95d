"""Checkpoints that are cut while workers stand still, copied and written while they train."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.master.own.checkpoints.checkpoint_coordinator import (
    FIRST_CHECKPOINT_BYTES,
    PREPARE_LIMIT_S,
    loaded,
    retry_wait_s,
    start_checkpoint,
)
from dlrover_nb.core.master.own.nodes.liveness import DISK_LIMIT_S
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.shared.orders import PrepareCheckpoint
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.wire.messages import Save


def copied(**changes: object) -> World:
    """Return a job that has copied its first checkpoint and cannot write it yet."""
    world = World(spec(plan(2, 2), checkpoint_every_s=1.0, **changes), features(8000))
    world.writes_nothing = True
    world.run_until(lambda: world.memory and world.master.stage is Stage.SERVING)
    return world


def n_trained(world: World) -> int:
    return world.master.train_counts.n_sample_done


def cut(**changes: object) -> World:
    """Return a job that has cut its second checkpoint and copied nothing of it yet."""
    world = World(spec(plan(2, 2), checkpoint_every_s=1.0, **changes), features(8000))
    world.run_until(lambda: 1 in world.disk)
    world.copies_nothing = True
    world.run_until(lambda: any(node.cuts for node in world.nodes.values()))
    world.run_until(lambda: world.master.stage is Stage.SERVING)
    return world


def test_workers_train_on_while_a_checkpoint_is_copied() -> None:
    world = cut()
    before = n_trained(world)
    world.run_until(lambda: n_trained(world) > before + 500)
    assert (list(world.memory), list(world.disk)) == ([1], [1])
    world.copies_nothing = False
    world.run_until(lambda: 2 in world.disk)
    assert len(world.disk[2][1]) == len(world.copies[2]) <= before, "none of what came after the cut"
    world.run_to_end()
    trained_every_row(world)


def test_a_ps_that_dies_while_its_part_is_copied_costs_that_checkpoint() -> None:
    world = cut()
    world.run_until(lambda: n_trained(world) > len(world.copies[2]) + 100)
    world.kill("ps-1")
    assert "continuing from checkpoint 1" in str(world.told(PhaseChanged))
    assert n_trained(world) == len(world.memory[1])
    world.copies_nothing = False
    world.run_until(lambda: in_place(world, plan(2, 2)))
    assert 2 in world.dropped
    assert 2 not in world.disk
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_a_stop_waits_for_what_is_copied_and_for_its_files() -> None:
    world = cut()
    world.do(world.master.stop("ada", "", world.at_s))
    for _ in range(5):
        world.round()
    assert world.master.phase is not JobPhase.STOPPED
    world.copies_nothing = False
    world.run_until(lambda: world.master.phase is JobPhase.STOPPED)
    assert world.disk[max(world.disk)][0].ledger == world.master.ledgers[0].checkpoint()
    saves = [each for each in world.nodes["ps-0"].heard if isinstance(each, Save)]
    assert [each.is_awaited for each in saves] == [False, False, True]


def test_workers_train_on_while_a_checkpoint_is_written_and_the_next_one_waits_for_it() -> None:
    world = copied()
    before = n_trained(world)
    world.run_until(lambda: n_trained(world) > before + 500)
    assert world.at_s > 3.0
    assert (list(world.memory), list(world.disk)) == ([1], [])
    world.writes_nothing = False
    world.run_until(lambda: len(world.disk) == 2)
    first = next(each for each in world.master.checkpoints if each.number == 1)
    assert world.disk[1][0].ledger == first.manifest.ledger
    assert len(world.disk[1][1]) == len(world.memory[1]) <= before


def test_a_ps_that_dies_while_its_part_is_written_goes_on_from_memory(words) -> None:
    world = copied()
    world.run_until(lambda: n_trained(world) > len(world.memory[1]) + 100)
    world.kill("ps-1")
    assert world.said("checkpoint 1") == words
    assert n_trained(world) == len(world.memory[1])
    world.run_until(lambda: in_place(world, plan(2, 2)))
    world.writes_nothing = False
    world.run_to_end()
    trained_every_row(world, exactly_once=False)
    assert world.disk[max(world.disk)][0].ledger == world.master.ledgers[0].checkpoint()


def test_what_is_only_in_memory_and_cannot_be_read_gives_way_to_the_beginning() -> None:
    world = copied()
    world.memory.clear()
    world.kill("ps-0")
    world.run_until(lambda: in_place(world, plan(2, 2)))
    assert "continuing from the beginning" in str(world.told(PhaseChanged))
    world.writes_nothing = False
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_a_checkpoint_that_cannot_be_written_can_still_be_restored_from_memory(words) -> None:
    world = copied()
    world.fails_to_save = "No space left on device"
    world.writes_nothing = False
    world.run_until(lambda: "could not be written" in str(world.told(PhaseChanged)))
    assert world.master.stage is Stage.SERVING
    world.kill("ps-0")
    assert world.said("checkpoint 1") == words
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_memory_is_preferred_then_the_last_good_file_then_the_one_before() -> None:
    world = World(spec(plan(1, 1), checkpoint_every_s=1.0), features(8000))
    world.run_until(lambda: len(world.disk) == 2)
    first, second = sorted(world.disk)
    world.damaged = {second}
    world.kill("ps-0")
    world.run_until(lambda: in_place(world, plan()))
    assert world.master.record.source is not None
    assert world.master.record.source[0] == second
    world.memory.clear()
    world.kill("ps-1")
    world.run_until(lambda: in_place(world, plan()))
    assert world.master.record.source[0] == first


@pytest.mark.parametrize("where", ["nowhere", "in memory", "on the disk", "on the disk alone"])
def test_a_checkpoint_asks_for_as_much_room_as_the_newest_takes_wherever_that_is(where: str) -> None:
    world = World(spec(plan(1, 2), checkpoint_every_s=1.0), features(8000))
    state, world.writes_nothing = world.master._state, where == "in memory"
    world.has_memory = where != "on the disk alone"
    world.run_until(lambda: in_place(world, plan(1, 2)) and (where == "nowhere" or bool(state.checkpoints)))
    state.enter(Stage.PAUSING, world.at_s)
    start_checkpoint(state, world.at_s, is_awaited=False)
    (order,) = (order for order in state.orders if isinstance(order, PrepareCheckpoint))
    assert order.n_byte == (FIRST_CHECKPOINT_BYTES if where == "nowhere" else 2 * 8)


@for_each(
    ("n_from_memory", "n_from_peers", "places"),
    [
        (4, 0, "memory"),
        (0, 0, "files"),
        (1, 0, "memory and files (3 of 4 parts)"),
        (1, 2, "memory, copies of peers and files (1 of 4 parts)"),
    ],
)
def test_it_is_told_from_where_a_checkpoint_was_loaded(
    n_from_memory: int, n_from_peers: int, places: str
) -> None:
    world = World(spec(plan(1, 2), checkpoint_every_s=1.0), features(8000))
    state = world.master._state
    world.run_until(lambda: bool(world.disk))
    state.source = state.checkpoints[-1]
    state.group_nodes[0].n_from_memory, state.group_nodes[1].n_from_peers = n_from_memory, n_from_peers
    assert loaded(state) == f"checkpoint 1 was loaded from {places}"


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
    assert world.disk[2][0].ledger == world.master.ledgers[0].checkpoint()


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
    assert world.disk[1][0].ledger == world.master.ledgers[0].checkpoint()


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
    assert world.disk[max(world.disk)][0].ledger == world.master.ledgers[0].checkpoint()
    assert world.master.evaluation_counts.done == 100


def failing(why: str = "", *, save: str = "", **changes: object) -> World:
    """Return a job with a checkpoint on the disk, on which no further one can be written."""
    world = World(spec(plan(2, 3), **({"checkpoint_every_s": 1.0} | changes)), features(80_000))
    world.run_until(lambda: 1 in world.disk)
    world.fails_to_write, world.fails_to_save = why, save
    return world


def saves(world: World, number: int) -> list[Save]:
    """Return the orders to save a checkpoint, heard or not."""
    told = [message for node in world.nodes.values() for message in (*node.heard, *node.inbox)]
    return [each for each in told if isinstance(each, Save) and each.checkpoint == number]


def known(world: World) -> set[int]:
    return set(world.disk) | set(world.master.record.writing)


def test_no_part_is_ordered_of_a_checkpoint_whose_folder_was_refused(words) -> None:
    world = failing("expected 9 MiB free, got 0 MiB")
    before = n_trained(world)
    world.run_until(lambda: world.master.record.n_checkpoint_failed == 2)
    assert len(saves(world, 1)) == 3
    assert saves(world, 2) == saves(world, 3) == []
    assert world.folders == set(world.disk) == {1}
    assert (world.master.stage, n_trained(world) > before) == (Stage.SERVING, True)
    assert world.said("checkpoint 2") == words
    world.fails_to_write = ""
    world.run_until(lambda: max(world.disk) > 1)
    assert "was written, after" in str(world.told(PhaseChanged))
    assert world.master.record.n_checkpoint_failed == 0


def test_parts_that_are_written_after_the_drop_are_dropped_again() -> None:
    world = failing()
    world.writes_nothing = True
    world.run_until(lambda: len(saves(world, 2)) == 3 and world.master.stage is Stage.SERVING)
    world.do(world.master.checkpoint_failed(2, "No space left on device", world.at_s))
    assert world.folders == {1}
    world.writes_nothing = False
    world.run_until(lambda: max(world.disk) > 2)
    assert 2 not in world.folders
    assert world.dropped.count(2) > 3


def test_while_the_disk_hangs_training_goes_on_and_no_other_checkpoint_begins(words) -> None:
    world = failing()
    world.writes_nothing = True
    world.run_until(lambda: len(saves(world, 2)) == 3 and world.master.stage is Stage.SERVING)
    until_s = world.at_s + DISK_LIMIT_S + 1
    while world.at_s < until_s:
        world.round(10.0)
    assert world.said("checkpoint 2") == words
    before = n_trained(world)
    world.run_until(lambda: n_trained(world) > before + 100)
    assert (world.master.record.n_checkpoint, world.master.stage) == (2, Stage.SERVING)
    world.writes_nothing = False
    world.run_until(lambda: max(world.disk) > 2)
    assert world.folders <= known(world)


def test_a_place_that_does_not_answer_keeps_training_waiting_for_seconds_only(words) -> None:
    world = failing()
    world.hangs = True
    world.run_until(lambda: world.asked == [2])
    since_s, before = world.at_s, n_trained(world)
    assert world.master.stage is Stage.COPYING
    world.run_until(lambda: world.master.stage is Stage.SERVING)
    assert abs(world.at_s - since_s - PREPARE_LIMIT_S) < 1.0
    assert world.said("its place") == words
    world.run_until(lambda: n_trained(world) > before)
    world.folders.add(2)
    world.do(world.master.checkpoint_prepared(2, world.at_s))  # it answers after all
    assert (2 in world.folders, saves(world, 2)) == (False, [])
    world.hangs = False
    world.run_until(lambda: max(world.disk) > 2)


def test_what_a_disk_refused_to_delete_is_swept_after_the_next_checkpoint() -> None:
    world = failing(save="Read-only file system")
    world.refuses_drops = True
    world.run_until(lambda: world.master.record.n_checkpoint_failed == 2)
    assert world.folders == {1, 2, 3}
    world.fails_to_save, world.refuses_drops = "", False
    world.run_until(lambda: max(world.disk) > 3)
    assert world.folders <= known(world) | {world.master.record.n_checkpoint}


@pytest.mark.more
def test_a_master_that_came_back_sweeps_what_nobody_knows() -> None:
    world = World(spec(plan(1, 2), checkpoint_every_s=1.0), features(8000))
    world.run_until(lambda: len(world.disk) == 2)
    n = world.master.record.n_checkpoint
    world.folders |= {n - 5, n + 100}  # one left by a master that died; one of an earlier job here
    world.crash()
    assert world.folders - known(world) == {n + 100}
    world.run_to_end()
    trained_every_row(world)


@given(st.floats(0.001, 1e4), st.integers(0, 2000))
def test_each_failure_doubles_the_wait_up_to_ten_minutes(every_s: float, n_failed: int) -> None:
    wait_s, longer_s = retry_wait_s(every_s, n_failed), retry_wait_s(every_s, n_failed + 1)
    assert retry_wait_s(every_s, 0) == every_s
    assert every_s <= wait_s <= longer_s <= max(every_s, 600.0)
    assert longer_s in {2 * wait_s, max(every_s, 600.0)}


def test_attempts_on_a_full_disk_become_rare_also_under_another_master() -> None:
    world = failing("No space left on device", checkpoint_every_s=2.0)
    world.run_until(lambda: world.master.record.n_checkpoint_failed == 2)
    world.crash()
    since_s = world.at_s
    world.run_until(lambda: world.master.record.n_checkpoint_failed == 3)
    assert world.at_s - since_s > 6.0


@pytest.mark.more
@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from(["write", "save", "gone", "kill", "crash", "well"]), max_size=8))
def test_whatever_the_disk_did_nothing_unknown_stays_after_the_next_checkpoint(acts: list[str]) -> None:
    world = World(spec(plan(1, 2), checkpoint_every_s=0.5), features(80_000))
    for act in [*acts, "well"]:
        world.fails_to_write = "No space left on device" if act == "write" else ""
        world.fails_to_save = "Input/output error" if act == "save" else ""
        world.refuses_drops = act == "gone"
        if act == "kill":
            world.kill(world.living(Role.PS)[0])
        elif act == "crash":
            world.crash()
        had_any = bool(world.disk)
        for _ in range(12):
            world.round()
            assert world.disk or not had_any, "the last good one stays"
    n_failed, newest = world.master.record.n_checkpoint_failed, max(world.disk, default=0)
    world.run_until(lambda: max(world.disk, default=0) > newest, 40 + 12 * 2**n_failed)
    assert world.folders <= known(world)
    assert len(world.disk) <= 2


def test_a_final_checkpoint_on_a_full_disk_is_told_and_the_job_succeeds(words) -> None:
    world = World(spec(plan(2, 1)), features(400, 400))
    world.fails_to_save = "No space left on device"
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.said("checkpoint 1") == words


def obey_one(world: World, ps: str) -> None:
    """Let one PS alone take a step, and be heard."""
    assert world.turn(ps)
    while world.hear(ps):
        pass


def test_training_and_the_manifest_wait_for_the_last_ps() -> None:
    world = World(spec(plan(1, 2), checkpoint_every_s=1.0), features(1600))
    world.run_until(lambda: world.master.stage is Stage.COPYING)
    obey_one(world, "ps-0")  # its part is cut
    assert world.master.stage is Stage.COPYING
    obey_one(world, "ps-1")
    assert world.master.stage is Stage.SERVING
    for ps in ("ps-0", "ps-1"):
        obey_one(world, ps)  # its part is copied
    obey_one(world, "ps-0")  # its part is written
    assert not world.disk
    obey_one(world, "ps-1")
    assert world.disk.keys() == {1}


def test_a_periodic_checkpoint_is_no_progress_of_a_plan_that_waits() -> None:
    world = copied()
    state = world.master._state
    state.last_step_s = -1.0
    world.writes_nothing = False
    world.run_until(lambda: 1 in world.disk)
    assert state.last_step_s == -1.0


@pytest.mark.parametrize("is_final", [False, True])
def test_only_a_final_checkpoint_that_could_not_be_written_is_named_at_the_end(*, is_final: bool) -> None:
    world = copied()
    if is_final:
        world.writes_nothing = False
        world.run_until(lambda: world.master.train_counts.finished, 3000)
    world.fails_to_save, world.writes_nothing = "No space left on device", False
    world.run_until(lambda: world.master.record.n_checkpoint_failed > 0)
    assert bool(world.master.record.not_saved) is is_final
