"""Run folders of release 0.1 are read whole, and a job of it goes on under this release."""

from __future__ import annotations

import fcntl
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.client.trained_model import load_model
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import make_features
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.job_file import read_job
from dlrover_nb.core.rundir.journal import read_events
from dlrover_nb.core.rundir.log_file import read_log_file
from dlrover_nb.core.rundir.node_logs import read_logs
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.events import JobSubmitted, PhaseChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

FIXTURES = Path(__file__).with_name("fixtures") / "release_0_1"
THERE = Path("/tmp/dlrover-nb-release-0-1")  # the files name it


@pytest.fixture
def unpacked() -> Iterator[Path]:
    """Return the folder that both run folders lie in, for one test process at a time."""
    if not (path := THERE.with_suffix(".lock")).exists():
        path.touch()
    with path.open() as lock:  # to read: another user of this machine may have made it
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(THERE, ignore_errors=True)
        THERE.mkdir(mode=0o700)
        for path in FIXTURES.glob("*.tar.xz"):
            with tarfile.open(path) as archive:
                archive.extraction_filter = getattr(tarfile, "data_filter", None)  # new in 3.11.4
                archive.extractall(THERE)
        for folder in THERE.iterdir():
            folder.chmod(0o700)
        yield THERE
        shutil.rmtree(THERE)


@pytest.mark.parametrize("name", ["finished", "interrupted"])
def test_every_file_of_a_run_folder_is_read(unpacked: Path, name: str) -> None:
    folder = unpacked / name
    job = read_job(folder)
    assert job.spec.name == name
    assert job.spec.foreign is None
    entries = list(read_log_file(folder).entries)
    assert entries[0].ledgers is not None
    assert entries[-1].changes is not None
    events = list(read_events(folder))
    assert isinstance(events[0], JobSubmitted)
    assert isinstance(events[1], PhaseChanged)
    manifest = CheckpointFolder(folder).latest()
    assert manifest is not None
    assert manifest.n_row > 0
    assert any("serves" in line.text for line in read_logs(folder, "ps-0"))


def test_the_model_of_a_finished_job_is_loaded(unpacked: Path) -> None:
    model = load_model(unpacked / "finished")
    assert model is not None


@pytest.mark.more
def test_an_interrupted_job_is_resumed_and_trains_every_row_once(unpacked: Path) -> None:
    folder = unpacked / "interrupted"
    job = read_job(folder)
    here = make_features(job.spec.data, job.spec.model)
    ids = tuple(replace(column, form=None) for column in here.categorical)  # forms and types are kept since
    assert replace(job.features, numeric=()) == replace(here, numeric=(), categorical=ids, trained_types="")
    for then, now in zip(
        job.features.numeric, here.numeric, strict=True
    ):  # processors differ in the last digits
        assert (then.name, then.mean, then.std) == (now.name, pytest.approx(now.mean), pytest.approx(now.std))
    n_event = len(list(read_events(folder)))
    loop = own_job.resume(
        own_job.RunSetup(
            LocalBackend(folder, cpus=3.0, outlive=True),
            folder,
            history_url=f"sqlite:///{folder / 'history.db'}",
            clock=SystemClock(),
        )
    )
    n_before = loop.snapshot().train.n_sample_done
    loop.start()
    try:
        assert loop.join(LIMIT_S), loop.snapshot().message
    finally:
        loop.close()
    end = loop.snapshot()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert 0 < n_before < end.train.n_sample_done == job.features.n_train * job.spec.n_epoch
    assert end.started_at_s == job.started_at_s
    assert any("restarted and takes over 2 nodes" in line for line in end.story)
    events = list(read_events(folder))
    assert len(events) > n_event
    assert sum(isinstance(event, JobSubmitted) for event in events) == 1
