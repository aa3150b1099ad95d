"""Jobs to their end: of processes with real rows, gradients and deaths, and among played nodes, to see what is decided."""

from __future__ import annotations

import gzip
import threading
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.driver.driver_world import DriverWorld
from support.driver.driver_world import succeeded as played_to_its_end
from support.driver.real_job import Job, plan, succeeded, training_held_at, training_slowed_from
from support.plans.replayed import replay
from support.waiting import until

from dlrover_nb.core.basics import numerics
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.commands.requests import Scale, SetBatches
from dlrover_nb.core.errors import CapacityError, InvalidValueError, StaleDecisionError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.models.matmul import computes_bfloat16
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.journal import JOURNAL, read_journal
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import MatmulPrecision, Mode, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import NodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.perf.fit_input import Samples


def test_what_fits_need_is_imported_beside_the_loop_once_all_nodes_train(
    play: Callable[..., DriverWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    load, threads = numerics.load, []

    def noted_load() -> None:
        threads.append(threading.current_thread().name)
        load()

    monkeypatch.setattr(numerics, "load", noted_load)
    job = play(n_epoch=20)
    job.until(lambda now: now.running == job.spec.plan)
    job.pass_time(5.0)
    job.driver.stop("ada")
    job.until_end()
    until(lambda: threads, what="the import")  # by a thread, which runs when it gets a processor
    assert threads == ["numerics"], "once, and not in the loop's thread"


@pytest.mark.more
def test_a_job_trains_to_its_end_and_leaves_journal_history_series_and_a_checkpoint(
    start: Callable[..., Job],
) -> None:
    job = start(plan=plan(worker_cpu=0.3, ps_cpu=0.3))
    with training_slowed_from(job.features.n_train // 2):  # there are reports on a fast machine too
        job.until(lambda now: now.running == job.spec.plan)
        job.until(lambda _: reported(job))
    began_s = job.driver.snapshot().started_at_s
    late = Decision(Verdict.MODE, "ada", began_s - 18_000, mode=Mode.SUGGEST, why="to see")
    mode = job.driver.decide(late)
    assert mode.id == "d1"
    assert mode.at_s > began_s, "a client's clock dates nothing"
    with pytest.raises(InvalidValueError):  # it has that mode already; nothing is journalled
        job.driver.decide(Decision(Verdict.MODE, "ada", time.time(), mode=Mode.SUGGEST))
    end = succeeded(job)
    assert end.loss is not None
    assert end.loss < 0.5
    assert reported(job)
    again = replay(read_journal(job.folder / JOURNAL)).view()
    assert (again.story, again.decisions, again.mode) == (end.story, end.decisions, end.mode)
    store = HistoryStore(job.history)
    assert [run.phase for run in store.jobs()] == [JobPhase.SUCCEEDED]
    store.close()
    manifest = CheckpointFolder(job.folder).read(1)
    assert manifest.ledger.split.n_shard == end.train.done
    assert not [path for path in job.folder.iterdir() if path.is_socket()]
    with pytest.raises(StaleDecisionError):
        job.driver.decide(replace(mode, mode=Mode.MANUAL))
    job.driver.stop("ada", "too late")  # nothing happens


def reported(job: Job) -> bool:
    """Whether the series of a job have a rate, and rows of both nodes."""
    series = job.driver.series()
    return any(series.job["samples_per_s"]) and {"worker-0", "ps-0"} <= set(series.node["node"])


def test_a_decision_that_was_answered_is_in_the_next_snapshot(play: Callable[..., DriverWorld]) -> None:
    job = play(n_epoch=100)
    for mode in (Mode.SUGGEST, Mode.MANUAL) * 10:
        taken = job.driver.decide(Decision(Verdict.MODE, "ada", time.time(), mode=mode))
        now = job.now
        assert (now.mode, now.decisions[-1].id) == (mode, taken.id)
    job.driver.stop("ada")


def test_publishing_a_snapshot_fits_no_model(
    play: Callable[..., DriverWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_publishing: list[bool] = []
    fit = ThroughputModel.fit

    def seen(model: ThroughputModel, samples: Samples) -> ThroughputModel:
        is_publishing.append(any(frame.name == "_publish" for frame in traceback.extract_stack()))
        return fit(model, samples)

    monkeypatch.setattr(ThroughputModel, "fit", seen)
    job = play(mode=Mode.SUGGEST, n_epoch=100)
    job.until(lambda now: now.fit is not None)
    job.driver.stop("ada")
    assert is_publishing
    assert not any(is_publishing)


def test_a_worker_killed_in_the_middle_is_replaced_and_the_count_is_exact(start: Callable[..., Job]) -> None:
    job = start(plan=plan(2, 1), n_epoch=3)
    while not job.now.train.returned:  # a worker that dies between two shards holds none
        n_row = job.now.train.n_sample_done + 10_000
        with training_held_at(n_row + 30_000):
            job.until(lambda now, n=n_row: now.running == job.spec.plan and now.train.n_sample_done > n)
            killed = job.kill(Role.WORKER)
            job.until(
                lambda now, old=killed: now.running == job.spec.plan and old not in {n.id for n in now.nodes}
            )
            assert job.story_has(f"{killed} was lost: killed by signal 9")
    succeeded(job)


@pytest.mark.more
@pytest.mark.skipif(not computes_bfloat16(), reason="needs a processor with bfloat16")
def test_workers_multiply_in_the_precision_of_their_job(start: Callable[..., Job]) -> None:
    full, half = (
        succeeded(start(overlap=False, matmul_precision=precision)).evaluation
        for precision in MatmulPrecision
    )
    assert full is not None
    assert half is not None
    assert half.log_loss != full.log_loss, "else one worker has the same bits in each run"
    assert half.log_loss == pytest.approx(full.log_loss, abs=1e-3)


def test_workers_in_step_get_other_batch_sizes_and_survive_a_kill(play: Callable[..., DriverWorld]) -> None:
    job = play(plan=plan(2, 1), sync=Sync.BSP)
    job.until(lambda now: now.running and now.train.n_sample_done > 50)
    handle = JobHandle("real", job.driver, user="ada")
    with pytest.raises(InvalidValueError, match="worker-7"):
        handle.ask(SetBatches({"worker-7": 256}))
    handle.ask(SetBatches({"worker-0": 5, "worker-1": 15}, why="one is slower"))
    killed = job.lose(Role.WORKER)
    played_to_its_end(job, exactly_once=False)
    assert job.story_has("ada sets batch sizes: worker-0 5 and worker-1 15: one is slower")
    assert job.story_has(f"{killed} was lost")


def test_workers_and_ps_are_doubled_by_a_decision_while_training(play: Callable[..., DriverWorld]) -> None:
    job = play(n_epoch=5)
    job.until(lambda now: now.running and now.train.n_sample_done > 100)
    handle = JobHandle("real", job.driver, user="ada")
    possible, impossible = handle.weigh(plan(2, 2), plan(9, 2))
    assert possible.refusal == ""
    with pytest.raises(CapacityError) as told:
        handle.decide(Scale.to(plan(9, 2)))
    assert str(told.value) == impossible.refusal
    handle.decide(Scale.to(plan(2, 2), why="to be quicker"))
    assert "being applied already" in handle.weigh(plan(2, 2))[0].refusal
    n_turn = job.n_turn
    assert "being applied already" in handle.weigh(plan(2, 2))[0].refusal
    assert "manual mode" in handle.explain().why
    assert job.n_turn == n_turn, "answered beside the loop: who asks does not wait for it"
    now = job.until(lambda now: now.running == plan(2, 2))
    assert now.phase is JobPhase.TRAINING
    assert 0 < now.train.n_sample_done < now.train.n_sample_total
    end = played_to_its_end(job)
    assert end.train.returned == end.train.refused == 0
    assert [marker.plan for marker in end.markers] == [plan(), plan(2, 2)]
    assert end.markers[-1].pause_s > 0
    assert "need a running job" in handle.weigh(plan(2, 1))[0].refusal
    assert handle.explain().proposal is None


@pytest.mark.more
def test_a_killed_ps_is_restored_from_the_last_checkpoint(start: Callable[..., Job]) -> None:
    several = plan(2, 1, ps_cpu=2.0)  # its threads serve at the same time
    job = start(n_epoch=2, checkpoint_every_s=1.0, plan=several)
    written = (job.folder / "checkpoints").glob
    with training_held_at(job.features.n_train):
        job.until(
            lambda now: any(written("*/manifest.json")) and now.phase is JobPhase.TRAINING and now.running
        )
        killed = job.kill(Role.PS)
    end = succeeded(job)
    assert any(f"{killed} was lost" in line and "continuing from checkpoint" in line for line in end.story)


def test_a_checkpoint_folder_that_cannot_be_made_is_told_and_training_goes_on(
    play: Callable[..., DriverWorld], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run" / "checkpoints").write_text("in the way")
    end = played_to_its_end(play(checkpoint_every_s=1.0))
    assert any("could not be written: cannot make the folder" in line for line in end.story)


def test_a_stopped_job_saves_what_it_learnt_where_it_was_told(
    play: Callable[..., DriverWorld], tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/kept"
    job = play(n_epoch=50, checkpoint_url=url)
    job.until(lambda now: now.train.n_sample_done > 0)
    job.driver.stop("ada", "enough")
    end = job.until_end()
    assert (end.phase, end.message) == (JobPhase.STOPPED, "stopped by ada: enough")
    assert 0 < end.train.n_sample_done < end.train.n_sample_total
    manifest = CheckpointFolder(job.folder, url).read(1)
    assert manifest.n_row > 0
    assert [file.startswith(f"{url}/run/1/") for file, _ in manifest.files] == [True]
    assert manifest.journal_segment == 0
    journal = gzip.decompress((job.folder / f"{JOURNAL}.gz").read_bytes())
    (tmp_path / "then").write_bytes(journal[: manifest.n_journal_byte])
    then = replay(read_journal(tmp_path / "then")).view()
    assert 0 < len(then.story) < len(end.story)
    assert tuple(end.story[: len(then.story)]) == tuple(then.story)


def test_an_error_that_a_new_node_would_repeat_fails_the_job_with_one_clear_line(
    play: Callable[..., DriverWorld],
) -> None:
    job = play()
    job.until(lambda now: now.running)
    job.nodes["worker-0"].say(NodeFailed("worker-0", "no file /nowhere/rows.parquet", retryable=False))
    end = job.until_end()
    assert end.phase is JobPhase.FAILED
    assert "worker-0 cannot go on" in end.message
    assert "/nowhere/rows.parquet" in end.message


def test_a_plan_that_does_not_fit_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    with pytest.raises(CapacityError, match="workers of this size would fit"):
        DriverWorld(tmp_path, plan=plan(9, 1))
    assert not (tmp_path / "run").exists()


def test_a_bug_in_the_loop_fails_the_job_and_stops_its_nodes(
    play: Callable[..., DriverWorld], caplog: pytest.LogCaptureFixture
) -> None:
    job = play()
    job.until(lambda now: now.running)
    job.backend.poll = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    end = job.until_end()
    assert end.phase is JobPhase.FAILED
    assert "ZeroDivisionError" in end.message
    assert not end.nodes
    assert not any(node.is_alive for node in job.nodes.values())
    assert "Traceback" in caplog.text
