"""The master of an elastic job, event by event: worlds, rows of those who leave, and the end."""

from __future__ import annotations

import pytest

from dlrover_nb.core.master.external.changes.elastic_worlds import LATE_S
from dlrover_nb.core.master.external.job.shard_account import SILENT_S
from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.external.orders import SendEnvironment
from dlrover_nb.core.master.shared.orders import StartNode, StopNode
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.wire.services import (
    Caller,
    CallNoted,
    CallRefused,
    Evaluated,
    JobState,
    Reached,
    RowsRestored,
    RowsTrained,
    RowsWanted,
    ShardGranted,
    ShardWanted,
    StateWanted,
    StepReached,
    WorldLater,
    WorldMade,
    WorldOver,
    WorldWanted,
)

N_ROW = 400  # shards of 100 rows


def plan(n):
    return ResourcePlan(RolePlan(n, 1, 512), RolePlan(1, 0.5, 512))


class Job:
    """A master, and processes that do what a test says."""

    def __init__(self, n=2, **changes):
        foreign = ExternalSpec(ExternalRole(("run",)), N_ROW, framework=Framework.DDP)
        spec = JobSpec("elastic", plan=plan(n), foreign=foreign, batch_size=10, shard_batches=10, **changes)
        self.master = ExternalMaster(spec, Capacity((NodeShape(64, 65536),)))
        self.at_s, self.orders = 0.0, []
        self.take(self.master.start(0.0))

    def take(self, orders):
        self.orders += orders
        started = {each.node: f"10.0.0.{i}" for i, each in enumerate(orders) if isinstance(each, StartNode)}
        if started:
            self.take(self.master.update_addresses(started, self.at_s))

    def call(self, call):
        answer, orders = self.master.on_call(call, self.at_s)
        self.take(orders)
        return answer

    def ask(self, node, seen=0, step=-1, reached=()):
        return self.call(WorldWanted(Caller(node, "0", "p"), seen, step, tuple(reached)))

    def shard(self, node, *holding):
        held = tuple((each.shard, each.grant) for each in holding)
        granted = self.call(ShardWanted(Caller(node, "0", "p"), (), held))
        assert isinstance(granted, ShardGranted)
        return granted

    def done(self, node, granted, n_row):
        done = (RowsTrained(granted.shard, granted.grant, n_row),)
        return self.call(StateWanted(Caller(node, "0", "p"), done, ((granted.shard, granted.grant),)))

    def exit(self, node, *, succeeded=False):
        self.take(self.master.on_exit(node, "killed", self.at_s, succeeded=succeeded))

    def of(self, kind):
        return [each for each in self.orders if isinstance(each, kind)]

    def begin(self, *nodes):
        for node in nodes:
            self.ask(node)
        return [self.ask(node) for node in nodes]


def owner(node):
    return f"{node}/0/p"


def test_nodes_get_variables_that_never_change_and_a_world_once_all_have_asked():
    job = Job()
    assert {each.text for each in job.of(SendEnvironment)} == {
        "DLROVER_NB_ELASTIC=1",
        "DLROVER_NB_STORE_PORT=2222",
    }
    assert isinstance(job.ask("worker-0"), WorldLater)
    made = job.ask("worker-1")
    assert made == WorldMade(1, 1, (owner("worker-0"), owner("worker-1")), (-1, -1), 0, made.store)
    assert made.store.endswith(":2222")
    assert job.ask("worker-0") == WorldMade(1, 0, made.owners, (-1, -1), 0, made.store)
    job.exit("worker-1")
    job.take(job.master.tick(20.0))
    assert not [each for each in job.of(SendEnvironment) if not each.text], "nobody is told to end"


def test_rows_of_a_lost_member_count_as_far_as_the_others_parameters_have_them():
    job = Job()
    job.begin("worker-0", "worker-1")
    first, second = job.shard("worker-0"), job.shard("worker-1")
    job.done("worker-0", first, 20)
    job.done("worker-1", second, 30)
    job.exit("worker-1")
    assert job.master.train_counts.doing == 2, "the others know best how far it got"
    reached = [Reached(owner("worker-0"), first.grant, 30), Reached(owner("worker-1"), second.grant, 50)]
    made = job.ask("worker-0", seen=1, step=3, reached=reached)
    assert isinstance(made, WorldMade)
    assert made.steps == (3,)
    assert job.master.train_counts.n_sample_done == 80
    again = job.shard("worker-0", first)
    assert (again.shard, again.offset) == (second.shard, 50)


def keeps_its_rows_until_the_next_world(job, first, second):
    assert job.master.train_counts.doing == 2, "the other's parameters may have more of its rows than it told"
    assert job.shard("worker-0", first).shard not in {first.shard, second.shard}
    reached = [Reached(owner("worker-0"), first.grant, 30), Reached(owner("worker-1"), second.grant, 50)]
    job.ask("worker-0", seen=1, step=3, reached=reached)


def test_a_member_that_is_cut_off_keeps_its_rows_while_the_others_train_with_it():
    job = Job()
    job.begin("worker-0", "worker-1")
    first, second = job.shard("worker-0"), job.shard("worker-1")
    job.at_s += SILENT_S + 1
    job.take(job.master.tick(job.at_s))
    keeps_its_rows_until_the_next_world(job, first, second)
    job.ask("worker-1", seen=1, step=3)
    assert job.master.train_counts.n_sample_done == 80
    assert job.shard("worker-1").offset == 50


def test_what_a_process_held_that_began_anew_is_taken_back_with_the_next_world():
    job = Job()
    job.begin("worker-0", "worker-1")
    first, second = job.shard("worker-0"), job.shard("worker-1")
    job.call(StateWanted(Caller("worker-1", "0", "q")))
    keeps_its_rows_until_the_next_world(job, first, second)
    job.call(WorldWanted(Caller("worker-1", "0", "q"), 0, -1))
    assert job.master.train_counts.n_sample_done == 80
    again = job.call(ShardWanted(Caller("worker-1", "0", "q")))
    assert (again.shard, again.offset) == (second.shard, 50)


def test_what_a_process_held_that_began_anew_before_its_node_was_lost_is_taken_back_too():
    job = Job()
    job.begin("worker-0", "worker-1")
    held = job.shard("worker-1")
    job.call(StateWanted(Caller("worker-1", "0", "q")))
    job.exit("worker-1")
    job.ask("worker-0", seen=1, step=3, reached=[Reached(owner("worker-1"), held.grant, 50)])
    again = job.shard("worker-0")
    assert (again.shard, again.offset) == (held.shard, 50)


def test_a_request_to_restore_rows_that_comes_again_in_a_later_world_has_no_effect():
    job = Job(1)
    job.begin("worker-0")
    restored = RowsRestored(Caller("worker-0", "0", "p"), "", 1)
    job.call(restored)
    granted = job.shard("worker-0")
    job.ask("worker-0", seen=1, step=1, reached=[Reached(owner("worker-0"), granted.grant, 10)])
    assert job.call(restored) == CallNoted(), "its sender is answered, as it may not know of the first time"
    assert (job.master.train_counts.n_sample_done, job.master.train_counts.doing) == (10, 1)


@pytest.mark.parametrize(
    "late",
    [
        RowsRestored(Caller("worker-0", "0", "p"), "", 1),
        StepReached(Caller("worker-0", "0", "p"), (Reached("worker-1/0/p", 1, 70),)),
        RowsWanted(Caller("worker-0", "0", "p")),
    ],
)
def test_what_a_lost_node_says_late_of_its_parameters_is_refused(late, words):
    job = Job(1)
    job.begin("worker-0")
    job.exit("worker-0")
    job.begin("worker-1")
    assert job.shard("worker-1").grant == 1
    job.ask("worker-1", seen=2, step=1, reached=[Reached(owner("worker-1"), 1, 10)])
    before = job.master.train_counts
    answer = job.call(late)
    assert isinstance(answer, CallRefused)
    assert answer.why == words
    assert job.master.train_counts == before


def test_a_process_that_all_others_wait_for_is_named(words):
    job = Job()
    job.begin("worker-0", "worker-1")
    job.ask("worker-0", seen=1, step=3)
    for _ in range(2):
        assert "waits for" not in job.master.message
        job.at_s += LATE_S / 2 + 1
        job.take(job.master.tick(job.at_s))
    assert job.master.message == words
    job.ask("worker-1", seen=1, step=3)
    job.take(job.master.tick(job.at_s))
    assert job.master.message == words


def test_a_finished_shard_of_a_lost_member_is_done_and_its_next_one_goes_back():
    job = Job()
    job.begin("worker-0", "worker-1")
    first = job.shard("worker-1")
    second = job.shard("worker-1", first)
    job.exit("worker-1")
    job.ask("worker-0", seen=1, step=9, reached=[Reached(owner("worker-1"), second.grant, 10)])
    counts = job.master.train_counts
    assert (counts.done, counts.doing, counts.n_sample_done) == (1, 0, 110)
    assert first.grant < second.grant


def test_a_plan_with_fewer_workers_lets_the_newest_leave_and_with_more_nobody():
    job = Job()
    job.begin("worker-0", "worker-1")
    job.take(job.master.set_target(plan(1), 1.0))
    told = job.call(StateWanted(Caller("worker-0", "0", "p")))
    assert isinstance(told, JobState)
    assert told.outdated_world == 1
    assert isinstance(job.ask("worker-1", seen=1, step=5), WorldOver)
    assert job.ask("worker-0", seen=1, step=5).number == 2
    assert StopNode("worker-1") in job.orders
    assert job.call(StateWanted(Caller("worker-0", "0", "p"))).outdated_world == 0


def test_a_process_that_leaves_as_the_last_rows_are_trained_does_not_end_the_job():
    job = Job()
    job.begin("worker-0", "worker-1")
    for _ in range(4):
        job.done("worker-0", job.shard("worker-0"), 100)
    job.take(job.master.set_target(plan(1), 1.0))
    assert isinstance(job.ask("worker-1", seen=1, step=5), WorldOver)
    job.exit("worker-1", succeeded=True)
    assert isinstance(job.ask("worker-0", seen=1, step=5), WorldMade), "else its program keeps no model"
    assert job.master.phase is not JobPhase.SUCCEEDED
    job.exit("worker-0", succeeded=True)
    assert job.master.phase is JobPhase.SUCCEEDED


def test_a_member_that_is_killed_after_another_has_ended_well_brings_nothing_back():
    job = Job()
    job.begin("worker-0", "worker-1")
    for _ in range(4):
        granted = job.shard("worker-0")
        job.done("worker-0", granted, 100)
    assert job.master.account.is_over
    job.exit("worker-0", succeeded=True)
    started = len(job.of(StartNode))
    job.exit("worker-1")
    assert (job.master.phase, len(job.of(StartNode))) == (JobPhase.SUCCEEDED, started)


def test_all_members_that_end_well_before_the_rows_do_are_not_the_end():
    job = Job()
    job.begin("worker-0", "worker-1")
    job.exit("worker-0", succeeded=True)
    job.exit("worker-1", succeeded=True)
    job.take(job.master.tick(1.0))
    assert job.master.phase is not JobPhase.SUCCEEDED


def test_who_asks_while_the_job_stops_is_told_to_end():
    job = Job()
    job.begin("worker-0", "worker-1")
    job.take(job.master.stop("ada", "", 1.0))
    assert job.call(StateWanted(Caller("worker-0", "0", "p"))).outdated_world == 1
    assert isinstance(job.ask("worker-0", seen=1, step=2), WorldOver)


def test_the_next_master_knows_the_world_and_whose_rows_are_open():
    job = Job()
    job.begin("worker-0", "worker-1")
    granted = job.shard("worker-1")
    job.exit("worker-1")
    record, ledger = job.master.record, job.master.account.ledger
    again = Job()
    again.master.account.ledger = ledger
    again.take(again.master.resume(record, 5.0))
    assert again.master.worlds.now == job.master.worlds.now
    again.ask("worker-0", seen=1, step=4, reached=[Reached(owner("worker-1"), granted.grant, 70)])
    assert again.master.train_counts.n_sample_done == 70


def test_the_quality_that_a_program_tells_is_the_jobs(words):
    job = Job()
    job.call(Evaluated(Caller("worker-0", "0", "p"), 0.9, 0.3, 1000))
    assert str(job.master.evaluation) == words


def test_other_frameworks_have_no_worlds():
    job = Job()
    foreign = ExternalSpec(ExternalRole(("run",)), N_ROW, framework=Framework.TORCH)
    spec = JobSpec("torch", plan=plan(1), foreign=foreign)
    job.master = ExternalMaster(spec, Capacity((NodeShape(64, 65536),)))
    refused = job.ask("worker-0")
    assert isinstance(refused, CallRefused)
    assert "framework: ddp" in refused.why


@pytest.mark.parametrize(("n", "times"), [(1, [4]), (2, [2, 2]), (3, [2, 1, 1])])
def test_a_global_batch_is_accumulated(n, times):
    job = Job(n, global_batch=40)
    nodes = [f"worker-{i}" for i in range(n)]
    job.begin(*nodes)
    told = [job.call(StateWanted(Caller(node, "0", "p"))) for node in nodes]
    assert [each.n_accumulate for each in told] == times
    assert {each.batch_size for each in told} == {10}
