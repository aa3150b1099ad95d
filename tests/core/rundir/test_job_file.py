"""The master's files in a run folder: who may read them, a disk that is full for a while, a kill amid an entry."""

from __future__ import annotations

import contextlib
import resource
import stat
import struct
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlrover_nb.core.codec import Tagged, to_json
from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.master.own.write_ahead_log import Entry
from dlrover_nb.core.rundir.job_file import JOB, WRITE_AHEAD_LOG, JobFile, read_job, write_job
from dlrover_nb.core.rundir.log_file import LogDamage, ReadLog, WriteAheadLogFile, read_log_file
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec

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


def old_frame(entry: Entry) -> bytes:
    """Return an entry as releases without a head wrote it."""
    data = Tagged(Entry).pack(entry)
    return struct.pack("<II", len(data), zlib.crc32(data)) + data


@st.composite
def damages(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return what a disk may make of a log."""
    n = len(whole)
    at, other = draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))
    start, stop = min(at, other), max(at, other) + 1
    damaged = draw(
        st.sampled_from(
            [
                whole[:at] + bytes([whole[at] ^ 1 << draw(st.integers(0, 7))]) + whole[at + 1 :],
                whole[:at],
                whole[:start] + whole[stop:],
                whole[:start] + bytes(stop - start) + whole[stop:],
                whole[:stop] + whole[start:],
                whole[stop:] + whole[:stop],
            ]
        )
    )
    assume(not damaged.startswith(whole))  # something behind the last entry is one that was being written
    return damaged


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WriteAheadLogFile]:
    made = WriteAheadLogFile(tmp_path)
    made.begin(FIRST)
    yield made
    made.close()


def test_they_are_of_their_owner_alone_and_a_folder_without_them_is_none(
    log: WriteAheadLogFile, tmp_path: Path, error_words
) -> None:
    with error_words(CheckpointError):
        read_job(tmp_path)
    job = JobFile(JobSpec("job"), FEATURES, 0.0, "ipc:///run/master", "public", "secret")
    write_job(tmp_path, job)
    log.begin(FIRST)
    assert read_job(tmp_path) == job
    for name in (JOB, WRITE_AHEAD_LOG):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def states(folder: Path, written: list[Entry]) -> list[bytes]:
    """Return the content of a log after each of these entries."""
    log, found = WriteAheadLogFile(folder), []
    for number, entry in enumerate(written):
        (log.append if number else log.begin)(entry)
        found.append((folder / WRITE_AHEAD_LOG).read_bytes())
    log.close()
    return found


def read(folder: Path, content: bytes) -> ReadLog:
    """Return what is read of a log of this content."""
    (folder / WRITE_AHEAD_LOG).write_bytes(content)
    return read_log_file(folder)


@pytest.mark.parametrize("n_entry", [1, 3])
def test_after_a_kill_at_any_byte_all_entries_before_it_are_read(tmp_path: Path, n_entry: int) -> None:
    written = [FIRST, *entries(n_entry)]
    contents = states(tmp_path, written)
    for number, (before, after) in enumerate(pairwise(contents), 1):
        for n_byte in range(len(before), len(after) + 1):  # the head counts an entry once it is whole
            log = read(tmp_path, before + after[len(before) : n_byte])
            assert log.damage is None
            assert list(log.entries) == written[: number + (n_byte == len(after))]


@given(data=st.data())
def test_what_a_disk_changes_of_a_log_is_damage_with_all_entries_before_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    written = [FIRST, *entries(data.draw(st.integers(1, 6)))]
    whole = states(folder, written)[-1]
    damaged = data.draw(damages(whole))
    log = read(folder, damaged)
    assert log.damage is not None, (whole, damaged)
    assert list(log.entries) == written[: log.damage.entry - 1]
    assert log.damage.n_after == len(log.after)
    assert all(entry in written for entry in log.after)


@pytest.mark.parametrize("n_before", [0, 2])
def test_a_log_of_an_earlier_release_is_damaged_where_whole_entries_follow_a_bad_one(
    tmp_path: Path, n_before: int
) -> None:
    written = [FIRST, *entries(4)]
    frames = [old_frame(entry) for entry in written]
    torn = b"".join(frames)[:-1]
    log = read(tmp_path, torn)
    assert (log.damage, list(log.entries)) == (None, written[:-1])
    frames[n_before] = frames[n_before][:-1] + b"\xff"
    log = read(tmp_path, b"".join(frames))
    assert log.damage == LogDamage(n_before + 1, len(written) - n_before - 1)
    assert list(log.entries) == written[:n_before]
    assert list(log.after) == written[n_before + 1 :]


@pytest.mark.parametrize("n_flip", range(8))
def test_a_job_file_with_a_flipped_bit_is_refused_with_the_way_out(tmp_path: Path, n_flip: int) -> None:
    job = JobFile(JobSpec("job"), FEATURES, 0.0, "ipc:///run/master", "public", "secret")
    write_job(tmp_path, job)
    whole = (tmp_path / JOB).read_bytes()
    n_checksum = len(b',"crc32":"00000000"}')  # a letter of its name may differ: the job is as it was
    for at in range(0, len(whole) - n_checksum, 5):
        changed = bytearray(whole)
        changed[at] ^= 1 << n_flip
        (tmp_path / JOB).write_bytes(changed)
        with pytest.raises(CheckpointError, match=r"job.json is damaged: .*restore it .*start_from: .*check"):
            read_job(tmp_path)


def test_a_job_file_of_a_release_without_checksums_is_read(tmp_path: Path) -> None:
    job = JobFile(JobSpec("job"), FEATURES, 0.0, "ipc:///run/master", "public", "secret")
    (tmp_path / JOB).write_bytes(to_json(job))
    assert read_job(tmp_path) == job


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
        list(read_log_file(tmp_path).entries)
    log.begin(lost)
    assert not log.is_lost
    log.append(after)
    assert list(read_log_file(tmp_path).entries) == [lost, after]


def test_a_master_that_cannot_begin_its_log_leaves_that_of_its_predecessor(
    log: WriteAheadLogFile, tmp_path: Path, error_words
) -> None:
    for entry in entries(2):
        log.append(entry)
    before = list(read_log_file(tmp_path).entries)
    following = WriteAheadLogFile(tmp_path)
    with full_disk(), error_words(BackendError):
        following.begin(FIRST)
    assert list(read_log_file(tmp_path).entries) == before
    following.begin(FIRST)
    following.close()
    assert list(read_log_file(tmp_path).entries) == [FIRST]


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
            assert list(read_log_file(folder).entries) == complete
    log.close()
