"""Old run folders go, but none that a job or a person still needs."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.rundir.job_file import JobFile, MasterLock, write_job
from dlrover_nb.core.rundir.pruning import (
    KEPT_S,
    N_KEPT,
    SETTLED_S,
    SIZE_VAR,
    RunFolder,
    prune,
    remove,
    remove_released,
    size_limit,
    too_old,
)
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec

NOW_S = 2_000_000_000.0
OLD_S = NOW_S - KEPT_S - 1
FEATURES = FeatureSpec("label", (), (), 10, 0)

folders = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(0, NOW_S), st.booleans()), max_size=3 * N_KEPT
).map(lambda made: [RunFolder(Path(str(i)), *each) for i, each in enumerate(made)])


@given(folders)
def test_only_what_nobody_needs_goes(found: list[RunFolder]) -> None:
    gone = too_old(found, NOW_S)
    left = [folder for folder in found if folder not in gone]
    assert len(left) >= min(len(found), N_KEPT)
    assert all(NOW_S - folder.used_s > KEPT_S for folder in gone)
    for job in {folder.job for folder in found if folder.has_model}:
        models = [folder for folder in found if folder.job == job and folder.has_model]
        assert max(models, key=lambda folder: folder.used_s) in left
    newest = sorted((folder.used_s for folder in found), reverse=True)[:N_KEPT]
    assert all(folder.used_s <= newest[-1] for folder in gone)


@given(folders)
def test_what_is_left_is_bounded_by_what_is_new_and_the_last_models(found: list[RunFolder]) -> None:
    left = len(found) - len(too_old(found, NOW_S))
    new = sum(NOW_S - folder.used_s <= KEPT_S for folder in found)
    assert left <= max(N_KEPT, new) + len({folder.job for folder in found})


sized = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(0, NOW_S), st.booleans(), st.integers(0, 100)),
    max_size=2 * N_KEPT,
).map(lambda made: [RunFolder(Path(str(i)), *each) for i, each in enumerate(made)])


@given(sized, st.integers(0, 3000))
def test_a_limit_of_size_takes_the_oldest_that_nobody_needs_and_no_more(
    found: list[RunFolder], most_byte: int
) -> None:
    by_age, gone = too_old(found, NOW_S), too_old(found, NOW_S, most_byte=most_byte)
    left = [folder for folder in found if folder not in gone]
    assert set(by_age) <= set(gone)
    for job in {folder.job for folder in found if folder.has_model}:
        models = [folder for folder in found if folder.job == job and folder.has_model]
        assert max(models, key=lambda folder: folder.used_s) in left
    assert all(NOW_S - folder.used_s > SETTLED_S for folder in gone)
    n_byte = sum(folder.n_byte for folder in left)
    for_size = [folder for folder in gone if folder not in by_age]
    if for_size:
        assert n_byte + for_size[-1].n_byte > most_byte
    if n_byte > most_byte:
        models = {max((f for f in found if f.job == j and f.has_model), key=lambda f: f.used_s, default=None)
                  for j in "abc"}  # fmt: skip
        assert all(folder in models or NOW_S - folder.used_s <= SETTLED_S for folder in left)


def _made(jobs: Path, job: str, number: int, at_s: float, *, model: bool = False, url: str = "") -> Path:
    path = jobs / f"{job}-20250101T000000-{number:03d}"
    path.mkdir(parents=True)
    spec = JobSpec(job, checkpoint_url=url)
    write_job(path, JobFile(spec, FEATURES, at_s, "", "", ""))
    (path / "journal.jsonl").write_text("")
    if model:
        (path / "checkpoints" / "1").mkdir(parents=True)
        (path / "checkpoints" / "1" / "manifest.json").write_text("{}")
    for file in (path / "job.json", path / "journal.jsonl", path):
        os.utime(file, (at_s, at_s))
    return path


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Return a folder with as many newer runs as are kept in any case."""
    for i in range(N_KEPT):
        _made(tmp_path / "jobs", "new", i, NOW_S - 1)
    return tmp_path / "jobs"


def test_an_old_folder_is_deleted_whole_and_the_others_are_left(jobs: Path) -> None:
    before = sorted(jobs.iterdir())
    old = _made(jobs, "old", 1, OLD_S)
    assert prune(jobs, NOW_S) == 1
    assert not old.exists()
    assert sorted(jobs.iterdir()) == before
    assert prune(jobs, NOW_S) == 0


def test_folders_of_runs_in_pods_go_too_and_others_with_such_names_stay(jobs: Path) -> None:
    old = _made(jobs, "old", 1, OLD_S).rename(jobs / "old-0a1b2c3d")
    rows = jobs / "rows-0a1b2c3d"
    rows.mkdir()
    os.utime(rows, (OLD_S, OLD_S))
    assert prune(jobs, NOW_S) == 1
    assert not old.exists()
    assert rows.exists()


def test_a_folder_whose_master_lives_or_that_is_written_to_stays(jobs: Path) -> None:
    locked, written = (_made(jobs, job, 1, OLD_S) for job in ("locked", "written"))
    os.utime(written / "journal.jsonl", (NOW_S, NOW_S))
    lock = MasterLock(locked)
    assert prune(jobs, NOW_S) == 0
    assert (written / "job.json").exists()
    lock.release()
    assert prune(jobs, NOW_S) == 1
    assert written.exists()
    assert not locked.exists()


def test_a_folder_without_locks_is_told_from_one_with_a_living_master(
    jobs: Path, monkeypatch, error_words
) -> None:
    folder = _made(jobs, "old", 1, OLD_S)
    held = MasterLock(folder)
    with pytest.raises(BackendError, match="has a running master"):
        MasterLock(folder)
    held.release()

    def no_lock(_file: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    with error_words(BackendError):
        MasterLock(folder)


def test_the_last_model_of_a_name_stays_wherever_its_checkpoint_lies(jobs: Path) -> None:
    earlier = _made(jobs, "ctr", 1, OLD_S - 9, model=True)
    last = _made(jobs, "ctr", 2, OLD_S - 5, model=True)
    later_without = _made(jobs, "ctr", 3, OLD_S - 1)
    elsewhere = _made(jobs, "far-away", 1, OLD_S - 7, url="s3://bucket/x")
    assert prune(jobs, NOW_S) == 2
    assert [path.exists() for path in (earlier, last, later_without, elsewhere)] == [False, True, False, True]


def test_what_is_no_run_folder_is_left_alone(jobs: Path, tmp_path: Path) -> None:
    other = _made(jobs, "old", 1, OLD_S).rename(jobs / "my notes")
    target = _made(tmp_path / "elsewhere", "old", 2, OLD_S)
    (jobs / target.name).symlink_to(target)
    file = jobs / "old-20250101T000000-003"
    file.write_text("")
    assert prune(jobs, NOW_S) == 0
    assert (other.exists(), target.exists(), file.exists()) == (True, True, True)


def test_a_folder_without_a_job_in_it_goes_too_and_no_folder_at_all_is_fine(
    jobs: Path, tmp_path: Path
) -> None:
    empty = _made(jobs, "empty", 1, OLD_S)
    for file in ("job.json", "journal.jsonl"):
        (empty / file).unlink()
    os.utime(empty, (OLD_S, OLD_S))
    assert prune(jobs, NOW_S) == 1
    assert not empty.exists()
    assert prune(tmp_path / "nowhere", NOW_S) == 0


def test_all_runs_of_a_deleted_job_go_and_those_of_others_stay(jobs: Path) -> None:
    before = sorted(jobs.iterdir())
    first, last = (_made(jobs, "ctr", i, NOW_S, model=True) for i in (1, 2))
    other = _made(jobs, "ctr-b", 1, NOW_S)
    lock = MasterLock(last)
    with pytest.raises(BackendError, match="has a running master"):
        remove(jobs, "ctr")
    lock.release()
    remove(jobs, "ctr")
    assert sorted(jobs.iterdir()) == sorted([*before, other])
    assert remove(jobs, "ctr") == 0
    assert not first.exists()


def test_runs_that_are_deleted_before_one_is_released_count_too(jobs: Path) -> None:
    for i in (1, 2):
        _made(jobs, "ctr", i, NOW_S)
    lock = MasterLock(jobs / max(path.name for path in jobs.glob("ctr-*")))
    releasing = threading.Timer(0.2, lock.release)
    releasing.start()
    assert remove_released(jobs, "ctr", timeout_s=60) == 2
    releasing.join()


def test_folders_over_the_limit_of_size_go_but_none_of_a_running_or_a_recent_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, day_s = tmp_path / "jobs", 86_400.0
    running, oldest, older, recent = (
        _made(jobs, job, 1, NOW_S - age * day_s)
        for job, age in (("running", 9), ("oldest", 8), ("older", 7), ("recent", 0.5))
    )
    for path in (running, oldest, older, recent):
        (path / "logs").mkdir()
        (path / "logs" / "node").write_bytes(os.urandom(3 << 20))
    lock = MasterLock(running)
    assert prune(jobs, NOW_S) == 0
    monkeypatch.setenv(SIZE_VAR, str(10 / 1024))
    assert prune(jobs, NOW_S) == 1  # the running one is in the sum, and stays
    assert [path.exists() for path in (running, oldest, older, recent)] == [True, False, True, True]
    monkeypatch.setenv(SIZE_VAR, str(1 / 1024))
    assert prune(jobs, NOW_S) == 1
    assert [path.exists() for path in (running, older, recent)] == [True, False, True]
    lock.release()


@pytest.mark.parametrize("text", ["0", "-1", "much", "nan"])
def test_a_limit_that_is_none_deletes_nothing_and_is_told(text: str, caplog, words) -> None:
    assert size_limit(text) == float("inf") == size_limit("")
    assert caplog.messages == words
    assert size_limit("1.5") == 1.5 * 2**30
