"""The newest run of a job is the last one that was begun, whatever the machine's clock said."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from dlrover_nb.core.rundir import locate
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.rundir.pruning import job_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locate, "jobs_folder", lambda: tmp_path)
    return tmp_path


def begun(job: str) -> Path:
    folder = locate.new_run_folder(job)
    (folder / JOB).touch()
    return folder


def test_a_run_after_one_of_a_clock_ahead_is_still_the_newest(jobs: Path) -> None:
    year = time.localtime().tm_year
    ahead = jobs / f"clicks-{year + 1}1231T235959-999"
    ahead.mkdir()
    for job in ("clicks", "clicks-2"):
        first, second = begun(job), begun(job)
        assert ahead.name < first.name < second.name or job != "clicks"
        assert job_of(first) == job_of(second) == job
        assert locate.run_folder(job) == locate.newest_runs(jobs, JOB)[job] == second
    assert begun("clicks").name.startswith(f"clicks-{year + 2}0101T000000-00")


def test_runs_begun_at_once_have_folders_of_their_own(jobs: Path) -> None:
    folders = [begun("clicks") for _ in range(20)]
    assert folders == sorted(set(folders))


def test_a_run_is_named_by_the_date_of_its_start(jobs: Path) -> None:
    before = time.strftime("%Y%m%dT%H%M%S")
    name = begun("clicks").name
    assert f"clicks-{before}" <= name <= time.strftime("clicks-%Y%m%dT%H%M%S-999")


def test_runs_that_begin_at_once_have_folders_of_their_own(jobs: Path) -> None:
    n_run = 64
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(locate.new_run_folder, ["clicks"] * n_run))
    assert len(folders) == n_run
