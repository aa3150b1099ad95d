"""A node that ran out of memory comes back with more; one that hangs is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.driver.driver_world import succeeded

from dlrover_nb.core.rundir.journal import read_events
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.events import NodeOutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.driver.driver_world import DriverWorld


def test_a_ps_that_the_kernel_ended_gets_more_memory_though_no_user_asked(
    play: Callable[..., DriverWorld],
) -> None:
    job = play(n_epoch=5, checkpoint_every_s=1.0, mode=Mode.MANUAL)
    job.until(lambda now: now.running and list(job.folder.glob("checkpoints/*/manifest.json")))
    job.end_for_memory("ps-0")
    job.until(lambda now: now.running and now.target.ps.memory_mib == 384)
    assert job.story_has("ps-0", "ran out of memory", "get 384 MiB")
    assert job.backend.started["ps-1"].memory_mib == 384
    assert succeeded(job).target.ps.memory_mib == 384
    kills = [each for each in read_events(job.folder) if isinstance(each, NodeOutOfMemory)]
    assert [kill.node for kill in kills] == ["ps-0"]


def test_a_worker_that_hangs_is_replaced(play: Callable[..., DriverWorld]) -> None:
    job = play(n_epoch=5, heartbeat_timeout_s=20.0)
    job.until(lambda now: now.running and now.train.n_sample_done > 100)
    job.frozen.add("worker-0")
    job.until(lambda now: now.running and "worker-0" not in {node.id for node in now.nodes})
    assert not job.nodes["worker-0"].is_alive
    assert job.story_has("worker-0", "it sent no report for")
    succeeded(job, exactly_once=False)
