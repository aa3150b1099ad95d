"""Early stopping of a job whose programs use the master's services, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.master.external_world import ROOM

from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.shared.orders import Emit, StartNode
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework, StepsDone
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.shards import FinishChoice
from dlrover_nb.core.structs.views.events import QualityMeasured
from dlrover_nb.core.structs.wire.services import (
    Caller,
    Evaluated,
    JobState,
    RowsRestored,
    RowsTrained,
    ShardGranted,
    ShardsOver,
    ShardWanted,
    StateWanted,
    WorldWanted,
)

N_TRAIN, N_EPOCH = 400, 6  # a pass has 4 shards of 100 rows
ONE = Caller("worker-0", "0", "p")


class Job:
    """A master, and one process that does what a test says."""

    def __init__(self, rule):
        worker = ExternalRole(("run",))
        foreign = ExternalSpec(worker, N_TRAIN * N_EPOCH, framework=Framework.DDP)
        plan = ResourcePlan(RolePlan(1, 1, 512), RolePlan(1, 0.5, 512))
        self.spec = JobSpec(
            "early", plan=plan, foreign=foreign, batch_size=10, shard_batches=10, n_epoch=N_EPOCH,
            early_stopping=rule,
        )  # fmt: skip
        self.master, self.at_s, self.orders, self.n_step = ExternalMaster(self.spec, ROOM), 1.0, [], 0
        self.take(self.master.start(self.at_s))
        self.call(WorldWanted(ONE, 0, -1))

    def take(self, orders):
        self.orders += orders
        started = {each.node: f"10.0.0.{i}" for i, each in enumerate(orders) if isinstance(each, StartNode)}
        if started:
            self.take(self.master.update_addresses(started, self.at_s))

    def call(self, call):
        self.at_s += 1.0
        answer, orders = self.master.on_call(call, self.at_s)
        self.take(orders)
        return answer

    def train(self, n_shard=4, loss=None):
        """Train shards; return the last answer."""
        for _ in range(n_shard):
            shard = self.call(ShardWanted(ONE))
            if not isinstance(shard, ShardGranted):
                return shard
            self.call(StateWanted(ONE, (RowsTrained(shard.shard, shard.grant, shard.until),)))
            self.n_step += 10
            told = StepsDone(ONE.node, ONE.program, 0, self.at_s, self.n_step, self.n_step * 10, loss=loss)
            self.take(self.master.on_steps(told, self.at_s))
        return shard

    @property
    def due(self):
        answer = self.call(StateWanted(ONE))
        assert isinstance(answer, JobState)
        return answer.evaluate_after

    def evaluate(self, auc, log_loss=0.5, after=None):
        self.call(Evaluated(ONE, auc, log_loss, 50, self.due if after is None else after))

    @property
    def measured(self):
        events = [each.event for each in self.orders if isinstance(each, Emit)]
        return [(e.n_sample_done, e.value) for e in events if isinstance(e, QualityMeasured)]


def test_each_pass_but_the_last_is_to_be_scored_once():
    job = Job(EarlyStopping(patience=100))
    assert job.due == 0
    for n_pass in range(1, N_EPOCH):
        job.train()
        assert job.due == n_pass
        job.evaluate(0.6 + n_pass / 100)
        assert job.due == 0
        job.evaluate(0.1, after=n_pass)  # repeated, as its answer was lost
    job.train()
    assert job.due == 0
    assert [each.n_pass for each in job.master.rounds] == [1, 2, 3, 4, 5]
    assert job.measured == [(N_TRAIN * n, pytest.approx(0.6 + n / 100)) for n in range(1, N_EPOCH)]


@pytest.mark.parametrize("rule", [None, EarlyStopping(Metric.LOSS, patience=100)])
def test_without_a_rule_on_held_out_rows_none_are_to_be_scored(rule):
    job = Job(rule)
    job.train()
    assert job.due == 0
    job.evaluate(0.5, after=1)
    assert (job.master.rounds, job.measured) == ((), [])


def test_no_gain_ends_training_and_the_job_says_why(words):
    job = Job(EarlyStopping())
    job.train()
    job.evaluate(0.7)
    job.train()
    job.evaluate(0.7)
    assert job.master.message == words
    assert isinstance(job.train(), ShardsOver)
    job.call(Evaluated(ONE, 0.71, 0.4, 50))
    job.take(job.master.on_exit(ONE.node, "", job.at_s, succeeded=True))
    assert (job.master.phase, job.master.message[:13]) == (JobPhase.SUCCEEDED, "stopped early")
    assert job.master.train_counts.n_sample_done == 2 * N_TRAIN
    assert job.master.evaluation.auc == 0.71


@pytest.mark.parametrize(("losses", "n_pass"), [((0.9, 0.8, 0.4, 0.3), 3), ((0.9, 0.9, 0.9, 0.3), 2)])
def test_the_training_loss_ends_training_by_target_or_patience(losses, n_pass):
    job = Job(EarlyStopping(Metric.LOSS, patience=3, target=0.45))
    last = None
    for loss in losses:
        last = job.train(loss=loss)
    assert isinstance(last, ShardsOver)
    assert "training loss" in job.master.message
    assert job.master.train_counts.n_sample_done <= n_pass * N_TRAIN + 100
    assert all(0 < n <= 4 * N_TRAIN for n, _ in job.measured)


def test_a_master_that_begins_anew_knows_the_rounds_and_the_end():
    job = Job(EarlyStopping(patience=2))
    job.train()
    job.evaluate(0.7)
    other = ExternalMaster(job.spec, ROOM)
    other.account.adopt(job.master.account.ledger, ())
    other.resume(job.master.record, job.at_s)
    assert other.rounds == job.master.rounds
    job.master = other
    for _ in range(2):
        job.train()
        job.evaluate(0.6)
    assert isinstance(job.train(), ShardsOver)


def test_rounds_of_passes_that_are_trained_again_are_dropped_and_an_end_holds():
    job = Job(EarlyStopping(patience=100))
    job.train()
    job.evaluate(0.7)
    kept = job.master.account.rows()
    job.train()
    job.evaluate(0.8)
    restarted = replace(ONE, program="q")
    job.call(RowsRestored(restarted, kept, 1))
    assert [each.n_pass for each in job.master.rounds] == [1]
    job.take(job.master.choose(FinishChoice("alice"), job.at_s))
    job.call(RowsRestored(replace(ONE, program="r"), kept, 1))
    assert isinstance(job.call(ShardWanted(replace(ONE, program="r"))), ShardsOver)
