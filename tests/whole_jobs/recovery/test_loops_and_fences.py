"""Jobs left alone: a program that fails again and again, and a worker that comes back from a long pause."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
import torch
from support.driver.real_job import Job, plan
from support.waiting import is_gone, until
from torch import nn

from dlrover_nb import trainable
from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.sharding.deaths import MAX_DEATHS
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import NodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.driver.driver_world import DriverWorld


N_ROW, BATCH, N_STEP = 6000, 50, 40
FOLDER = "DN_TEST_FOLDER"


class Rows:
    n_row = N_ROW

    def read(self, start: int, stop: int) -> dict[str, Any]:
        at = np.arange(start, stop)
        return {"label": at % 2, "x": np.where(at % 2, 1.0, -1.0), "site": at % 5}


class Net(nn.Module):
    """A small model, which acts after so many training steps in a worker."""

    def __init__(self, columns: Any) -> None:
        super().__init__()
        self.out = nn.Linear(columns.n_categorical * columns.row_width + columns.n_numeric, 1)
        self.n_step = 0

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        if self.training and "DN_TEST_NODE" in os.environ:
            self.n_step += 1
            self.act()
        out: torch.Tensor = self.out(torch.cat([embedded.flatten(1), dense], 1))
        return out.squeeze(1)

    def act(self) -> None:
        raise NotImplementedError


@trainable
class Freezing(Net):
    """The first worker stops its own process in a step, and then does not hear its master."""

    def act(self) -> None:
        folder = Path(os.environ[FOLDER])
        if not (folder / "go").exists():
            time.sleep(0.05)
        if self.n_step != N_STEP:
            return
        try:
            (folder / "frozen").touch(exist_ok=False)
        except FileExistsError:
            return
        (folder / "pid.tmp").write_text(str(os.getpid()))
        (folder / "pid.tmp").rename(folder / "pid")
        os.kill(os.getpid(), signal.SIGSTOP)
        from dlrover_nb.core.runtime.worker.worker import Orders  # noqa: PLC0415 - in the worker alone

        Orders.stopped = property(lambda _: False, lambda _, __: None)  # type: ignore[assignment]


class Unreachable(LocalBackend):
    """Cannot end the frozen process, as on a machine that is cut off."""

    def stop_node(self, node: str) -> None:
        pid = Path(os.environ[FOLDER]) / "pid"
        if not (pid.exists() and self._processes[node].pid == int(pid.read_text())):
            super().stop_node(node)


@pytest.fixture
def start_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Job]]:
    jobs = []

    def begin(model: object, **changes: Any) -> Job:
        spec = JobSpec("own", model=ModelSpec(embedding_dim=2), batch_size=BATCH, shard_batches=10)
        prepared = validate_job(spec, model=model, data=Rows())
        fields = {
            name: getattr(prepared.spec, name) for name in ("model", "data", "batch_size", "shard_batches")
        }
        job = Job(tmp_path, prepared.features, **(fields | changes))
        job.folder.mkdir(mode=0o700, exist_ok=True)
        prepared.write(job.folder)
        monkeypatch.setenv("DN_TEST_NODE", "1")
        monkeypatch.setenv(FOLDER, str(tmp_path))
        jobs.append(job)
        job.driver.start()
        return job

    yield begin
    for job in jobs:
        job.driver.close()


def test_a_program_that_raises_each_so_many_rows_ends_its_job_although_it_made_progress(
    play: Callable[..., DriverWorld],
) -> None:
    job = play(n_epoch=100, max_restarts_per_error=2)
    for n in range(3):
        name, before = f"worker-{n}", job.now.train.n_sample_done
        job.until(lambda now, before=before: now.running and now.train.n_sample_done > before)
        error = f"ValueError: step 41 of {0x7F00 + n:#x} in process {n}"
        job.nodes[name].say(NodeFailed(name, error, retryable=True, place="model.py:7 in act"))
        job.end(name, 1)
    end = job.until_end()
    assert end.phase is JobPhase.FAILED
    for words in (
        "the same error ended worker nodes 3 times within a day, and max_restarts_per_error is 2: ",
        "ValueError: step 41 of 0x",
        "(model.py:7 in act); on worker-0, worker-1, worker-2; first at ",
        "repair the program or its data and submit the job again (%dlrover show real --logs worker-2 shows",
    ):
        assert words in end.message
    assert 0 < end.train.n_sample_done < end.train.n_sample_total


@pytest.mark.release
@pytest.mark.parametrize("sync", [Sync.ASP, Sync.SSP])
def test_late_pushes_of_a_worker_that_was_given_up_are_refused_and_it_ends(
    start_own: Callable[..., Job], tmp_path: Path, sync: Sync
) -> None:
    job = start_own(
        Freezing, n_epoch=25, plan=plan(2), backend=Unreachable, heartbeat_timeout_s=30.0, sync=sync
    )
    until((tmp_path / "pid").exists)
    frozen = psutil.Process(int((tmp_path / "pid").read_text()))
    name = next(node.id for node in job.now.nodes if node.pid == frozen.pid)
    lost = job.until(lambda _: job.story_has(f"{name} was lost: it sent no report for"))
    job.until(lambda now: now.train.returned > 0 and now.train.done > lost.train.done + 2)
    assert frozen.status() == psutil.STATUS_STOPPED

    frozen.send_signal(signal.SIGCONT)
    job.until(
        lambda _: any(f"refused Exchange of {name}" in line.text for line in job.driver.logs("ps-0", 1000))
    )
    until(lambda: is_gone(frozen.pid))
    written = (job.folder / "nodes" / f"{name}.err").read_text()
    assert f"{name} was given up by its master and ends" in written
    (tmp_path / "go").touch()
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.done == end.train.total
    assert end.train.n_sample_done == job.features.n_train * 25
    assert end.train.refused == 0


@pytest.mark.more
def test_workers_that_stand_still_put_no_rows_aside(start: Callable[..., Job]) -> None:
    """On a busy machine, in a snapshot of a virtual one: three in a row stood still at the same rows once."""
    job, stopped = start(n_epoch=3, heartbeat_timeout_s=8.0), set[str]()
    while len(stopped) < MAX_DEATHS:
        now = job.until(lambda now: any(n.role is Role.WORKER and n.pid for n in now.nodes))
        worker = next(n for n in now.nodes if n.role is Role.WORKER and n.pid)
        os.kill(worker.pid or 0, signal.SIGSTOP)
        stopped.add(worker.id)
        job.until(lambda now, gone=worker.id: gone not in {n.id for n in now.nodes})
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert (end.train.done, end.train.quarantined) == (end.train.total, 0)
    assert end.train.n_sample_done == job.features.n_train * 3
    assert all(job.story_has(f"{name} was lost") for name in stopped)
