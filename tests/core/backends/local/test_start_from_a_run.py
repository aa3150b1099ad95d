"""Real jobs that begin from the checkpoint of an earlier one: its parameters, and its account of rows."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import replace

import pytest
from support.driver.noted_rows import N_TRAIN, Numbered, noting_model, rows_in
from support.waiting import until

from dlrover_nb.core.commands.requests import Finish
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan


def plan(ps=1):
    return ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(ps, 0.4, 256))


def spec(name, start=None, **changes):
    fields = {
        "plan": plan(),
        "mode": Mode.MANUAL,
        "model": ModelSpec(embedding_dim=4, hash_size=1 << 10),
        "batch_size": 20,
        "shard_batches": 10,
        "checkpoint_every_s": 0.0,
        "start_from": start,
    }
    return JobSpec(name, **(fields | changes))


@pytest.fixture(scope="module")
def local(own_home):
    cluster = connect("local")
    yield cluster
    cluster.shutdown(force=True)


def end_of(handle):
    until(lambda: handle.snapshot().phase.is_final, what="the end of the job")
    return handle.snapshot()


@pytest.fixture(scope="module")
def stopped(local, tmp_path_factory):
    """Yield a job that was stopped within its pass, and the rows that it trained."""
    notes = tmp_path_factory.mktemp("first") / "rows"
    slow = noting_model(
        str(notes), gate=str(notes.with_name("gate")), slow_s=0.1
    )  # or it is over before the stop
    handle = local.submit(spec("day-1"), model=slow, data=Numbered)
    until(lambda: handle.snapshot().train.n_sample_done > 1000, what="training")
    handle.stop(why="the night is over")
    end = end_of(handle)
    assert end.phase is JobPhase.STOPPED
    assert 1000 < end.train.n_sample_done < N_TRAIN
    return handle, rows_in(notes, handle.link.folder)


@pytest.fixture(scope="module")
def gone_on(local, stopped, tmp_path_factory):
    """Yield a job that went on where the stopped one was, to its end, and the rows that it trained."""
    notes = tmp_path_factory.mktemp("second") / "rows"
    start = StartFrom("day-1", rows=True)
    handle = local.submit(spec("day-1-again", start), model=noting_model(str(notes)), data=Numbered)
    end = end_of(handle)
    assert end.phase is JobPhase.SUCCEEDED, end.message
    return handle, rows_in(notes, handle.link.folder)


@pytest.mark.release
def test_a_job_goes_on_in_the_rows_and_trains_none_of_them_twice(stopped, gone_on):
    (before, first), (after, second) = stopped, gone_on
    n_before, end = before.snapshot().train.n_sample_done, after.snapshot()
    assert sum(first.values()) == n_before
    assert first + second == Counter(range(N_TRAIN))
    assert end.train.n_sample_done == N_TRAIN
    assert end.began_from.n_sample == n_before
    assert before.link.folder.name in end.began_from.place


@pytest.mark.more
def test_its_parameters_go_on_for_other_ps_and_for_those_that_replace_them(local, gone_on):
    before = gone_on[0].snapshot().evaluation
    still = ModelSpec(embedding_dim=4, hash_size=1 << 10, learning_rate=1e-12)
    start = StartFrom(str(gone_on[0].link.folder))
    job = spec("day-2", start, model=still, plan=plan(2), n_epoch=20, seed=3)
    handle = local.submit(job, model=noting_model(os.devnull), data=Numbered)
    until(lambda: handle.snapshot().train.n_sample_done > 200, what="training")
    lost = next(node for node in handle.snapshot().nodes if node.role is Role.PS)
    os.kill(lost.pid, signal.SIGKILL)
    from_there = "continuing from the checkpoint that the job began from"
    until(lambda: from_there in str(handle.snapshot().story), what="the roll-back")
    until(lambda: handle.snapshot().train.n_sample_done > 200, what="training again")
    handle.ask(Finish())
    end = end_of(handle)
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.evaluation.log_loss == pytest.approx(before.log_loss, abs=1e-5)
    assert end.evaluation.auc == pytest.approx(before.auc, abs=1e-4)
    assert end.began_from.n_sample == 0


@pytest.mark.release
def test_what_does_not_fit_is_refused_before_anything_is_made(local, stopped, gone_on):
    def refused(words, **changes):
        job = replace(spec("day-3", StartFrom("day-1")), **changes)
        with pytest.raises((InvalidValueError, NotFoundError), match=words) as caught:
            local.submit(job, model=noting_model(os.devnull), data=Numbered)
        assert "\n" not in str(caught.value)

    refused("model.embedding_dim was 4, here it is 8", model=ModelSpec(embedding_dim=8, hash_size=1 << 10))
    refused("did you mean day-", start_from=StartFrom("day-l"))
    refused("no complete checkpoint at /nowhere", start_from=StartFrom("/nowhere"))
    refused("that run left no row to train; set epochs", start_from=StartFrom("day-1-again", rows=True))
    refused("the batch_size was 20, here it is 40", start_from=StartFrom("day-1", rows=True), batch_size=40)
    with pytest.raises(NotFoundError):
        local.job("day-3")
