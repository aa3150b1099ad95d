"""What the job master does about what is stuck, damaged, killed again and again, or without room."""

from __future__ import annotations

import pytest
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import Lease, Purpose
from dlrover_nb.core.structs.views.events import PhaseChanged, PlanFailed
from dlrover_nb.core.structs.wire import messages as m


def quiet(world: World, seconds: int, *silenced: str) -> None:
    """Let time pass with heartbeats of all, while the messages of `silenced` nodes are lost."""
    for _ in range(seconds):
        for name in [n.id for n in world._living(Role.WORKER) + world._living(Role.PS)]:
            if name in silenced:
                world.nodes[name].inbox.clear()
            else:
                world.turn(name)
            world.report(name)
            while world.hear(name):
                pass
        world.tick(1.0)


def test_a_worker_that_does_not_pause_is_replaced_so_that_others_go_on(words) -> None:
    world = World(spec(plan(2, 1)), features(50_000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.do(world.master.set_target(plan(2, 2), world.at_s))
    world.run_until(lambda: world.master.stage is Stage.PAUSING)
    quiet(world, 46 + 21 + 46 + 21 + 62, "worker-1")
    assert "worker-1" not in world.living(Role.WORKER)
    assert world.master.stage is not Stage.PAUSING
    assert world.said("worker-1") == words


def test_a_worker_that_does_not_finish_its_shard_is_ended_after_a_while() -> None:
    world = World(spec(plan(2, 1)), features(50_000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.do(world.master.set_target(plan(1, 1), world.at_s))
    quiet(world, 62, "worker-1")
    assert world.living(Role.WORKER) == ["worker-0"]
    assert world.master.running == plan(1, 1)


def test_a_ps_that_never_saves_costs_the_checkpoint_and_not_the_job(words) -> None:
    world = World(spec(checkpoint_every_s=1.0), features(50_000))
    world.run_until(lambda: world.master.stage is Stage.PAUSING)
    quiet(world, 302, "ps-0")
    assert world.said("checkpoint 1") == words
    assert world.master.stage is not Stage.ENDED
    assert world.living(Role.PS) == ["ps-0"]


def test_a_ps_that_never_loads_is_replaced() -> None:
    world = World(spec(plan(1, 1)), features(50_000))
    world.run_until(lambda: in_place(world, plan()))
    world.kill("ps-0")
    world.hello("ps-1")
    world.hear("ps-1")
    assert world.master.stage is Stage.LOADING
    quiet(world, 302, "ps-1")
    assert world.living(Role.PS) == ["ps-2"]


def test_a_worker_that_paused_with_a_void_shard_is_told_to_drop_it() -> None:
    world = World(spec(plan(1, 1)), features(4000))
    world.run_until(lambda: in_place(world, plan()))
    world.do(world.master.set_target(plan(1, 2), world.at_s))
    world.run_until(lambda: world.master.stage is Stage.PAUSING)
    (worker,) = world._living(Role.WORKER)
    void = m.Paused("worker-0", 1, Lease(Purpose.TRAIN, 1, 77), 3, world.master.record.n_pause)
    worker.inbox.clear()
    worker.is_paused = True
    world.do(world.master.on_message("worker-0", void, world.at_s))
    world.run_until(lambda: world.master.stage is Stage.SERVING)
    trains = [message for message in [*worker.inbox, worker.train] if isinstance(message, m.Train)]
    assert any(train.drop_shard for train in trains)


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it_and_then_to_the_beginning(words) -> None:
    world = World(spec(plan(2, 1), checkpoint_every_s=1.0), features(8000))
    world.has_memory = False
    world.run_until(lambda: len(world.disk) == 2 and world.master.stage is Stage.SERVING)
    old, newest = sorted(world.disk)
    world.damaged = {newest}
    world.kill("ps-0")
    world.run_until(lambda: world.master.stage is Stage.SERVING)
    assert f"from checkpoint {old}" in world.said("damaged")
    assert world.said("continuing from") == words
    assert newest in world.dropped
    world.damaged = set(range(1000))
    world.kill("ps-1")
    world.run_until(lambda: world.master.stage is Stage.SERVING)
    assert world.said("continuing from") == words
    world.damaged = set()
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    counts = world.master.train_counts
    assert counts.n_sample_done == 8000
    assert counts.done == 200
    assert len(world.learnt) == 8000


def waits(world: World, seconds: int, *names: str, why: str = "") -> None:
    """Let time pass for a job whose nodes `names` find no place."""
    for _ in range(seconds):
        for name in world.living(Role.WORKER) + world.living(Role.PS):
            if name not in names:
                world.turn(name)
                world.report(name)
                while world.hear(name):
                    pass
        world.tick(1.0)
        world.do(world.master.set_waiting(dict.fromkeys(names, why), world.at_s))


def test_a_first_plan_without_room_waits_as_long_as_it_takes_and_says_for_what() -> None:
    world = World(spec())
    waits(world, 1000, "worker-0", "ps-0")
    assert world.master.phase is JobPhase.STARTING
    needs = "waiting for room: needs 0.75 cores and 1024 MiB for ps-0 and worker-0"
    assert needs in world.master.message
    assert str(world.told(PhaseChanged)).count(needs) == 1
    world.do(world.master.set_waiting({}, world.at_s))
    assert world.master.message == "room was found"
    world.run_to_end()
    trained_every_row(world)


def test_a_change_of_plan_without_room_gives_way_to_the_plan_before(words) -> None:
    world = World(spec(), features(80_000))
    world.run_until(lambda: in_place(world, plan()))
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    waits(world, 130, "worker-1")
    (failed,) = world.told(PlanFailed)
    assert isinstance(failed, PlanFailed)
    assert failed.why == words
    assert world.master.running == plan()


def test_a_lost_worker_without_room_for_its_successor_waits_while_others_train() -> None:
    world = World(spec(plan(2, 1)), features(80_000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.kill("worker-0")
    waits(world, 400, "worker-2")
    assert world.living(Role.WORKER) == ["worker-1", "worker-2"]
    assert world.master.phase is JobPhase.TRAINING
    assert "waiting for room" in world.master.message


def test_the_clusters_own_reason_is_told_with_the_nodes_that_it_holds_up(words) -> None:
    world, why = World(spec()), "0/2 nodes are available: 2 Insufficient cpu."
    waits(world, 200, "worker-0", "ps-0", why=why)
    assert world.master.phase is JobPhase.STARTING
    assert world.master.message == f"waiting: {why} (ps-0, worker-0)"
    assert [node.state for node in world.master.nodes] == ["waiting", "waiting"]
    world.do(world.master.set_waiting({"ps-0": why}, world.at_s))
    assert {node.id: node.waits_for for node in world.master.nodes} == {"ps-0": why, "worker-0": ""}
    world.do(world.master.set_waiting({}, world.at_s))
    assert world.master.message == words
    world.run_to_end()
    trained_every_row(world)


def test_after_an_undone_change_nothing_that_nodes_waited_for_is_said_to_be_there(words) -> None:
    world, why = World(spec(), features(80_000)), "exceeded quota: compute"
    world.run_until(lambda: in_place(world, plan()))
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    waits(world, 5, "worker-1", why=why)
    assert why in world.master.message
    world.do(world.master.set_target(plan(), world.at_s))
    world.do(world.master.set_waiting({}, world.at_s))
    assert world.master.message == words
    assert "available" not in str(world.told(PhaseChanged))


def test_a_node_that_never_began_is_not_said_to_be_lost(words) -> None:
    world = World(spec(plan(2, 1)), features(80_000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.kill("worker-1")
    assert "worker-1 was lost" in str(world.told(PhaseChanged))
    world.tick(1.0)
    (new,) = [n.id for n in world.master.nodes if not world.nodes[n.id].has_come_up]
    world.nodes[new].is_alive = False
    world.do(world.master.on_exit(new, "it could not start within 15 min", world.at_s))
    assert world.said("did not start") == words


def test_a_change_of_plan_that_waited_in_vain_says_for_what(words) -> None:
    world = World(spec(), features(80_000))
    world.run_until(lambda: in_place(world, plan()))
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    waits(world, 130, "worker-1", why="exceeded quota: small")
    (failed,) = world.told(PlanFailed)
    assert isinstance(failed, PlanFailed)
    assert failed.why == words
    assert world.master.running == plan()


def test_a_change_of_plan_that_no_step_made_way_for_says_so(words) -> None:
    size = spec().batch_size
    fixed = spec(plan(2, 1), sync=Sync.BSP, deterministic=True, global_batch=2 * size)
    world = World(fixed, features(3000))
    ledger, _ = world.master.ledgers
    world.run_until(lambda: in_place(world, plan(2, 1)) and ledger.leases("worker-1"))
    quiet(world, 10, "worker-1")
    assert ledger.done_in_step
    world.do(world.master.set_target(plan(2, 2), world.at_s))
    world.hello("ps-1")
    quiet(world, 130, "worker-1")
    assert [e.why for e in world.told(PlanFailed) if isinstance(e, PlanFailed)] == [words]
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED


@pytest.mark.more
def test_many_deaths_between_which_the_job_advances_are_no_failure() -> None:
    world = World(spec(plan(2, 1), checkpoint_every_s=0.5), features(8000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    for n in range(30):
        best = world.master.train_counts.n_sample_done
        world.kill(world.living(Role.PS if n % 3 else Role.WORKER)[0])
        world.run_until(lambda best=best: world.master.train_counts.n_sample_done > best)  # type: ignore[misc]
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert len(world.learnt) == world.master.train_counts.n_sample_done == 8000
