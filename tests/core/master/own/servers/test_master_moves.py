"""Parameters that go to other PS while workers train: every way, and everything that can come between."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row
from support.master.moves import to

from dlrover_nb.core.master.own.nodes import liveness
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.views.events import PlanApplied, PlanFailed
from dlrover_nb.core.structs.views.snapshot import NodePhase
from dlrover_nb.core.structs.wire.messages import MoveCancel, MoveEnd, MoveOut


def migration(first: object, second: object, *, n_row: int = 4000, **changes: object) -> World:
    """Return a job of which a few chunks have gone to the next PS, most have not."""
    world = World(spec(first, **changes), features(n_row))  # type: ignore[arg-type]
    world.run_until(lambda: in_place(world, first) and world.master.train_counts.n_sample_done > 800)
    world.n_step = 0
    world.do(world.master.set_target(second, world.at_s))  # type: ignore[arg-type]
    world.run_until(lambda: world.master.message.startswith("moving "))
    for _ in range(3):
        world.round()
    assert world.master.stage is Stage.SERVING
    world.n_step = 6
    return world


def finish(world: World, target: object) -> None:
    world.run_until(lambda: in_place(world, target))
    world.check_parameters()


WAYS = [
    (plan(2, 1), plan(2, 2)),
    (plan(2, 2), plan(2, 1)),
    (plan(2, 2), plan(2, 3)),
    (plan(2, 3), plan(2, 2)),
    (plan(2, 3), plan(2, 1)),
    (plan(2, 1), plan(2, 1, ps_cpu=0.5)),
    (plan(2, 2), plan(1, 3, ps_cpu=0.5)),
    (plan(1, 3), plan(2, 2, worker_cpu=1.0, ps_cpu=0.5)),
]


@pytest.mark.more
@pytest.mark.parametrize(("first", "second"), WAYS)
def test_parameters_reach_other_ps_while_workers_train_without_disk_or_dropped_shard(
    first: object, second: object
) -> None:
    world = World(spec(first), features(4000))  # type: ignore[arg-type]
    world.run_until(lambda: in_place(world, first) and world.master.train_counts.n_sample_done > 800)
    world.do(world.master.set_target(second, world.at_s))  # type: ignore[arg-type]
    stages = []
    while not in_place(world, second):
        world.round()
        stages.append(world.master.stage)
        world.check_parameters()
    assert not {Stage.COPYING, Stage.SAVING, Stage.ASSEMBLING, Stage.LOADING} & set(stages)
    assert not world.copies
    assert world.told(PlanApplied)[-1].pause_s > 0  # type: ignore[attr-defined]
    world.run_to_end()
    trained_every_row(world)
    n_replaced = 0 if first.worker == second.worker else 1  # type: ignore[attr-defined]
    assert world.master.train_counts.returned <= n_replaced  # a drained one gives back what it had not begun


def test_one_ps_two_and_one_again_keeps_every_update() -> None:
    world = World(spec(plan(2, 1)), features(8000))
    for n_ps in (1, 2, 1):
        world.do(world.master.set_target(plan(2, n_ps), world.at_s))
        finish(world, plan(2, n_ps))
    assert world.living(Role.PS) == ["ps-0"]
    world.run_to_end()
    trained_every_row(world)


def test_while_parameters_move_it_is_told_how_far_they_are_and_who_leaves() -> None:
    world = migration(plan(2, 2), plan(2, 1, ps_cpu=0.5))
    assert "GB to ps-2: " in world.master.message
    assert "GB to ps-1: " in migration(plan(2, 1), plan(2, 2)).master.message
    phases = {node.id: node.phase for node in world.master.nodes if node.role is Role.PS}
    assert phases == {"ps-0": NodePhase.DRAINING, "ps-1": NodePhase.DRAINING, "ps-2": NodePhase.READY}
    assert world.master.phase is JobPhase.RESCALING
    finish(world, plan(2, 1, ps_cpu=0.5))
    assert world.master.message == ""


@pytest.mark.parametrize("name", ["ps-0", "ps-1"])
def test_a_ps_that_connects_again_amid_a_move_goes_on_with_it(name: str) -> None:
    world = migration(plan(2, 1), plan(2, 2))
    move = world.master.record.move
    world.hello(name)
    world.hear(name)
    assert not any(isinstance(order, MoveEnd | MoveCancel) for order in world.nodes[name].inbox)
    assert world.master.record.move is move
    finish(world, plan(2, 2))
    world.run_to_end()
    trained_every_row(world)


def test_without_room_for_both_groups_the_change_goes_through_a_checkpoint() -> None:
    world = World(spec(plan(1, 2, ps_cpu=1.0)), features(4000), cpu=3.0)
    world.run_until(lambda: in_place(world, plan(1, 2, ps_cpu=1.0)))
    world.do(world.master.set_target(plan(1, 1, ps_cpu=1.5), world.at_s))
    finish(world, plan(1, 1, ps_cpu=1.5))
    assert len(world.disk) == 1
    world.run_to_end()
    trained_every_row(world)


def test_a_job_that_wants_restarts_gets_them() -> None:
    world = World(spec(plan(2, 1), migration=Migration.RESTART), features(4000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.do(world.master.set_target(plan(2, 2), world.at_s))
    finish(world, plan(2, 2))
    assert len(world.disk) == 1


def test_a_ps_that_was_to_join_and_dies_is_replaced_and_the_move_begins_anew() -> None:
    world = migration(plan(2, 1), plan(2, 2))
    before = world.master.train_counts.n_sample_done
    world.kill("ps-1")
    world.check_parameters()
    finish(world, plan(2, 2))
    assert world.living(Role.PS) == ["ps-0", "ps-2"]
    assert world.master.train_counts.n_sample_done > before
    world.run_to_end()
    trained_every_row(world)


@pytest.mark.parametrize("name", ["ps-0", "ps-1"])
def test_a_ps_that_gives_and_dies_takes_parameters_and_queue_back_together(name: str) -> None:
    world = migration(plan(2, 2), plan(2, 3))
    world.kill(name)
    assert world.master.train_counts.n_sample_done == 0
    finish(world, plan(2, 3))
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


@pytest.mark.more
@pytest.mark.parametrize("name", ["ps-0", "ps-1", "ps-2", "ps-3"])
def test_a_death_while_parameters_change_owners_goes_back_to_the_last_checkpoint(name: str) -> None:
    world = migration(plan(2, 2), plan(2, 2, ps_cpu=0.5))
    to(world, Stage.SWITCHING)
    world.kill(name)
    assert world.master.stage in {Stage.ASSEMBLING, Stage.LOADING}
    assert world.master.train_counts.n_sample_done == 0
    finish(world, plan(2, 2, ps_cpu=0.5))
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def moves_of(world: World, name: str, n_before: int) -> list[MoveOut | MoveCancel]:
    """Return what a PS was ordered about moves since it had `n_before` orders."""
    return [each for each in world.nodes[name].heard[n_before:] if isinstance(each, MoveOut | MoveCancel)]


def test_a_master_that_comes_back_amid_a_move_cancels_it_where_parameters_are_sent() -> None:
    world = migration(plan(2, 1), plan(2, 2))
    n_before = len(world.nodes["ps-0"].heard)
    world.crash()
    world.run_until(lambda: moves_of(world, "ps-0", n_before))
    assert isinstance(moves_of(world, "ps-0", n_before)[0], MoveCancel)
    finish(world, plan(2, 2))


def test_a_worker_that_dies_in_the_pause_does_not_hold_it_up() -> None:
    world = to(migration(plan(2, 1), plan(2, 2)), Stage.PAUSING)
    world.kill("worker-0")
    finish(world, plan(2, 2))
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


@pytest.mark.more
@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
def test_a_newer_decision_on_the_way_is_what_comes_of_it(stage: Stage) -> None:
    world = to(migration(plan(2, 1), plan(2, 2)), stage)
    world.do(world.master.set_target(plan(2, 3), world.at_s))
    finish(world, plan(2, 3))
    assert [e.plan for e in world.told(PlanFailed) if isinstance(e, PlanFailed)] == [plan(2, 2)]
    world.run_to_end()
    trained_every_row(world)


def test_a_move_that_is_given_up_leaves_nothing_behind() -> None:
    world = migration(plan(2, 3), plan(2, 2))
    world.do(world.master.set_target(plan(2, 3), world.at_s))
    finish(world, plan(2, 3))
    for _ in range(5):
        world.round()
    for name in world.living(Role.PS):
        ps = world.ps[name].migration
        assert ps.store is not None
        assert ps.owned is not None
        assert ps.owned[ps.store.export().ids % N_BUCKET].all()
    assert world.living(Role.PS) == ["ps-0", "ps-1", "ps-2"]
    world.run_to_end()
    trained_every_row(world)


@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.PAUSING, Stage.SWITCHING])
def test_a_job_that_is_stopped_on_the_way_saves_all_that_it_learnt(stage: Stage) -> None:
    world = to(migration(plan(2, 2), plan(2, 1)), stage)
    world.do(world.master.stop("ada", "enough", world.at_s))
    world.run_to_end()
    assert world.master.message == "stopped by ada: enough"
    manifest, learnt = world.disk[1]
    assert learnt == world.learnt
    held = {}
    for path, _ in manifest.files:
        assert not set(held) & set(world.files[path].ids.tolist())
        held |= dict.fromkeys(world.files[path].ids.tolist())
    assert set(held) == {row for _, row in learnt}


def test_a_job_that_ends_on_the_way_gives_the_plan_up(words) -> None:
    world = migration(plan(2, 1), plan(2, 2))
    world.n_step = 0
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    (failed,) = world.told(PlanFailed)
    assert failed.why == words
    trained_every_row(world)


@pytest.mark.more
def test_a_move_that_comes_no_further_gives_way_to_the_plan_before() -> None:
    world = migration(plan(1, 1), plan(1, 2), n_row=60_000)
    world.n_step = 0
    before = world.at_s
    world.network.loses = lambda: True
    world.run_until(lambda: world.told(PlanFailed), 2000)
    assert world.at_s - before < 2 * liveness.PLAN_LIMIT_S
    finish(world, plan(1, 1))


def test_a_ps_that_does_not_take_over_is_replaced(words) -> None:
    world = to(migration(plan(2, 1), plan(2, 2)), Stage.SWITCHING)
    world.nodes["ps-1"].inbox.clear()
    world.nodes["ps-0"].inbox.clear()
    for _ in range(int(liveness.SWITCH_LIMIT_S) + 2):
        for name in [*world.living(Role.WORKER), *world.living(Role.PS)]:
            world.report(name)
            world.hear(name)
        world.tick(1.0)
    assert world.said("take over") == words
    finish(world, plan(2, 2))


def test_a_checkpoint_waits_for_the_move_and_the_move_for_a_checkpoint() -> None:
    world = migration(plan(2, 1), plan(2, 2), checkpoint_every_s=0.5, n_row=20_000)
    world.n_step, n_before = 0, len(world.copies)
    for _ in range(20):
        world.round()
    assert len(world.copies) == n_before
    world.n_step, world.writes_nothing = 6, False
    finish(world, plan(2, 2))
    world.run_until(lambda: len(world.copies) > n_before)


@pytest.mark.more
def test_lost_chunks_and_answers_are_sent_again_in_order() -> None:
    world = migration(plan(2, 2), plan(2, 3), n_row=20_000)
    rng = random.Random(5)
    world.network.loses = lambda: rng.random() < 0.3
    while not in_place(world, plan(2, 3)):
        world.round(2.0)
    world.check_parameters()
    world.run_to_end()
    trained_every_row(world)


N_PS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0.25, 0.5])), min_size=1, max_size=4)


def act_once(world: World, rng: random.Random) -> None:
    """Let one random thing happen; seldom a death."""
    act = rng.random()
    alive = [name for name in world.nodes if world.nodes[name].is_alive]
    name = rng.choice(alive) if alive else ""
    if act < 0.002 and name:
        world.kill(name)
    elif act < 0.006 and name and world.nodes[name].order.role is Role.PS and world.nodes[name].has_come_up:
        world.evict(name)
    elif act < 0.008:
        world.crash(n_kept=rng.choice([0, 3]))
    elif act < 0.25 and world.network.busy:
        world.deliver(rng.choice(world.network.busy))
    elif act < 0.65 and name:
        node = world.nodes[name]
        if node.train is None and node.ps_epoch < 0 and not node.outbox:
            world.hello(name)
        world.turn(name)
    elif act < 0.95 and name:
        world.hear(name)
    else:
        world.tick(rng.choice([0.0, 0.1, 0.5]))


def interleaved(seed: int, kinds: list[tuple[int, float]], loss: float, every_s: float) -> None:
    """Let anything happen while groups of PS follow each other; at each moment PS hold what was trained."""
    job = spec(plan(2, 2), checkpoint_every_s=every_s, heartbeat_timeout_s=1e6, n_epoch=2)
    world, rng = World(job, features(1200), cpu=16.0), random.Random(seed)
    world.network.loses = lambda: rng.random() < loss
    plans = [plan(2, n, ps_cpu=cpu) for n, cpu in kinds]
    for n in range(1200):
        if n % 300 == 250 and plans:
            world.do(world.master.set_target(plans.pop(), world.at_s))
        act_once(world, rng)
        if n % 7 == 0:
            world.check_parameters()
    for _ in range(3000):
        if world.master.stage is Stage.ENDED:
            break
        world.round()
        world.check_parameters()
    assert world.master.phase is JobPhase.SUCCEEDED, world.master.message
    trained_every_row(world, exactly_once=False)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(3))
def test_under_a_few_interleavings_no_update_is_lost_and_every_bucket_has_one_owner(seed: int) -> None:
    interleaved(seed, [(1 + seed, 0.5), (3 - seed, 0.25), (2, 0.25)], loss=0.15, every_s=2.0 * (seed % 2))


@pytest.mark.release
@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**9), N_PS, st.sampled_from([0.0, 0.15]), st.sampled_from([0.0, 2.0]))
def test_under_any_interleaving_no_update_is_lost_and_every_bucket_has_one_owner(
    seed: int, kinds: list[tuple[int, float]], loss: float, every_s: float
) -> None:
    interleaved(seed, kinds, loss, every_s)
