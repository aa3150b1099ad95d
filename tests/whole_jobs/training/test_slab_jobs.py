"""Real jobs whose workers and PS share memory: what carries arrays is told, and no kill leaves anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.driver.real_job import Job, TcpBackend, plan, succeeded

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM, run_name
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets.jobs.status import nodes_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


def shares_memory(now: JobSnapshot, *, without: str = "") -> bool:
    """Whether a worker with rows done says that it exchanges through shared memory."""
    workers = [node for node in now.nodes if node.role is Role.WORKER and node.id != without]
    return any(node.last is not None and node.last.carrier == "shared memory" for node in workers)


@pytest.mark.release
@pytest.mark.parametrize("backend", [LocalBackend, TcpBackend])
def test_workers_and_ps_of_one_host_share_memory_and_kills_leave_nothing(
    start: Callable[..., Job], backend: type[LocalBackend]
) -> None:
    job = start(backend=backend, plan=plan(worker_cpu=1.0), n_epoch=4, checkpoint_every_s=1.0)
    now = job.until(shares_memory)
    assert "MB/s by shared memory" in str(nodes_blocks(now))
    worker = job.kill(Role.WORKER)
    job.until(lambda now: shares_memory(now, without=worker))
    n_done = job.until(lambda now: now.running).train.n_sample_done
    job.kill(Role.PS)
    job.until(lambda now: now.running and now.train.n_sample_done != n_done and shares_memory(now))
    succeeded(job)
    assert not list(SHM.glob(f"{run_name(job.spec.name, job.folder)}*"))
