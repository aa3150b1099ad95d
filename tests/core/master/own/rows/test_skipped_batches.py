"""Batches that cannot be trained: counted once, named, and not too many of them; and scores that are NaN."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.master_world import World, features, plan, spec

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.views.snapshot import Evaluation

N_TRAIN = 395


def started(broken: set[int], rows: object = None, **changes: object) -> World:
    world = World(spec(plan(2, 2), **changes), rows or features(N_TRAIN))  # type: ignore[arg-type]
    world.broken = broken
    return world


def test_a_skipped_batch_is_told_with_its_rows_when_it_happens_and_at_the_end(words) -> None:
    world = started({17})
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.said("skipped") == words
    assert world.master.message == words
    assert set(world.learnt) == {(0, row) for row in range(N_TRAIN) if not 10 <= row < 20}
    assert world.master.train_counts.n_sample_done == N_TRAIN


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_one_more_than_allowed_in_a_pass_ends_the_job_with_the_rows(limit: int, words) -> None:
    world = started({5, 105, 205, 305}, max_skipped_batches=limit)
    world.run_to_end()
    assert world.master.phase is JobPhase.FAILED
    assert world.master.message == words
    told = [row for row in (5, 105, 205, 305) if f"no finite number for row {row}" in world.master.message]
    assert len(told) == min(limit + 1, 3)
    assert world.master.message == words


def test_a_broken_row_that_comes_again_in_each_pass_does_not_end_the_job() -> None:
    world = started({5}, n_epoch=4, max_skipped_batches=1)
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert "4 batches were skipped" in world.master.message


def test_a_batch_that_a_rollback_brings_again_counts_once() -> None:
    world = started({5}, features(8000), checkpoint_every_s=1.0, max_skipped_batches=1)
    world.run_until(lambda: world.master.record.n_skipped == 1)
    world.kill(world.living(Role.PS)[0])
    world.run_until(lambda: world.master.stage is Stage.SERVING)
    world.crash()
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert "1 batch was skipped" in world.master.message


@pytest.mark.more
@settings(deadline=None, max_examples=10)
@given(st.sets(st.integers(0, 799), max_size=4), st.integers(1, 2), st.integers(0, 2**32))
def test_whatever_dies_the_job_tells_each_broken_batch_once(
    broken: set[int], n_epoch: int, seed: int
) -> None:
    rng = random.Random(seed)
    changes = {"n_epoch": n_epoch, "checkpoint_every_s": 0.5}
    world, n_crash = started(broken, features(800), **changes), 0
    for _ in range(3):
        for _ in range(rng.randrange(10)):
            world.round()
        if rng.random() < 0.5 and (living := world.living(rng.choice(list(Role)))):
            world.kill(living[0])
        elif world.master.stage is not Stage.ENDED:
            world.crash()
            n_crash += 1
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    n_skipped = world.master.record.n_skipped
    batches = {(epoch, row // 10) for epoch in range(n_epoch) for row in broken}
    if n_crash:  # a report that the dead master had not read is in the worker's log only
        assert n_skipped <= len(batches)
    else:
        assert n_skipped == len(batches)
    assert world.learnt.keys().isdisjoint((epoch, row) for epoch in range(n_epoch) for row in broken)


# scores


def test_a_model_that_scores_nan_is_never_trained(words) -> None:
    world = World(spec(), features(N_TRAIN, 45))
    world.without_score = set(range(N_TRAIN, N_TRAIN + 45))
    world.run_to_end()
    assert world.master.phase is JobPhase.FAILED
    assert world.master.evaluation is None
    assert "trained" not in world.master.message
    assert world.master.message == words
    assert "and 35 more" in world.master.message


@pytest.mark.parametrize("found", [Evaluation(0.5, float("nan"), 45), Evaluation(float("nan"), 0.3, 45)])
def test_an_evaluation_that_is_nan_is_never_trained(found: Evaluation, words) -> None:
    world = World(spec(), features(N_TRAIN, 45))
    world.evaluate = lambda _scores: found
    world.run_to_end()
    assert world.master.phase is JobPhase.FAILED
    assert world.master.message == words


def test_single_rows_without_a_score_are_left_out_and_named(words) -> None:
    world = World(spec(), features(N_TRAIN, 450))
    world.without_score = {400, 600}
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.master.evaluation == Evaluation(0.5, 0.1, 448)
    assert world.master.message == words


def test_a_round_of_nan_scores_stops_nothing_early_and_is_told() -> None:
    world = World(spec(n_epoch=3, early_stopping=EarlyStopping()), features(N_TRAIN, 45))
    world.without_score = set(range(N_TRAIN, N_TRAIN + 45))
    world.run_until(lambda: "pass 1 was not evaluated: 45 of 45" in str(world.told(PhaseChanged)))
    world.without_score = set()
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert [each.n_pass for each in world.master.rounds] == [2]
