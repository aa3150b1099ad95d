"""Rows that end every worker that trains them: isolated, told, decided by the user, never lost in silence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.master_world import World, features, plan, spec, trained_every_row

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.sharding.deaths import MAX_DEATHS
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import Purpose, ShardAction, ShardChoice
from dlrover_nb.core.structs.views.events import PhaseChanged


def blocked(world: World) -> bool:
    counts = world.master.train_counts
    return counts.quarantined > 0 and counts.todo == counts.doing == 0


def choose(world: World, action: ShardAction, *, why: str = "") -> None:
    for told in world.master.quarantined:
        world.do(world.master.choose(ShardChoice(told.shard, action, "ada", why), world.at_s))


@pytest.mark.parametrize("n_worker", [1, 3])
def test_rows_that_end_every_worker_block_the_end_and_all_others_are_trained(n_worker: int, words) -> None:
    world = World(spec(plan(n_worker, 1)), features(395))
    world.poison = {123}
    world.run_until(lambda: blocked(world))
    for _ in range(50):
        world.round()
    assert world.master.phase is JobPhase.BLOCKED, "it only waits for a person"
    (told,) = world.master.quarantined
    assert told.start <= 123 < told.stop
    assert len(told.killed) == 3
    assert f" {told.shard}" in world.master.message
    assert world.master.message == words
    notes = [event.message for event in world.told(PhaseChanged) if "decision" in event.message]
    assert notes == [world.master.message]
    assert set(range(395)) - {row for _, row in world.learnt} <= set(range(told.start, told.stop))
    choose(world, ShardAction.SKIP, why="damaged rows")
    assert world.master.phase is JobPhase.TRAINING
    assert f"ada skips shard {told.shard}" in str(world.told(PhaseChanged))
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    counts = world.master.train_counts
    assert (counts.done, counts.skipped) == (9, 1)
    assert counts.n_sample_done + counts.n_sample_skipped == 395
    assert 0 < counts.n_sample_skipped <= 40


def test_a_shard_that_is_tried_again_after_its_rows_were_mended_is_trained() -> None:
    world = World(spec(plan(2, 1)), features(395))
    world.poison = {123}
    world.run_until(lambda: blocked(world))
    world.poison.clear()
    choose(world, ShardAction.RETRY)
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world, exactly_once=False)


def test_several_bad_shards_are_isolated_before_the_restarts_are_used_up() -> None:
    world = World(spec(plan(1, 1)), features(395))
    world.poison = {5, 45, 85, 333}
    world.run_until(lambda: blocked(world), 2000)
    assert world.master.train_counts.quarantined == 4
    assert world.master.train_counts.done == 6


def test_a_program_that_dies_of_every_row_ends_the_job() -> None:
    world = World(spec(plan(1, 1)), features(395))
    world.poison = set(range(395))
    world.run_to_end()
    assert world.master.phase is JobPhase.FAILED
    assert "keep failing" in world.master.message


def test_rows_that_cannot_be_scored_wait_for_a_decision_too() -> None:
    world = World(spec(plan(1, 1)), features(80, 45))
    world.poison = {90}
    world.run_until(lambda: world.master.evaluation_counts.quarantined == 1, 2000)
    for _ in range(30):
        world.round()
    assert world.master.phase is JobPhase.BLOCKED
    choose(world, ShardAction.SKIP)
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.master.evaluation is not None
    assert world.master.evaluation.n_sample == 5


def test_a_shard_that_is_not_isolated_cannot_be_skipped(error_words) -> None:
    world = World(spec())
    with error_words(InvalidValueError):
        world.master.choose(ShardChoice(3, ShardAction.SKIP, "ada"), 0.0)


def test_quarantine_outlives_the_loss_of_a_parameter_server() -> None:
    world = World(spec(plan(2, 1)), features(395))
    world.poison = {123}
    world.run_until(lambda: blocked(world))
    world.kill(world.living(Role.PS)[0])
    assert world.master.train_counts.n_sample_done == 0
    world.run_until(lambda: blocked(world))
    assert len(world.master.quarantined) == 1


def test_a_slow_worker_gets_small_pieces_and_every_row_is_trained_once() -> None:
    world = World(spec(plan(3, 1), shard_batches=8, n_epoch=3), features(4000))
    world.run_until(lambda: len(world.living(Role.WORKER)) == 3)
    slow = world.living(Role.WORKER)[0]
    world.nodes[slow].iter_s = 0.4
    world.run_to_end()
    granted = [(name, shard) for name, shard in world.granted if shard.lease.purpose is Purpose.TRAIN]
    sizes = {name: [] for name, _ in granted}
    for name, shard in granted:
        sizes[name].append(shard.end - shard.offset)
    assert set(sizes.pop(slow)[2:]) == {20}
    assert all(80 in other for other in sizes.values())
    counts = world.master.train_counts
    assert counts.done == 150
    assert counts.n_sample_done == len(world.learnt) == 12_000
    assert set(world.learnt.values()) == {1}


@given(st.lists(st.sampled_from(["evicted", "crashed"]), min_size=1, max_size=6))
@settings(max_examples=15)
def test_rows_are_isolated_by_three_crashes_and_by_no_number_of_evictions(ends: list[str]) -> None:
    """Each worker ends while it holds the same shard, before a row of it is done."""
    world = World(spec(plan(1, 1)), features(395))
    n_crash = 0
    for end in ends:
        world.run_until(lambda: any(world.nodes[name].shard for name in world.living(Role.WORKER)))
        (worker,) = world.living(Role.WORKER)
        world.kill(worker, end, by_its_work=end == "crashed")
        n_crash += end == "crashed"
        assert bool(world.master.quarantined) == (n_crash >= MAX_DEATHS)
        if n_crash >= MAX_DEATHS:
            return
    world.run_to_end()
    trained_every_row(world, exactly_once=False)
