"""A real node that the kernel ends for lack of memory comes back with more; one that hangs is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from real_job import plan

from dlrover_nb.core.rundir.journal import read_events
from dlrover_nb.core.structs.events import NodeOutOfMemory
from dlrover_nb.core.structs.job import JobPhase, Mode
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from real_job import Job

    from dlrover_nb.core.structs.snapshot import NodeView

GREEDY = """
import os, sys
from pathlib import Path
pid, group = sys.argv[1:]
Path("/proc", pid, "oom_score_adj").write_text("1000")
Path(group, "cgroup.procs").write_text(str(os.getpid()))
kept = []
while Path("/proc", pid).exists() and "Z" not in Path("/proc", pid, "stat").read_text().split()[2]:
    kept.append(bytearray(4 << 20))
"""


def starve(node: NodeView) -> None:
    """Fill the node's control group, until the kernel ends the node for lack of memory."""
    (group,) = Path("/sys/fs/cgroup").glob(f"memory/**/dlrover-nb/*-{node.id}-{node.pid}")
    subprocess.run([sys.executable, "-c", GREEDY, str(node.pid), str(group)], check=False)


def test_a_ps_that_the_kernel_ended_gets_more_memory_though_no_user_asked(start: Callable[..., Job]) -> None:
    job = start(plan=plan(worker_cpu=1.0), n_epoch=20, checkpoint_every_s=1.0, mode=Mode.MANUAL)
    now = job.until(lambda now: now.running and list(job.folder.glob("checkpoints/*/manifest.json")))
    (ps,) = (node for node in now.nodes if node.role is Role.PS)
    if not ps.memory_enforced or not Path("/sys/fs/cgroup/memory").is_dir():
        pytest.skip("this process may not make control groups (v1)")
    starve(ps)
    job.until(lambda now: now.running and now.target.ps.memory_mib == 384)
    assert job.story_has(ps.id, "ran out of memory", "get 384 MiB")
    job.driver.stop("ada")
    assert job.until_end().target.ps.memory_mib == 384
    kills = [each for each in read_events(job.folder) if isinstance(each, NodeOutOfMemory)]
    assert [kill.node for kill in kills] == [ps.id]


def test_a_worker_that_hangs_is_replaced(start: Callable[..., Job]) -> None:
    job = start(plan=plan(worker_cpu=1.0), n_epoch=60, heartbeat_timeout_s=20.0)
    now = job.until(lambda now: now.running and now.train.n_sample_done > 2_000)
    (worker,) = (node for node in now.nodes if node.role is Role.WORKER)
    os.kill(worker.pid or 0, signal.SIGSTOP)
    job.until(lambda now: now.running and worker.id not in {node.id for node in now.nodes})
    assert job.story_has(worker.id, "it sent no report for")
    job.driver.stop("ada")
    assert job.until_end().phase is JobPhase.STOPPED
