"""Laws of the job master under any order of deaths, late words, changes of mind and time."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.master.any_order import PLANS, acquit, check, disturb, play_out
from support.master.master_world import World, features, plan, spec

from dlrover_nb.core.master.own.nodes.worker_set import worker_set_change
from dlrover_nb.core.master.own.servers.bucket_owners import assign_buckets
from dlrover_nb.core.master.own.state.roster import Roster
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.shared.orders import StartNode
from dlrover_nb.core.master.shared.restarts import RestartBudget
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits, n_more, plan_needs
from dlrover_nb.core.structs.plan.resources import Role, RolePlan
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_buckets_are_balanced_and_no_more_of_them_move_than_must(counts: list[int]) -> None:
    owner: tuple[int, ...] = ()
    for n_ps in counts:
        before, owner = owner, assign_buckets(owner, n_ps)
        held = [owner.count(ps) for ps in range(n_ps)]
        assert len(owner) == N_BUCKET
        assert max(held) - min(held) <= 1
        if before:
            kept = sorted((before.count(ps) for ps in range(n_ps)), reverse=True)
            quota = sorted(held, reverse=True)
            n_must_move = N_BUCKET - sum(min(a, b) for a, b in zip(kept, quota, strict=True))
            assert sum(a != b for a, b in zip(before, owner, strict=True)) == n_must_move


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from([0.25, 0.5, 1.0]), st.integers(64, 900)), max_size=8))
def test_what_fits_fits_on_one_machine_at_least_by_its_sums(needs: list[tuple[float, int]]) -> None:
    two, one = Capacity((NodeShape(2.0, 1024, 2),)), Capacity((NodeShape(4.0, 2048),))
    if fits(two, needs):
        assert fits(one, needs)
        n = n_more(two, needs, (0.5, 256), at_most=5)
        assert fits(two, [*needs, *[(0.5, 256)] * n])
        assert n == 5 or not fits(two, [*needs, *[(0.5, 256)] * (n + 1)])


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=6),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_a_crew_step_never_overshoots_and_never_sends_the_last_worker_away_with_room(
    kinds: list[tuple[bool, bool, bool]], count: int, room: int
) -> None:
    want, other, roster = RolePlan(count, 0.5, 512), RolePlan(count, 1.0, 512), Roster()
    for fitting, trains, drains in kinds:
        node = roster.add(Role.WORKER, want if fitting else other, 0.0)
        node.is_up, node.is_training, node.is_draining = trains, trains, trains and drains
    change = worker_set_change(roster.workers, want, room)
    staying = [w for w in roster.workers if not w.is_draining and w not in change.leave]
    fitting_left = [w for w in staying if w.has_shape(want)]
    assert len(fitting_left) + change.n_start <= max(count, 0)
    assert change.n_start <= room
    assert not any(w.is_draining for w in change.leave)
    if room:
        assert staying or change.n_start
    assert staying or change.n_start or room == 0


def test_restarts_are_free_first_then_slower_then_over_and_forgotten_after_the_window() -> None:
    budget = RestartBudget()
    waits = []
    for _ in range(7):
        assert not budget.exhausted(100.0, 1)
        budget.record(100.0, has_worked=True, n_sample_done=0)
        waits.append(budget.not_before_s(100.0, 1) - 100.0)
    assert waits == [0, 1, 2, 4, 8, 15, 15]
    assert budget.exhausted(100.0, 1)
    assert not budget.exhausted(401.0, 1)
    assert budget.not_before_s(401.0, 1) == 401.0


def test_losses_with_a_known_reason_are_forgiven_as_long_as_the_job_comes_further() -> None:
    budget = RestartBudget()
    for n in range(5):
        for _ in range(3):
            budget.record(100.0, has_worked=False, n_sample_done=n)
        budget.forgive(3, n_sample_done=n)
    assert budget.not_before_s(100.0, 1) == 100.0
    for _ in range(2):
        for _ in range(3):
            budget.record(100.0, has_worked=False, n_sample_done=4)
        budget.forgive(3, n_sample_done=4)
    budget.record(100.0, has_worked=False, n_sample_done=4)
    assert budget.exhausted(100.0, 1)


def test_losses_between_which_the_job_comes_further_are_bad_luck_however_many() -> None:
    budget = RestartBudget()
    for n in range(100):
        budget.record(float(n), has_worked=True, n_sample_done=n + 1)
        assert budget.not_before_s(float(n), 1) == n
    for n in range(7):  # the same point is never passed again
        assert not budget.exhausted(100.0, 1)
        budget.record(100.0, has_worked=True, n_sample_done=100 - n)
    assert budget.exhausted(100.0, 1)


def test_nodes_that_never_work_are_counted_though_others_train() -> None:
    budget = RestartBudget()
    for n in range(7):
        assert not budget.exhausted(100.0, 1)
        budget.record(100.0, has_worked=False, n_sample_done=1000 * n)
    assert budget.exhausted(100.0, 1)


@pytest.mark.more
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**9), PLANS, st.lists(PLANS, max_size=4), st.sampled_from([4.6, 16.0]))
# a worker paused with a void shard while a grant was on its way to it: both must go
@example(9617, plan(1, 1, ps_cpu=0.5), [plan(1, 1), plan(1, 1, ps_cpu=0.5)], 4.6)
# a worker of the plan before in the room of a PS, without which no worker trains that could replace it
@example(0, plan(1, 2), [plan(3, 3, worker_cpu=1.0, ps_cpu=0.5), plan(3, 1, worker_cpu=1.0)], 4.6)
def test_any_interleaving_keeps_the_invariants_and_ends_with_every_row_trained(
    seed: int, first: object, plans: list[object], cpu: float
) -> None:
    job = spec(first, n_epoch=2, checkpoint_every_s=3.0, heartbeat_timeout_s=1e6)  # type: ignore[arg-type]
    world = World(job, features(395), cpu=cpu)
    wanted, rng = [first], random.Random(seed)
    for _ in range(250):
        disturb(world, rng, wanted, plans)
        check(world, wanted)
    for _ in range(3000):
        if world.master.stage is Stage.ENDED:
            break
        if world.master.phase is JobPhase.TRAINING and world.master.running is not None:
            assert len(world.living(Role.WORKER)) == world.master.target.worker.count
            assert len(world.living(Role.PS)) == world.master.target.ps.count
        acquit(world)
        world.round()
        check(world, wanted)
    counts = world.master.train_counts
    assert world.master.phase in {JobPhase.SUCCEEDED, JobPhase.FAILED}
    if world.master.phase is JobPhase.FAILED:
        assert "keep failing" in world.master.message
        return
    assert counts.done == math.ceil(395 / 40) * 2
    assert counts.n_sample_done == len(world.learnt) == 790


@pytest.mark.more
@settings(deadline=None, max_examples=40)
@given(PLANS, PLANS, st.integers(0, 60))
def test_when_nothing_disturbs_the_observed_becomes_the_target(
    first: object, second: object, n_round: int
) -> None:
    world = World(spec(first), features(50_000), cpu=4.6)  # type: ignore[arg-type]
    assert fits(world.capacity, plan_needs(second))  # type: ignore[arg-type]
    for _ in range(n_round):
        world.round()
    world.do(world.master.set_target(second, world.at_s))  # type: ignore[arg-type]
    world.run_until(lambda: world.master.running == second, 200)
    assert not [o for o in world.master.tick(world.at_s) if isinstance(o, StartNode)]


@pytest.mark.more
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**9), PLANS, st.lists(PLANS, max_size=4), st.sampled_from([4.6, 16.0]))
def test_a_master_killed_at_any_moment_comes_back_and_every_row_is_trained(
    seed: int, first: object, plans: list[object], cpu: float
) -> None:
    job = spec(first, n_epoch=2, checkpoint_every_s=3.0, heartbeat_timeout_s=30.0)  # type: ignore[arg-type]
    world = World(job, features(395), cpu=cpu)
    wanted, rng = [first], random.Random(seed)
    for _ in range(250):
        disturb(world, rng, wanted, plans)
        if rng.random() < 0.02 and world.master.stage is not Stage.ENDED:
            before = world.master.train_counts
            dead = [n.id for n in world.nodes.values() if n.is_alive and rng.random() < 0.1]
            world.crash(n_kept=rng.randrange(3), dead=dead)
            assert dead or world.master.train_counts == before
        check(world, wanted)
    if not play_out(world, wanted):
        return
    counts = world.master.train_counts
    assert counts.done == math.ceil(395 / 40) * 2
    assert counts.n_sample_done == len(world.learnt) == 790
