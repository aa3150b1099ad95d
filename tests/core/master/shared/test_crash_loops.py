"""The same error of a program ends the job after so many restarts, however much each worker did before."""

from __future__ import annotations

import pytest
from support.master.master_world import World, features, plan, spec

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.failures import DAY_S, ProgramError
from dlrover_nb.core.structs.wire import messages as m

ROWS = features(200_000)
ERROR = "ValueError: row {} is broken"


def fail(
    world: World, error: str = ERROR, *, place: str = "rows.py:12 in read", by_exit: bool = False
) -> None:
    """Let the newest worker train some rows, and then fail."""
    n_done = world.master.train_counts.n_sample_done
    world.run_until(lambda: world.master.train_counts.n_sample_done > n_done + 20)
    worker = world.living(Role.WORKER)[-1]
    told = error.format(n_done)
    world.nodes[worker].is_alive = False
    if by_exit:
        why, cause = f"exit code 1: {told}", ProgramError(told, place)
        world.do(world.master.on_exit(worker, why, world.at_s, error=cause))
    else:
        failed = m.NodeFailed(worker, told, retryable=True, place=place)
        world.do(world.master.on_message(worker, failed, world.at_s))


def started(limit: int = 3, **changes: object) -> World:
    world = World(spec(max_restarts_per_error=limit, **changes), ROWS)
    world.run_until(lambda: world.master.train_counts.n_sample_done > 0)
    return world


@pytest.mark.parametrize("by_exit", [False, True])
def test_the_same_error_ends_the_job_although_every_worker_did_some_work(*, by_exit: bool) -> None:
    world = started()
    for _ in range(3):
        fail(world, by_exit=by_exit)
        assert not world.master.phase.is_final
    fail(world, by_exit=by_exit)
    assert world.master.phase is JobPhase.FAILED
    told = world.master.message
    for word in (
        "the same error ended worker nodes 4 times",
        "max_restarts_per_error is 3",
        "is broken (rows.py:12 in read)",
        "on worker-0, worker-1, worker-2, worker-3;",
        "first at 1970-01-01T00:0",
        "last at 1970-01-01T00:0",
        "repair the program or its data and submit the job again",
        "%dlrover show job --logs worker-3",
    ):
        assert word in told


def test_errors_of_other_kinds_or_places_are_counted_apart() -> None:
    world = started(1)
    for n in range(6):
        fail(world, f"{'ABCDEF'[n]}Error: row {{}}", place=f"rows.py:{n}")
    assert not world.master.phase.is_final
    fail(world, "AError: row {}", place="rows.py:0")
    assert world.master.phase is JobPhase.FAILED
    assert "on worker-0, worker-6;" in world.master.message


def test_a_day_later_an_error_is_counted_anew() -> None:
    world = started(1)
    for _ in range(4):
        fail(world)
        world.at_s += DAY_S + 3600
    assert not world.master.phase.is_final


def test_kills_evictions_and_lack_of_memory_are_no_errors_of_the_program() -> None:
    world = started(0)
    for n in range(12):
        n_done = world.master.train_counts.n_sample_done
        world.run_until(lambda n_done=n_done: world.master.train_counts.n_sample_done > n_done + 20)
        worker = world.living(Role.WORKER)[-1]
        if n % 3:
            world.kill(worker, ["", "killed by signal 9 (SIGKILL)", "preempted"][n % 3])
        else:
            world.nodes[worker].is_alive = False
            failed = m.NodeFailed(worker, "MemoryError: ", retryable=True, out_of_memory=True)
            world.do(world.master.on_message(worker, failed, world.at_s))
    assert not world.master.phase.is_final
    assert not world.master.record.errors


def test_all_nodes_of_a_large_role_may_meet_one_cause_at_once() -> None:
    world = World(spec(plan(4, 1), max_restarts_per_error=1), ROWS)
    world.run_until(lambda: world.master.train_counts.n_sample_done > 100)
    for worker in world.living(Role.WORKER):
        world.nodes[worker].is_alive = False
        failed = m.NodeFailed(worker, "OSError: connection reset", retryable=True)
        world.do(world.master.on_message(worker, failed, world.at_s))
    assert not world.master.phase.is_final
    fail(world, "OSError: connection reset", place="")
    assert world.master.phase is JobPhase.FAILED


def test_the_count_survives_a_restart_of_the_master() -> None:
    world = started()
    for _ in range(3):
        fail(world)
        world.crash()
    fail(world)
    assert world.master.phase is JobPhase.FAILED
    assert "4 times" in world.master.message


def test_an_error_under_a_new_plan_fails_the_plan_first() -> None:
    world = started(0)
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    worker = world.living(Role.WORKER)[0]
    world.nodes[worker].is_alive = False
    failed = m.NodeFailed(worker, "ValueError: x", retryable=True)
    world.do(world.master.on_message(worker, failed, world.at_s))
    assert world.master.target == plan()
    fail(world, "ValueError: x", place="")
    assert world.master.phase is JobPhase.FAILED
