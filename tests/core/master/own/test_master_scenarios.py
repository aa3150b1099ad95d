"""What the job master does in the situations that a job meets, told one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.master.master_world import World, features, in_place, plan, spec, trained_every_row

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.shared.orders import Emit, Send
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.kubernetes import STATE
from dlrover_nb.core.structs.job.spec_choices import Migration, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.checkpoints import PeerCopies
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.training.shards import BatchChoice, Lease, Purpose
from dlrover_nb.core.structs.views.events import (
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
)
from dlrover_nb.core.structs.wire import messages as m

if TYPE_CHECKING:
    from dlrover_nb.core.models.score_sums import ScoreSums
    from dlrover_nb.core.structs.views.snapshot import Evaluation


def test_a_job_trains_all_rows_evaluates_and_succeeds() -> None:
    world = World(spec(plan(2, 2), n_epoch=2))
    world.run_to_end()
    trained_every_row(world)
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.master.evaluation is not None
    assert (world.master.evaluation.auc, world.master.evaluation.n_sample) == (0.5, 45)
    assert world.master.evaluation_counts.done == 2
    assert not world.living(Role.WORKER) + world.living(Role.PS)
    phases = [event.phase for event in world.told(PhaseChanged) if isinstance(event, PhaseChanged)]
    assert [*dict.fromkeys(phases)] == [
        JobPhase.STARTING,
        JobPhase.TRAINING,
        JobPhase.EVALUATING,
        JobPhase.SUCCEEDED,
    ]
    assert len(world.disk) == 1  # the final checkpoint
    assert world.told(PlanApplied) == [PlanApplied(world.told(PlanApplied)[0].at_s, plan(2, 2), 0.0)]


def test_no_held_out_rows_is_no_failure() -> None:
    world = World(spec(), features(n_eval=0))
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert "no held-out rows" in world.master.message
    assert world.master.evaluation is None


def test_a_killed_worker_is_replaced_under_a_new_name_and_nothing_is_lost(words) -> None:
    world = World(spec(plan(2, 1)))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 100)
    world.kill("worker-0")
    assert world.master.running is None
    assert world.living(Role.WORKER) == ["worker-1", "worker-2"]
    world.run_to_end()
    trained_every_row(world, exactly_once=False)
    assert world.master.train_counts.returned >= 1
    assert world.said("worker-0") == words


def test_a_silent_worker_counts_as_dead_and_its_late_words_are_answered_with_stop() -> None:
    world = World(spec(plan(2, 1), heartbeat_timeout_s=5.0), features(4000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    for _ in range(7):
        world.at_s += 1.0
        for name in ("worker-1", "ps-0"):
            world.report(name)
            world.hear(name)
        world.tick(0)
    assert world.living(Role.WORKER) == ["worker-1", "worker-2"]
    late = m.ShardFinished("worker-0", Lease(Purpose.TRAIN, 0, 1))
    assert world.master.on_message("worker-0", late, world.at_s) == (Send("worker-0", m.Stop()),)


def test_added_workers_join_without_a_pause_and_removed_ones_drain_newest_first() -> None:
    world = World(spec(plan(1, 1)), features(20_000))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    world.do(world.master.set_target(plan(3, 1), world.at_s))
    world.run_until(lambda: in_place(world, plan(3, 1)))
    assert world.told(PlanApplied)[-1].pause_s == 0.0
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    assert world.living(Role.WORKER) == ["worker-0", "worker-1"]
    assert world.master.train_counts.returned == 0  # a drained worker finished its shard
    assert not world.disk


def test_another_cpu_per_worker_starts_replacements_before_the_old_ones_go() -> None:
    world = World(spec(plan(2, 1)), features(20_000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    new = plan(2, 1, worker_cpu=1.0)
    world.do(world.master.set_target(new, world.at_s))
    n_worker = []
    while not in_place(world, new):
        world.round()
        n_worker.append(world.n_training)
    assert min(n_worker) == 2
    assert world.living(Role.WORKER) == ["worker-2", "worker-3"]


def test_without_room_a_worker_is_drained_before_its_replacement_starts() -> None:
    world = World(spec(plan(1, 1, worker_cpu=1.5)), features(20_000), cpu=2.0)
    world.run_until(lambda: in_place(world, plan(1, 1, worker_cpu=1.5)))
    new = plan(1, 1, worker_cpu=1.0)
    world.do(world.master.set_target(new, world.at_s))
    assert world.living(Role.WORKER) == ["worker-0"]
    world.run_until(lambda: in_place(world, new))
    assert world.living(Role.WORKER) == ["worker-1"]
    assert world.told(PlanApplied)[-1].pause_s > 0


@pytest.mark.more
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (plan(2, 1), plan(2, 2)),
        (plan(2, 3), plan(2, 1)),
        (plan(2, 1), plan(1, 2, ps_cpu=0.5)),
        (plan(1, 2), plan(2, 1, worker_cpu=1.0, ps_cpu=0.75)),
    ],
)
@pytest.mark.parametrize("cpu", [2.8, 8.0])
def test_a_change_of_ps_loses_no_row_and_trains_none_twice(before: object, after: object, cpu: float) -> None:
    world = World(spec(before), features(4000), cpu=cpu)  # type: ignore[arg-type]
    world.run_until(lambda: in_place(world, before))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 300)
    world.do(world.master.set_target(after, world.at_s))  # type: ignore[arg-type]
    world.run_until(lambda: in_place(world, after))
    assert world.told(PlanApplied)[-1].pause_s > 0
    assert not world.told(PlanFailed)
    world.run_to_end()
    trained_every_row(world)


def test_ps_that_stay_keep_their_process_and_new_ones_are_up_before_the_pause() -> None:
    world = World(spec(plan(1, 1)), features(20_000))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    world.do(world.master.set_target(plan(1, 2), world.at_s))
    assert world.master.stage is Stage.SERVING
    assert world.living(Role.PS) == ["ps-0", "ps-1"]
    world.run_until(lambda: in_place(world, plan(1, 2)))
    assert world.living(Role.PS) == ["ps-0", "ps-1"]


def test_a_lost_ps_takes_parameters_and_queue_back_to_the_last_checkpoint() -> None:
    world = World(spec(plan(2, 1), checkpoint_every_s=2.0), features(4000))
    world.run_until(lambda: len(world.disk) >= 1)
    world.run_until(lambda: world.master.stage is Stage.SERVING)
    for _ in range(12):
        world.round()
    manifest = world.disk[max(world.disk)][0]
    done_at_checkpoint = world.disk[manifest.number][1]
    world.kill("ps-0")
    assert world.master.train_counts.n_sample_done == len(done_at_checkpoint)
    assert f"continuing from checkpoint {manifest.number}" in world.master.message
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world, exactly_once=False)


def test_after_the_loss_of_a_ps_workers_are_told_to_drop_what_they_hold() -> None:
    world = World(spec(plan(2, 1)), features(4000))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 100)
    world.kill("ps-0")
    world.hello("ps-1")
    world.hear("ps-1")
    world.turn("ps-1")
    world.hear("ps-1")
    for worker in world._living(Role.WORKER):
        (train,) = [message for message in worker.inbox if isinstance(message, m.Train)]
        assert (train.drop_shard, train.ps_epoch) == (True, 2)


def test_a_question_that_crossed_a_grant_gets_no_second_shard_but_the_same_one_if_it_was_lost() -> None:
    world = World(spec(), features(4000))
    world.run_until(lambda: world.master.train_counts.doing == 1)
    (lease,) = world.master.ledgers[0].leases("worker-0")
    assert not world.master.on_message("worker-0", m.ShardAsked("worker-0"), world.at_s + 1)
    orders = world.master.on_message("worker-0", m.ShardAsked("worker-0"), world.at_s + 6)
    (grant,) = [order.message for order in orders if isinstance(order, Send)]
    assert isinstance(grant, m.Granted)
    assert grant.shard.lease == lease
    assert (world.master.train_counts.doing, world.master.train_counts.returned) == (1, 0)


def test_a_worker_may_hold_the_next_shard_but_not_a_third_and_none_of_the_last() -> None:
    world = World(spec(), features(4000))
    world.run_until(lambda: world.master.train_counts.doing == 1)
    for n_held in (1, 2, 2):
        assert world.master.train_counts.doing == n_held
        held = world.master.ledgers[0].leases("worker-0")
        world.master.on_message("worker-0", m.ShardAsked("worker-0", held), world.at_s)
    small = World(spec(plan(2, 1)), features(90))  # 3 shards of 40 rows for 2 workers
    small.run_until(lambda: small.master.train_counts.doing == 2)
    held = small.master.ledgers[0].leases("worker-0")
    small.master.on_message("worker-0", m.ShardAsked("worker-0", held), small.at_s)
    assert small.master.train_counts.doing == 2


def orders_of(orders: object, kind: type) -> list[tuple[str, object]]:
    sent = [order for order in orders if isinstance(order, Send)]  # type: ignore[attr-defined]
    return [(order.node, order.message) for order in sent if isinstance(order.message, kind)]


@pytest.mark.parametrize("sync", [Sync.BSP, Sync.SSP])
def test_workers_in_step_do_not_wait_for_one_that_is_lost(sync: Sync) -> None:
    world = World(spec(plan(2, 2), sync=sync), features(4000))
    world.run_until(lambda: in_place(world, plan(2, 2)))
    orders = world.master.on_exit("worker-0", "exit code -9", world.at_s)
    assert orders_of(orders, m.Forget) == [(ps, m.Forget("worker-0")) for ps in ("ps-0", "ps-1")]


def test_a_lost_worker_is_forgotten_even_if_the_coordinator_did_not_hear_of_it_at_first() -> None:
    world = World(spec(plan(2, 1), sync=Sync.BSP), features(4000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    sample = NodeSample("ps-0", Role.PS, world.at_s, 1.0, 0, 0, 0.0, TimeSplit(), 0.0, 100.0)
    report = m.Report(sample, members=("worker-0", "worker-1", "worker-9"))
    orders = world.master.on_message("ps-0", report, world.at_s)
    assert orders_of(orders, m.Forget) == [("ps-0", m.Forget("worker-9"))]


def test_batch_sizes_are_told_to_the_coordinator_and_again_to_its_successor() -> None:
    world = World(spec(plan(2, 1), sync=Sync.BSP), features(4000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    sizes = m.Adjust((("worker-0", 5), ("worker-1", 15)))
    orders = world.master.choose(BatchChoice((("worker-1", 15), ("worker-0", 5)), "ada"), world.at_s)
    assert orders_of(orders, m.Adjust) == [("ps-0", sizes)]
    world.do(world.master.on_exit("ps-0", "exit code -9", world.at_s))
    world.run_until(lambda: any(sizes in node.heard for node in world.nodes.values() if node.id != "ps-0"))


def test_batch_sizes_of_a_deterministic_job_are_refused(error_words) -> None:
    size = spec().batch_size
    world = World(spec(plan(2, 1), sync=Sync.BSP, deterministic=True, global_batch=2 * size), features(4000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    with error_words(InvalidValueError):
        world.master.choose(BatchChoice((("worker-1", 15),), "ada"), world.at_s)


def test_asynchronous_workers_are_told_their_batch_sizes_themselves() -> None:
    world = World(spec(plan(2, 1)), features(4000))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    orders = world.master.choose(BatchChoice((("worker-1", 15),), "ada"), world.at_s)
    assert orders_of(orders, m.Adjust) == [("worker-1", m.Adjust((("worker-1", 15),)))]
    for wrong in ((), (("worker-9", 4),), (("worker-1", 0),)):
        with pytest.raises(InvalidValueError):
            world.master.choose(BatchChoice(wrong, "ada"), world.at_s)


def test_only_the_shard_that_was_lost_on_the_way_is_sent_again() -> None:
    world = World(spec(), features(4000))
    world.run_until(lambda: world.master.train_counts.doing == 1)
    ledger, _ = world.master.ledgers
    first = ledger.leases("worker-0")
    world.master.on_message("worker-0", m.ShardAsked("worker-0", first), world.at_s)
    assert len(ledger.leases("worker-0")) == 2
    both = ledger.leases("worker-0")
    orders = world.master.on_message("worker-0", m.ShardAsked("worker-0", first), world.at_s + 6)
    ((_, grant),) = orders_of(orders, m.Granted)
    assert isinstance(grant, m.Granted)
    assert {*first, grant.shard.lease} == set(both)
    assert ledger.leases("worker-0") == both


def test_a_ps_lost_before_the_first_checkpoint_sends_the_job_back_to_its_beginning() -> None:
    world = World(spec(plan(2, 2)))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 100)
    world.kill("ps-1")
    assert world.master.train_counts.n_sample_done == 0
    world.run_to_end()
    trained_every_row(world, exactly_once=False)


def test_only_the_last_two_checkpoints_are_kept() -> None:
    world = World(spec(checkpoint_every_s=0.5), features(4000))
    world.run_until(lambda: len(world.dropped) >= 3)
    assert len(world.disk) == 2
    assert world.dropped == sorted(world.dropped)
    assert max(world.dropped) < min(world.disk)


@pytest.mark.parametrize("where", ["fails_to_write", "fails_to_save"])
def test_a_checkpoint_that_cannot_be_written_is_noted_and_training_goes_on(where: str) -> None:
    world = World(spec(checkpoint_every_s=2.0))
    setattr(world, where, "No space left on device")
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    trained_every_row(world)
    notes = [e.message for e in world.told(PhaseChanged) if isinstance(e, PhaseChanged)]
    assert any("could not be written" in note and "No space left on device" in note for note in notes)


def test_a_change_of_ps_that_cannot_be_saved_fails_the_plan_and_keeps_the_job() -> None:
    world = World(spec(plan(1, 1), migration=Migration.RESTART), features(4000))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    world.fails_to_write = "No space left on device"
    world.do(world.master.set_target(plan(1, 2), world.at_s))
    world.run_until(lambda: world.told(PlanFailed) and in_place(world, plan(1, 1)))
    world.run_to_end()
    trained_every_row(world)


class InPods(World):
    folder = f"{STATE}/job-0a1b2c3d"


@pytest.mark.parametrize("changes", [{"peer_copies": PeerCopies.NEVER}, {"checkpoint_url": "s3://bucket"}])
def test_a_change_of_ps_through_files_is_refused_where_those_go_with_their_pods(changes) -> None:
    world = InPods(spec(plan(1, 1), migration=Migration.RESTART, **changes), features(4000))
    world.run_until(lambda: in_place(world, plan(1, 1)))
    world.do(world.master.set_target(plan(1, 2), world.at_s))
    if "checkpoint_url" in changes:
        world.run_until(lambda: in_place(world, plan(1, 2)))
        assert not world.told(PlanFailed)
    else:
        (failed,) = world.told(PlanFailed)
        assert "set checkpoint_url" in failed.why
        assert world.master.target == plan(1, 1)
    world.run_to_end()
    trained_every_row(world)


@pytest.mark.parametrize(("changes", "n"), [({}, 0), ({"checkpoint_url": "s3://bucket"}, 1)])
def test_training_does_not_stand_still_for_checkpoints_that_go_with_their_pods(changes, n) -> None:
    world = InPods(spec(plan(1, 1), checkpoint_every_s=1.0, **changes), features(1000))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 700)
    assert min(world.master.record.n_checkpoint, 1) == n


def test_a_program_that_crashes_each_time_fails_the_job_with_its_last_words() -> None:
    world = World(spec(), features(4000))
    world.run_until(lambda: in_place(world, plan()))
    for _ in range(1000):
        if world.master.stage is Stage.ENDED:
            break
        for name in world.living(Role.WORKER):
            world.kill(name, "exit code 1: ZeroDivisionError")
        world.tick(0.5)
    assert world.master.phase is JobPhase.FAILED
    assert "ZeroDivisionError" in world.master.message
    assert len(world.starts) < 15


def test_a_mistake_that_a_new_node_would_repeat_fails_the_job_at_once(words) -> None:
    world = World(spec(plan(2, 1)))
    world.hello("worker-0")
    world.hear("worker-0")
    failed = m.NodeFailed("worker-0", "column 'age' is not in the file", retryable=False)
    world.do(world.master.on_message("worker-0", failed, world.at_s))
    assert world.master.phase is JobPhase.FAILED
    assert world.master.message == words
    assert not world.living(Role.WORKER) + world.living(Role.PS)
    assert not world.master.tick(1.0)


def test_a_plan_whose_nodes_do_not_come_up_gives_way_to_the_plan_before() -> None:
    world = World(spec(), features(50_000))
    world.run_until(lambda: in_place(world, plan()))
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    for _ in range(130):
        for name in ("worker-0", "ps-0"):
            world.turn(name)
            world.report(name)
            while world.hear(name):
                pass
        world.tick(1.0)
    failed = world.told(PlanFailed)
    assert [event.plan for event in failed if isinstance(event, PlanFailed)] == [plan(2, 1)]
    assert world.master.target == plan()
    assert world.living(Role.WORKER) == ["worker-0"]
    assert world.master.running == plan()


def test_a_first_plan_that_never_comes_up_fails_the_job() -> None:
    world = World(spec())
    for _ in range(130):
        world.tick(1.0)
    assert world.master.phase is JobPhase.FAILED
    assert "did not start" in world.master.message


def test_stop_saves_first_and_then_ends_everything() -> None:
    world = World(spec(plan(2, 1)), features(4000))
    world.run_until(lambda: world.master.train_counts.n_sample_done > 300)
    world.do(world.master.stop("ada", "enough", world.at_s))
    world.run_to_end()
    assert world.master.phase is JobPhase.STOPPED
    assert world.master.message == "stopped by ada: enough"
    manifest, learnt = world.disk[1]
    assert len(learnt) == len(world.learnt) == world.master.train_counts.n_sample_done
    assert manifest.ledger == world.master.ledgers[0].checkpoint()


def test_stop_before_anything_is_up_ends_at_once() -> None:
    world = World(spec())
    world.do(world.master.stop("ada", "", world.at_s))
    assert world.master.phase is JobPhase.STOPPED


def test_stop_does_not_wait_for_ever_for_a_worker_that_hangs(words) -> None:
    world = World(spec(), features(4000))
    world.run_until(lambda: in_place(world, plan()))
    world.do(world.master.stop("ada", "", world.at_s))
    for _ in range(21):
        world.tick(1.0)
    assert world.master.phase is JobPhase.STOPPED
    assert world.master.message == words


def test_a_newer_target_on_the_way_replaces_the_older_one() -> None:
    world = World(spec(), features(20_000))
    world.run_until(lambda: in_place(world, plan()))
    world.do(world.master.set_target(plan(1, 2), world.at_s))
    world.run_until(lambda: world.master.stage is Stage.PAUSING)
    world.do(world.master.set_target(plan(2, 1), world.at_s))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    assert [e.plan for e in world.told(PlanFailed) if isinstance(e, PlanFailed)] == [plan(1, 2)]
    assert world.living(Role.PS) == ["ps-0"]


def test_a_plan_that_runs_already_is_told_as_applied() -> None:
    world = World(spec(), features(4000))
    world.run_until(lambda: in_place(world, plan()))
    orders = world.master.set_target(plan(), world.at_s)
    assert Emit(PlanApplied(world.at_s, plan(), 0.0)) in orders


def test_a_target_after_the_last_row_is_refused(words) -> None:
    world = World(spec(), features(400, 4000))
    world.run_until(lambda: world.master.phase is JobPhase.EVALUATING)
    orders = world.master.set_target(plan(2, 1), world.at_s)
    (failed,) = (o.event for o in orders if isinstance(o, Emit) and isinstance(o.event, PlanFailed))
    assert failed == PlanFailed(world.at_s, plan(2, 1), words)
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED


def test_reports_carry_the_plan_only_when_it_ran_for_their_whole_window() -> None:
    world = World(spec(), features(4000))
    world.run_until(lambda: in_place(world, plan()))
    since_s = world.told(PlanApplied)[0].at_s
    world.run_until(lambda: world.at_s > since_s + 2)
    for event in world.told(NodeReported):
        assert isinstance(event, NodeReported)
        is_inside = event.at_s - event.sample.window_s >= since_s
        assert event.plan == (plan() if is_inside else None)
    assert any(e.plan for e in world.told(NodeReported) if isinstance(e, NodeReported))
    done = [e.n_sample_done for e in world.told(ProgressMade) if isinstance(e, ProgressMade)]
    assert done == sorted(set(done))


def test_scores_of_the_wrong_length_are_not_taken(words) -> None:
    world = World(spec(), features(40, 45))
    world.run_until(lambda: world.master.phase is JobPhase.EVALUATING)
    world.run_until(lambda: world.master.evaluation_counts.doing == 1)
    (node,) = world._living(Role.WORKER)
    while node.shard is None:
        world.turn(node.id)
    bad = (np.zeros(3, np.float32), np.zeros(3, np.float32))
    world.do(world.master.on_message(node.id, m.ShardFinished(node.id, node.shard.lease), world.at_s, bad))
    assert world.master.evaluation_counts.done == 0
    assert world.master.evaluation_counts.todo == 2
    assert world.master.message == words
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED


def test_rows_of_one_class_have_no_auc_and_the_job_succeeds_all_the_same(words) -> None:
    world = World(spec())

    def refuse(scores: ScoreSums) -> Evaluation:
        raise InvalidValueError("AUC needs rows of both classes")

    world.evaluate = refuse
    world.run_to_end()
    assert world.master.phase is JobPhase.SUCCEEDED
    assert world.master.evaluation is None
    assert world.master.message == words
