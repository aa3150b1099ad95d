"""Batch sizes of workers of external jobs, adjusted against stragglers."""

from __future__ import annotations

import pytest
from support.cases import for_each
from support.master.external_world import TF, TORCH, running
from test_elastic_master import Job

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.external.job.external_record import ExternalRecord, Replaced
from dlrover_nb.core.master.external.job.step_shares import Part, even
from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.decisions.actions import (
    ActionChoice,
    AdjustBatches,
    BackupWorkers,
    KillRestart,
    MitigationChoice,
)
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import BatchSizesSet, MitigationEnded, NodeLeft, PlanFailed
from dlrover_nb.core.structs.wire.services import Caller, StateWanted


def choice(action):
    return MitigationChoice("d-1", ActionChoice.of(action), "ada", "worker-1 is slow")


def batches(accumulate=(), **sizes):
    pairs = tuple((name.replace("_", "-"), size) for name, size in sizes.items())
    return choice(AdjustBatches(pairs, accumulate))


def state_of(master, node, at_s, *, asks_size=True):
    answer, _ = master.on_call(StateWanted(Caller(node, "0", "p"), asks_size=asks_size), at_s)
    return answer


def asking(*nodes):
    world = running(TF)
    for node in nodes:
        state_of(world.master, node, world.at_s)
    return world


def test_workers_that_ask_get_the_sizes_and_the_action_ends(words):
    world = asking("worker-0", "worker-1")
    world.do(world.master.mitigate(batches(worker_0=96, worker_1=32), world.at_s))
    sizes = [state_of(world.master, node, world.at_s).batch_size for node in ("worker-0", "worker-1")]
    assert sizes == [96, 32]
    assert world.of(BatchSizesSet)[-1].sizes == (("worker-0", 96), ("worker-1", 32))
    assert world.of(MitigationEnded)[-1] == MitigationEnded(world.at_s, "d-1")
    assert world.master.message == words
    assert world.master.message.endswith(": worker-1 is slow")


def test_programs_that_cannot_accumulate_get_all_rows_of_a_step_at_once():
    world = asking("worker-0", "worker-1")
    world.do(world.master.mitigate(batches((("worker-0", 3),), worker_0=32, worker_1=32), world.at_s))
    told = state_of(world.master, "worker-0", world.at_s)
    assert (told.batch_size, told.n_accumulate) == (96, 1)


@for_each(
    ("asked", "action", "error", "words"),
    [
        (
            (),
            batches(worker_0=1, worker_1=1),
            InvalidValueError,
            "never asked for their batch size on worker-0 and ",
        ),
        (
            ("worker-0",),
            batches(worker_0=1, worker_1=1),
            InvalidValueError,
            "batch size on worker-1, got: adjust",
        ),
        (
            ("worker-0", "worker-1"),
            batches(worker_0=1),
            InvalidValueError,
            "a batch size of each of worker-0, wo",
        ),
        (
            ("worker-0", "worker-1"),
            choice(BackupWorkers(1)),
            InvalidValueError,
            "runs its own programs, got: go on without .*; their batch sizes can be adjusted, and their",
        ),
        (
            (),
            choice(KillRestart("ps-0", Role.PS)),
            InvalidValueError,
            "expected one of worker-0, worker-1, got: restart ps-0; a parameter server of other programs",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_words_and_changes_nothing(asked, action, error, words):
    world = asking(*asked)
    before = world.master.record
    with pytest.raises(error, match=words):
        world.master.mitigate(action, world.at_s)
    assert world.master.record == before


def test_a_program_that_reports_without_asking_has_not_asked():
    world = asking("worker-0")
    state_of(world.master, "worker-1", world.at_s, asks_size=False)
    with pytest.raises(InvalidValueError, match="on worker-1"):
        world.master.mitigate(batches(worker_0=1, worker_1=1), world.at_s)


def test_while_nodes_are_missing_nothing_is_adjusted(error_words):
    world = asking("worker-0", "worker-1")
    world.leave("worker-1")
    with error_words(StaleDecisionError):
        world.master.mitigate(batches(worker_0=1), world.at_s)


# elastic jobs, whose processes accumulate


def elastic(**changes):
    job = Job(2, **changes)
    job.begin("worker-0", "worker-1")
    for node in ("worker-0", "worker-1"):
        state_of(job.master, node, job.at_s)
    job.take(job.master.tick(1000.0))
    job.at_s = 1000.0
    assert job.master.running is not None
    return job


def test_processes_of_an_elastic_job_accumulate_as_they_are_told_also_by_the_next_master():
    job = elastic()
    job.take(job.master.mitigate(batches((("worker-0", 3),), worker_0=8, worker_1=4), job.at_s))
    record = from_json(to_json(job.master.record), ExternalRecord)
    other = ExternalMaster(job.master.spec, Capacity((NodeShape(64, 65536),)))
    other.resume(record, job.at_s)
    for master in (job.master, other):
        told = [state_of(master, node, job.at_s) for node in ("worker-0", "worker-1")]
        assert [(each.batch_size, each.n_accumulate) for each in told] == [(8, 3), (4, 1)]


def test_parts_of_a_global_batch_hold_as_long_as_its_workers_do():
    job = elastic(global_batch=40)
    job.take(job.master.mitigate(batches(worker_0=30, worker_1=10), job.at_s))
    assert state_of(job.master, "worker-0", job.at_s).batch_size == 30
    job.exit("worker-1")
    job.ask("worker-0", seen=1)
    told = state_of(job.master, "worker-0", job.at_s)
    assert Part(told.batch_size, told.n_accumulate) == even(job.master.spec, ["worker-0"])["worker-0"]
    assert BatchSizesSet(job.at_s, ()) in [each.event for each in job.of(Emit)]


# workers that are replaced


def test_a_slow_worker_is_ended_and_the_action_ends_once_its_successor_trains():
    job = elastic()
    job.take(job.master.mitigate(choice(KillRestart("worker-1", Role.WORKER)), job.at_s))
    assert "worker-1" not in [node.id for node in job.master.nodes]
    assert not [e for e in emitted(job) if isinstance(e, MitigationEnded)]
    with pytest.raises(StaleDecisionError, match="decide once it does"):
        job.master.mitigate(choice(KillRestart("worker-0", Role.WORKER)), job.at_s)
    record = from_json(to_json(job.master.record), ExternalRecord)
    assert record.replaced == Replaced("worker-1", "d-1")


@pytest.mark.parametrize("foreign", [TF, TORCH])
def test_programs_that_meet_train_again_with_another_worker_and_no_restart_is_used_up(foreign):
    world = running(foreign)
    world.do(world.master.mitigate(choice(KillRestart("worker-1", Role.WORKER)), world.at_s))
    assert world.of(NodeLeft)[-1].node == "worker-1"
    assert world.master.running is None
    for _ in range(3):
        world.come_up()
        world.train()
    assert [node.id for node in world.master.nodes if node.role is Role.WORKER] == ["worker-0", "worker-2"]
    assert world.of(MitigationEnded) == [MitigationEnded(world.of(MitigationEnded)[0].at_s, "d-1")]
    assert world.master.record.replaced is None
    assert not world.of(PlanFailed)


def test_the_only_process_of_an_elastic_job_is_not_ended(error_words):
    job = Job(1)
    job.begin("worker-0")
    job.take(job.master.tick(1000.0))
    job.at_s = 1000.0
    with error_words(InvalidValueError):
        job.master.mitigate(choice(KillRestart("worker-0", Role.WORKER)), job.at_s)


def emitted(job):
    return [each.event for each in job.of(Emit)]
