"""What nodes of a job write reaches who asks for it, whatever end they come to."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.driver.driver_world import DriverWorld
from support.driver.driver_world import succeeded as played_to_its_end
from support.driver.real_job import Job, training_held_at
from torch import nn

from dlrover_nb import trainable
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.rundir.job_file import read_job
from dlrover_nb.core.rundir.node_logs import read_logs
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.wire.messages import LinesWritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

N_ROW, POISON = 6000, 3000


class Rows:
    """Rows that say when they are read; one shard of them ends its worker in the way that is asked for."""

    n_row = N_ROW

    def __init__(self, end: str = "") -> None:
        self.end, self.has_rehearsed = end, False

    def read(self, start: int, stop: int) -> dict[str, Any]:
        print(f"reading {start} to {stop}")  # noqa: T201 - as users do
        logging.getLogger("rows").warning("row %d comes", start)
        if start <= POISON < stop and stop - start < N_ROW and "NODE" in os.environ.get("DN_TEST", ""):
            self.fail(start)
        at = np.arange(start, stop)
        return {"label": at % 2, "x": np.where(at % 2, 1.0, -1.0), "site": at % 5}

    def fail(self, start: int) -> None:
        if self.end == "error":
            raise ValueError(f"row {start} is broken")
        if self.end == "abort":
            os.write(2, b"library: invalid pointer\n")
            os.abort()


@trainable
class Net(nn.Module):
    def __init__(self, columns: Any) -> None:
        super().__init__()
        self.out = nn.Linear(columns.n_categorical * columns.row_width + columns.n_numeric, 1)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(torch.cat([embedded.flatten(1), dense], 1))
        return out.squeeze(1)


@pytest.fixture
def start_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Job]]:
    jobs = []

    def begin(end: str = "", **changes: Any) -> Job:
        spec = JobSpec("own", model=ModelSpec(embedding_dim=2), batch_size=50, shard_batches=10)
        prepared = validate_job(spec, model=Net, data=Rows(end))
        fields = {
            name: getattr(prepared.spec, name) for name in ("model", "data", "batch_size", "shard_batches")
        }
        job = Job(tmp_path, prepared.features, **(fields | changes))
        job.folder.mkdir(mode=0o700, exist_ok=True)
        prepared.write(job.folder)
        monkeypatch.setenv("DN_TEST", "NODE")  # the mistake shows on a node, not when the rows are looked at
        jobs.append(job)
        job.driver.start()
        return job

    yield begin
    for job in jobs:
        job.driver.close()


def lines(node: str, text: str) -> LinesWritten:
    """Return a printed line as its node sends it."""
    return LinesWritten(node, (LogLine(0.0, node, "stdout", text),), (len(text) + 1, 0))


def told(job: Job | DriverWorld, node: str | None = None, n_line: int = 1000) -> list[str]:
    return [line.text for line in JobHandle("own", job.driver).logs(node, n_line=n_line)]


@pytest.mark.more
def test_prints_and_logging_of_user_code_are_there_while_the_job_runs_and_after_it(
    start_own: Callable[..., Job],
) -> None:
    with training_held_at(20 * N_ROW):
        job = start_own(n_epoch=30)
        job.until(lambda _: {"reading 0 to 500", "rows: row 0 comes"} <= set(told(job)))
        (worker,) = {line.node for line in job.driver.logs(None, 1000) if line.level == "stdout"}
        levels = {line.text: line.level for line in job.driver.logs(worker, 1000)}
        assert levels["reading 0 to 500"] == "stdout"
        assert levels["rows: row 0 comes"] == "WARNING"
        job.driver.stop("ada")
        job.until_end()
    after = told(job)
    assert "reading 0 to 500" in after
    assert [line.text for line in read_logs(job.folder, n_line=1000)] == after
    secret = read_job(job.folder).secret_key
    assert not any(secret.encode() in path.read_bytes() for path in (job.folder / "logs").iterdir())


@pytest.mark.more
def test_a_worker_that_raises_has_its_traceback_in_the_log_and_its_error_in_the_jobs_message(
    start_own: Callable[..., Job],
) -> None:
    job = start_own("error", n_epoch=1)
    end = job.until_end()
    assert end.phase is JobPhase.FAILED
    assert "is broken" in end.message
    first = told(job, "worker-0")
    assert any("Traceback" in text for text in first)
    assert any("ValueError: row" in text and "is broken" in text for text in first)


@pytest.mark.more
def test_a_worker_that_crashes_in_c_has_its_last_words_in_the_log_and_in_the_story(
    start_own: Callable[..., Job],
) -> None:
    job = start_own("abort", n_epoch=1)
    job.until(lambda _: job.story_has("worker-0 was lost"))
    assert job.story_has("SIGABRT", "its last error: Fatal Python error: Aborted")
    assert "library: invalid pointer" in told(job, "worker-0")
    assert any(text.startswith("Fatal Python error: Aborted") for text in told(job, "worker-0"))


def test_lines_of_a_killed_worker_stay_and_its_successor_has_its_own(
    play: Callable[..., DriverWorld],
) -> None:
    job = play(n_epoch=3)
    job.until(lambda now: now.running)
    job.write("worker-0", "reading 0 to 40\n", "stdout")
    job.kill("worker-0")
    job.until(lambda now: now.running and "worker-1" in {node.id for node in now.nodes})
    job.nodes["worker-1"].say(lines("worker-1", "reading 40 to 80"))
    played_to_its_end(job, exactly_once=False)
    assert told(job, "worker-0") == ["reading 0 to 40"]
    assert told(job, "worker-1") == ["reading 40 to 80"]
    assert job.story_has("worker-0 was lost", "its log has no error, see %dlrover show real --logs worker-0")


def test_training_goes_on_when_no_log_can_be_written(
    play: Callable[..., DriverWorld], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run" / "logs").write_text("in the way")
    job = play()
    job.until(lambda now: now.running)
    job.nodes["worker-0"].say(lines("worker-0", "reading 0 to 40"))
    played_to_its_end(job)
    assert told(job) == ["reading 0 to 40"]


@pytest.mark.release
def test_training_goes_on_when_the_disk_is_full_of_what_nodes_write(
    start_own: Callable[..., Job], tmp_path: Path
) -> None:
    nodes = tmp_path / "run" / "nodes"
    nodes.mkdir(mode=0o700, parents=True)
    nodes.parent.chmod(0o700)
    for name in ("worker-0.out", "worker-0.err"):
        (nodes / name).symlink_to("/dev/full")
    end = start_own(n_epoch=1).until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert not any("worker-0 was lost" in line for line in end.story)


def test_a_run_folder_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(BackendError, match=r"cannot write to .*run: Not a directory; make it writable, or"):
        DriverWorld(tmp_path / "file", history=f"sqlite:///{tmp_path / 'history.db'}")
