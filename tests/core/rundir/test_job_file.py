"""The master's files in a run folder: who may read them, a disk that is full for a while, a kill amid an entry."""

from __future__ import annotations

import contextlib
import resource
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.rundir.job_file import (
    JOB,
    WRITE_AHEAD_LOG,
    JobFile,
    WriteAheadLogFile,
    read_job,
    read_write_ahead_log,
    write_job,
)
from dlrover_nb.core.runtime.write_ahead_log import Entry
from dlrover_nb.core.structs.features import FeatureSpec
from dlrover_nb.core.structs.job import JobSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST = Entry(None)
FEATURES = FeatureSpec("label", (), (), 90, 10)


def entries(n: int) -> list[Entry]:
    """Return entries that differ from each other."""
    return [Entry(None, changes=(bytes([i]) * i, b"")) for i in range(1, n + 1)]


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Let the kernel refuse every byte of every file of this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WriteAheadLogFile]:
    made = WriteAheadLogFile(tmp_path)
    made.begin(FIRST)
    yield made
    made.close()


def test_they_are_of_their_owner_alone_and_a_folder_without_them_is_none(
    log: WriteAheadLogFile, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="not a run folder of a job"):
        read_job(tmp_path)
    job = JobFile(JobSpec("job"), FEATURES, 0.0, "ipc:///run/master", "public", "secret")
    write_job(tmp_path, job)
    log.begin(FIRST)
    assert read_job(tmp_path) == job
    for name in (JOB, WRITE_AHEAD_LOG):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("n_entry", [1, 3])
def test_after_a_cut_at_any_byte_all_entries_before_it_are_read(tmp_path: Path, n_entry: int) -> None:
    log, written, ends = WriteAheadLogFile(tmp_path), [FIRST, *entries(n_entry)], []
    for number, entry in enumerate(written):
        (log.append if number else log.begin)(entry)
        ends.append((tmp_path / WRITE_AHEAD_LOG).stat().st_size)
    log.close()
    whole = (tmp_path / WRITE_AHEAD_LOG).read_bytes()
    for n_byte in range(len(whole) + 1):
        (tmp_path / WRITE_AHEAD_LOG).write_bytes(whole[:n_byte])
        assert list(read_write_ahead_log(tmp_path)) == written[: sum(end <= n_byte for end in ends)]


def test_a_log_that_could_not_be_written_is_gone_until_another_one_begins(
    log: WriteAheadLogFile, tmp_path: Path
) -> None:
    lost, after = entries(2)
    with full_disk():
        log.append(lost)
        assert log.is_lost
        log.begin(FIRST)
        assert log.is_lost
    log.append(after)
    with pytest.raises(CheckpointError, match="left no write-ahead log"):
        list(read_write_ahead_log(tmp_path))
    log.begin(lost)
    assert not log.is_lost
    log.append(after)
    assert list(read_write_ahead_log(tmp_path)) == [lost, after]


def test_a_master_that_cannot_begin_its_log_leaves_that_of_its_predecessor(
    log: WriteAheadLogFile, tmp_path: Path
) -> None:
    for entry in entries(2):
        log.append(entry)
    before = list(read_write_ahead_log(tmp_path))
    following = WriteAheadLogFile(tmp_path)
    with full_disk(), pytest.raises(BackendError, match="make room on its disk, and try again"):
        following.begin(FIRST)
    assert list(read_write_ahead_log(tmp_path)) == before
    following.begin(FIRST)
    following.close()
    assert list(read_write_ahead_log(tmp_path)) == [FIRST]


@given(st.lists(st.booleans(), max_size=20))
def test_whatever_the_disk_refuses_a_log_is_complete_or_there_is_none(
    tmp_path_factory: pytest.TempPathFactory, refusals: list[bool]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log, complete = WriteAheadLogFile(folder), [FIRST]
    log.begin(FIRST)
    for entry, refuses in zip(entries(len(refusals)), refusals, strict=True):
        with full_disk() if refuses else contextlib.nullcontext():
            if log.is_lost:
                complete = [entry]
                log.begin(entry)
            else:
                complete.append(entry)
                log.append(entry)
        if log.is_lost:
            assert not (folder / WRITE_AHEAD_LOG).exists()
        else:
            assert list(read_write_ahead_log(folder)) == complete
    log.close()
