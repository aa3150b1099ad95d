"""A job whose nodes share no memory, as on machines of their own, loses one of them with its memory."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from support.driver.real_job import Job, succeeded
from support.master.pods_world import last_whole

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM_VAR, sweep_memory
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.wire.pod_contract import MACHINE_VAR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.structs.wire.node_config import NodeConfig

PLAN = ResourcePlan(RolePlan(1, 0.5, 2048), RolePlan(2, 0.4, 1024))


class SeparateMachines(LocalBackend):
    """Processes of this machine that share no memory."""

    def memory_of(self, node: str) -> Path:
        return self._folder / "shm" / node

    def _environment(self, config: NodeConfig) -> dict[str, str]:
        self.memory_of(config.node).mkdir(parents=True)
        return os.environ | {SHM_VAR: str(self.memory_of(config.node)), MACHINE_VAR: config.node}


@pytest.mark.release
def test_a_lost_host_costs_what_came_after_its_last_copy_and_no_row_is_lost(
    start: Callable[..., Job],
) -> None:
    job = start(plan=PLAN, backend=SeparateMachines, checkpoint_every_s=1.0, n_epoch=3)
    master, in_the_loop = job.driver._master, job.driver._commands.ask
    job.until(lambda _: in_the_loop(lambda: last_whole(master)) > 0)
    node = next(each for each in job.now.nodes if each.id == "ps-1")
    assert node.pid is not None
    os.kill(node.pid, 9)
    shutil.rmtree(job.backend.memory_of("ps-1"))
    job.until(lambda _: job.story_has("was loaded from", "kept the copy of ps-1"))
    succeeded(job)
    for memory in (
        job.backend.memory_of("ps-0").parent
    ).iterdir():  # a node that is killed leaves what the next one there sweeps
        sweep_memory(shm=memory)
        assert list(memory.iterdir()) == []
