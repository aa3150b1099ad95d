"""Buckets that move within an unchanged group of PS, and everything that can come between."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.master.any_order import acquit
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row
from support.master.moves import load_of, report, to
from test_master_moves import act_once

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.own.nodes import liveness
from dlrover_nb.core.master.own.servers.load_placement import assign_by_load
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.views.events import PlanApplied, PlanFailed

MOST_TO_FIRST = tuple(int(bucket >= 200) for bucket in range(N_BUCKET))
BOTH_WAYS = tuple(int(bucket % 3 == 0) for bucket in range(N_BUCKET))


def training(n_ps: int = 2, *, n_row: int = 4000, **changes: object) -> World:
    world = World(spec(plan(2, n_ps), **changes), features(n_row))
    world.run_until(lambda: steady(world) and world.master.train_counts.n_sample_done > 800)
    return world


def steady(world: World) -> bool:
    return in_place(world, world.master.target)


def owner(world: World) -> tuple[int, ...]:
    group = world.master.record.group
    assert group is not None
    return group.bucket_owner


def order(world: World, table: tuple[int, ...]) -> None:
    world.do(world.master.rebalance(table, world.at_s))


def moving(table: tuple[int, ...] = BOTH_WAYS, **changes: object) -> World:
    """Return a job of which a few chunks have gone to their next owners, most have not."""
    world = training(**changes)  # type: ignore[arg-type]
    world.n_step = 0
    order(world, table)
    for _ in range(3):
        world.round()
    world.n_step = 6
    assert world.master.stage is Stage.SERVING
    assert world.master.record.move is not None
    return world


def finished(world: World, *, exactly_once: bool = True) -> None:
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    trained_every_row(world, exactly_once=exactly_once)


@pytest.mark.parametrize("table", [MOST_TO_FIRST, BOTH_WAYS])
def test_buckets_reach_their_ordered_owners_while_workers_train(table: tuple[int, ...], words) -> None:
    world = training()
    names, n_plan = world.living(Role.PS), len(world.told(PlanApplied))
    order(world, table)
    stages = set()
    while owner(world) != table or not steady(world):
        assert world.master.running is None, "what is measured now is not of the plan alone"
        world.round()
        stages.add(world.master.stage)
        world.check_parameters()
    assert stages <= {Stage.SERVING, Stage.PAUSING, Stage.SWITCHING}
    assert not world.copies
    assert world.living(Role.PS) == names
    assert len(world.told(PlanApplied)) == n_plan
    assert world.said("ps-0") == words
    finished(world)
    assert world.master.train_counts.returned == 0


def test_a_table_of_now_moves_nothing() -> None:
    world = training()
    order(world, owner(world))
    assert world.master.record.move is None
    assert steady(world)


@for_each("table", [(0,) * N_BUCKET, (0, 1), (*MOST_TO_FIRST[:-1], 2), (*MOST_TO_FIRST[:-1], -1)])
def test_a_table_of_another_group_or_that_empties_a_ps_is_refused(table: tuple[int, ...]) -> None:
    world = training()
    with pytest.raises(InvalidValueError, match="ps-0, ps-1"):
        order(world, table)
    assert world.master.record.move is None


def test_an_order_before_the_plan_is_in_place_or_during_another_is_refused() -> None:
    world = World(spec(plan(2, 2)), features(4000))
    with pytest.raises(StaleDecisionError, match="order later"):
        order(world, BOTH_WAYS)
    world = moving()
    with pytest.raises(StaleDecisionError, match="order later"):
        order(world, MOST_TO_FIRST)
    world.run_until(lambda: steady(world))
    assert owner(world) == BOTH_WAYS
    world.do(world.master.stop("ada", "enough", world.at_s))
    with pytest.raises(StaleDecisionError, match="order later"):
        order(world, MOST_TO_FIRST)


@pytest.mark.more
@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
@pytest.mark.parametrize("name", ["ps-0", "ps-1"])
def test_a_ps_that_dies_on_the_way_takes_parameters_and_queue_back_together(stage: Stage, name: str) -> None:
    world = to(moving(MOST_TO_FIRST), stage)
    world.kill(name)
    assert world.master.train_counts.n_sample_done == 0
    world.run_until(lambda: steady(world))
    world.check_parameters()
    assert owner(world) not in {MOST_TO_FIRST, BOTH_WAYS}
    finished(world)


@pytest.mark.more
@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
def test_a_worker_that_dies_on_the_way_does_not_hold_it_up(stage: Stage) -> None:
    world = to(moving(), stage)
    world.kill("worker-0")
    world.run_until(lambda: steady(world))
    assert owner(world) == BOTH_WAYS
    world.check_parameters()
    finished(world, exactly_once=False)


def test_a_plan_with_other_ps_ends_the_move_within_the_group() -> None:
    world = moving()
    within = world.master.record.move
    world.do(world.master.set_target(plan(2, 3), world.at_s))
    world.round()
    assert world.master.record.move is not within


@pytest.mark.more
@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
@pytest.mark.parametrize("target", [plan(2, 3), plan(2, 1), plan(2, 2, ps_cpu=0.5), plan(3, 2)])
def test_a_plan_that_comes_between_is_applied(stage: Stage, target: object) -> None:
    world = to(moving(), stage)
    world.do(world.master.set_target(target, world.at_s))  # type: ignore[arg-type]
    world.run_until(lambda: in_place(world, target))
    world.check_parameters()
    assert not world.told(PlanFailed)
    finished(world)


@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
def test_a_master_that_is_killed_on_the_way_loses_nothing(stage: Stage) -> None:
    world = to(moving(), stage)
    world.crash()
    world.run_until(lambda: steady(world))
    world.check_parameters()
    assert (owner(world) == BOTH_WAYS) is (stage is Stage.SWITCHING)
    finished(world)


def test_a_ps_that_is_evicted_on_the_way_gives_all_that_it_holds_away() -> None:
    world = moving()
    world.evict("ps-0")
    world.run_until(lambda: steady(world) and "ps-0" not in world.living(Role.PS))
    world.check_parameters()
    finished(world)


@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
def test_a_job_that_is_stopped_on_the_way_saves_all_that_it_learnt(stage: Stage) -> None:
    world = to(moving(), stage)
    world.do(world.master.stop("ada", "enough", world.at_s))
    world.run_to_end()
    assert world.master.message == "stopped by ada: enough"
    manifest, learnt = world.disk[1]
    assert learnt == world.learnt
    held = [row for path, _ in manifest.files for row in world.files[path].ids.tolist()]
    assert sorted(held) == sorted(row for _, row in learnt)


@pytest.mark.more
def test_a_move_that_comes_no_further_is_given_up_and_the_job_goes_on(words) -> None:
    world = moving(n_row=60_000)
    world.n_step, before_s, table = 0, world.at_s, owner(world)
    world.network.loses = lambda: True
    world.run_until(lambda: steady(world), 2000)
    assert world.at_s - before_s < 2 * liveness.PLAN_LIMIT_S
    assert world.said("the buckets stay") == words
    assert owner(world) == table
    world.check_parameters()
    assert not world.told(PlanFailed)


def test_a_move_that_ends_with_the_rows_is_given_up(words) -> None:
    world = moving()
    world.n_step = 0
    finished(world)
    assert world.said("the buckets stay") == words


def test_a_checkpoint_waits_for_the_move() -> None:
    world = moving(checkpoint_every_s=0.5, n_row=20_000)
    world.n_step, n_before = 0, len(world.copies)
    for _ in range(20):
        world.round()
    assert len(world.copies) == n_before
    world.n_step = 6
    world.run_until(lambda: owner(world) == BOTH_WAYS)
    world.run_until(lambda: len(world.copies) > n_before)


# from measured loads


def test_measured_loads_give_a_hot_ps_fewer_buckets_and_a_slow_one_too() -> None:
    world = training()
    hot = dict.fromkeys(range(16), 20_000)
    assert world.master.balanced_owner is None
    report(world, "ps-0", load_of(world, 0, hot, 8.0))
    assert world.master.balanced_owner is None, "one of them has not measured yet"
    report(world, "ps-1", load_of(world, 1, {}, 8.0 * 128 / 432))
    table = world.master.balanced_owner
    assert table is not None
    rows = [hot.get(bucket, 1000) for bucket in range(N_BUCKET)]
    assert table == assign_by_load(owner(world), rows, [1.0, 1.0])
    assert table.count(0) < 128
    report(world, "ps-0", load_of(world, 0, {}, 2.0))
    report(world, "ps-1", load_of(world, 1, {}, 8.0))
    table = world.master.balanced_owner
    assert table is not None
    assert table.count(1) in range(50, 54)  # it takes four times as long for the same
    order(world, table)
    assert world.master.balanced_owner is not None
    world.run_until(lambda: steady(world) and owner(world) == table)
    assert world.master.balanced_owner is None, "what was measured is of the group of before"
    world.check_parameters()
    finished(world)


def test_loads_that_are_alike_give_no_other_owners_nor_do_idle_ps() -> None:
    world = training()
    for ps, name in enumerate(("ps-0", "ps-1")):
        report(world, name, load_of(world, ps, {}, 2.0 + 0.1 * ps))
    assert world.master.balanced_owner is None
    idle = dict.fromkeys(range(N_BUCKET), 0)
    for ps, name in enumerate(("ps-0", "ps-1")):
        report(world, name, load_of(world, ps, idle, 0.0))
    assert world.master.balanced_owner is None
    report(world, "ps-0", load_of(world, 0, {}, 9.0))
    table = world.master.balanced_owner
    assert table is not None, (
        "of a PS that served nothing no speed is known: it is taken for one like the others"
    )
    assert table.count(0) in range(62, 67)


def test_the_only_ps_has_nobody_to_give_buckets_to() -> None:
    world = training(1)
    report(world, "ps-0", load_of(world, 0, {}, 9.0))
    assert world.master.balanced_owner is None


def interleaved(seed: int, loss: float, every_s: float) -> None:
    """Let anything happen while buckets move by measured loads; at each moment PS hold what was trained."""
    job = spec(plan(2, 3), checkpoint_every_s=every_s, heartbeat_timeout_s=1e6, n_epoch=2)
    world, rng = World(job, features(1200), cpu=16.0), random.Random(seed)
    world.network.loses = lambda: rng.random() < loss
    for n in range(1500):
        if n == 1200:
            world.do(world.master.set_target(plan(2, 2), world.at_s))
        if n < 1200 and world.master.running is not None and rng.random() < 0.05:
            load, capacity = ([rng.uniform(0.01, 1) for _ in range(k)] for k in (N_BUCKET, 3))
            table = assign_by_load(owner(world), load, capacity)
            if not world.master.train_counts.finished:
                order(world, table)
        act_once(world, rng)
        if n % 7 == 0:
            world.check_parameters()
    for _ in range(3000):
        if world.master.stage is Stage.ENDED:
            break
        acquit(world)
        world.round()
        world.check_parameters()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    trained_every_row(world, exactly_once=False)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(3))
def test_under_a_few_interleavings_no_update_is_lost_and_every_bucket_has_one_owner(seed: int) -> None:
    interleaved(seed, loss=0.15, every_s=2.0 * (seed % 2))


@pytest.mark.release
@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**9), st.sampled_from([0.0, 0.15]), st.sampled_from([0.0, 2.0]))
def test_under_any_interleaving_no_update_is_lost_and_every_bucket_has_one_owner(
    seed: int, loss: float, every_s: float
) -> None:
    interleaved(seed, loss, every_s)
