"""Nodes that get SIGTERM amid training: what they hold goes to others, and nothing is trained again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from support.driver.driver_world import succeeded as played_to_its_end
from support.driver.real_job import plan, succeeded, training_held_at

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.driver.driver_world import DriverWorld
    from support.driver.real_job import Job

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


TRAINED = 10_000


def evict(now: JobSnapshot, *names: str) -> None:
    for node in now.nodes:
        if node.id in names:
            assert node.pid is not None
            os.kill(node.pid, signal.SIGTERM)


def ps_of(now: JobSnapshot) -> set[str]:
    return {node.id for node in now.nodes if node.role is Role.PS}


def without_loss(job: Job) -> JobSnapshot:
    """Let a job end; no row went back to the queue, and no parameter to a checkpoint."""
    end = succeeded(job)
    assert end.train.returned == end.train.refused == 0
    assert not job.story_has("was lost")
    assert not job.story_has("was loaded from")
    return end


@pytest.mark.more
def test_one_that_is_evicted_is_replaced_without_a_rollback(start: Callable[..., Job]) -> None:
    job = start(plan=plan(2, 2, ps_cpu=0.2), n_epoch=3, checkpoint_every_s=2.0)
    with training_held_at(2 * job.features.n_train):
        evict(job.until(lambda now: now.running and now.train.n_sample_done > TRAINED), "ps-0")
        job.until(lambda now: now.running and ps_of(now) == {"ps-1", "ps-2"})
    without_loss(job)
    assert job.story_has("ps-0 is being evicted; its parameters move to ps-2")


def evict_when_trained(job: DriverWorld, *names: str) -> None:
    """Send SIGTERM to nodes once all of them train."""
    job.until(lambda now: now.running and now.train.n_sample_done > 100)
    job.evict(*names)


def trained_without_loss(job: DriverWorld) -> None:
    """Let a job end; each row was trained once, and no parameter came from a checkpoint."""
    end = played_to_its_end(job)
    assert end.train.returned == end.train.refused == 0
    assert not job.story_has("was lost")
    assert not job.story_has("was loaded from")


def test_all_that_are_evicted_at_once_are_replaced_while_workers_train_in_step(
    play: Callable[..., DriverWorld],
) -> None:
    job = play(plan=plan(2, 2, ps_cpu=0.2), n_epoch=3, sync=Sync.BSP)
    evict_when_trained(job, "ps-0", "ps-1")
    job.until(lambda now: now.running and not {"ps-0", "ps-1"} & ps_of(now))
    trained_without_loss(job)


def test_a_worker_that_is_evicted_finishes_its_shard_and_is_replaced(
    play: Callable[..., DriverWorld],
) -> None:
    job = play(plan=plan(2, 1, ps_cpu=0.2), n_epoch=3)
    evict_when_trained(job, "worker-0")
    job.until(lambda now: now.running and "worker-0" not in {node.id for node in now.nodes})
    end = played_to_its_end(job)
    assert end.train.refused == 0
    assert not job.story_has("was lost")


def test_a_plan_that_changes_while_one_is_evicted_comes_about(play: Callable[..., DriverWorld]) -> None:
    job = play(plan=plan(1, 1, ps_cpu=0.2), n_epoch=3)
    evict_when_trained(job, "ps-0")
    job.scale(plan(1, 2, ps_cpu=0.2))
    job.until(lambda now: now.running == plan(1, 2, ps_cpu=0.2) and "ps-0" not in ps_of(now))
    trained_without_loss(job)


def test_a_job_that_is_stopped_then_ends_as_any_other(play: Callable[..., DriverWorld]) -> None:
    job = play(n_epoch=100)
    evict_when_trained(job, "ps-0")
    job.driver.stop("ada", "enough")
    end = job.until_end()
    assert end.phase is JobPhase.STOPPED, end.message
    assert list((job.folder / "checkpoints").glob("*/manifest.json"))
