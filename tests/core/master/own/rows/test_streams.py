"""A stream is trained to its last row, once, wherever it ends and whoever dies."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.master_world import World, features, plan, spec

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import StreamEnded

SHARD = 40  # rows


def stream(end: int, n_worker: int = 2, **changes: object) -> World:
    rows = replace(features(n_train=1_000_000, n_eval=0), is_stream=True)
    world = World(spec(plan(n_worker, 1), **changes), rows)
    world.stream_end = end
    return world


def trained_all(world: World) -> None:
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    counts, end = world.master.train_counts, world.stream_end
    assert end is not None
    assert counts.finished
    assert counts.n_sample_done == counts.n_sample_total == end
    assert counts.done == -(-end // SHARD)
    assert {row for _, row in world.learnt} == set(range(end))


@pytest.mark.parametrize("end", [1, SHARD - 1, SHARD, SHARD + 1, 5 * SHARD, 395])
@pytest.mark.parametrize("n_worker", [1, 3])
def test_every_row_of_a_stream_is_trained_once_wherever_it_ends(end: int, n_worker: int, words) -> None:
    world = stream(end, n_worker)
    world.run_to_end()
    trained_all(world)
    assert set(world.learnt.values()) == {1}
    assert world.said("the stream ended") == words


def test_a_stream_is_trained_in_its_order() -> None:
    world = stream(400, n_worker=1)
    world.run_to_end()
    starts = [shard.start for _, shard in world.granted if shard.stop <= 400]
    assert starts == sorted(starts)


def test_a_stream_that_ends_here_and_there_fails_with_the_reason(words) -> None:
    world = stream(4000, n_worker=2)
    slow = "worker-0"
    world.run_until(lambda: slow in world.nodes and world.nodes[slow].shard is not None)
    lease = world.nodes[slow].shard.lease
    world.nodes[slow].is_paused = True  # it keeps its shard while the other one goes on
    world.run_until(lambda: world.master.train_counts.done > lease.shard + 2)
    world.nodes[slow].is_paused = False
    world.do(world.master.on_message(slow, StreamEnded(slow, lease, 10), world.at_s))
    assert world.master.phase is JobPhase.FAILED
    assert f"{slow} read" in world.master.message
    assert f"row {lease.shard * SHARD + 10}," in world.master.message
    assert world.master.message == words


@pytest.mark.more
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1 << 30), end=st.integers(1, 700), n_worker=st.integers(1, 3))
def test_deaths_of_anybody_lose_no_row_of_a_stream(seed: int, end: int, n_worker: int) -> None:
    rng = random.Random(seed)
    world = stream(end, n_worker, checkpoint_every_s=1.5)
    for _ in range(3):
        for _ in range(rng.randrange(1, 30)):
            world.round()
        if world.master.phase.is_final:
            break
        what = rng.choice(["worker", "ps", "master"])
        if what == "master":
            world.crash()
        elif living := world.living(Role(what)):
            world.kill(rng.choice(living))
    world.run_to_end()
    trained_all(world)
