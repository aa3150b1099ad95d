"""Deletes run folders of ended jobs, so that a user's jobs do not fill the disk over the years.

A folder is kept while any of these holds: its master is alive, it was written to in the last 30 days, it is
among the 50 newest, or it has the last model of its job's name, which users may still load. The history is
kept in any case; a folder's checkpoints, logs and journal are deleted with it.

Time counts from the last write to the journal, which a running job does every second, so that a job between
two masters never counts as ended. The master's lock is held while its folder is deleted.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.rundir.checkpoint_folder import MANIFEST
from dlrover_nb.core.rundir.job_file import JOB, MasterLock, read_job
from dlrover_nb.core.rundir.journal import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

logger = logging.getLogger(__name__)

N_KEPT = 50
KEPT_S = 30 * 86_400.0
_NAME = re.compile(r"(.+)-\d{8}T\d{6}-\d{3}")  # job and the time of its start


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run folder's data for pruning.

    Parameters
    ----------
    job
        The job's name.
    used_s
        Time of the last write to it.
    has_model
        Whether a model can be loaded from it.
    """

    path: Path
    job: str
    used_s: float
    has_model: bool


def too_old(folders: Iterable[RunFolder], at_s: float) -> tuple[RunFolder, ...]:
    """Return the folders to delete at `at_s`, oldest first."""
    newest_first = sorted(folders, key=lambda folder: folder.used_s, reverse=True)
    models: dict[str, RunFolder] = {}
    for folder in newest_first:
        if folder.has_model:
            models.setdefault(folder.job, folder)
    return tuple(
        folder
        for folder in reversed(newest_first[N_KEPT:])
        if at_s - folder.used_s > KEPT_S and models.get(folder.job) != folder
    )


def prune(jobs: Path, at_s: float) -> int:
    """Delete the run folders in `jobs` that are no longer needed; return how many.

    A folder that cannot be read or deleted is left, with a line in the log: no job depends on this space.
    """
    n_gone = 0
    for folder in too_old(_folders(jobs), at_s):
        try:
            lock = MasterLock(folder.path)
        except (BackendError, OSError):
            continue  # its master is alive, or it may not be written to
        try:
            shutil.rmtree(folder.path)
            n_gone += 1
        except OSError as error:
            logger.warning("the old run folder %s is left: %s", folder.path, error)
        finally:
            lock.release()
    if n_gone:
        logger.info("deleted %d run folders in %s, unused for over 30 days", n_gone, jobs)
    return n_gone


def remove(jobs: Path, job: str) -> int:
    """Delete all run folders of one job, and return how many.

    Raises
    ------
    BackendError
        When its master is still alive, or a folder cannot be deleted; earlier deletions stay.
    """
    found = [folder.path for folder in _folders(jobs) if folder.job == job]
    for path in found:
        try:
            lock = MasterLock(path)
            try:
                shutil.rmtree(path)
            finally:
                lock.release()
        except OSError as error:
            raise BackendError(
                f"the run folder {path} cannot be deleted ({error.strerror}); delete it by hand"
            ) from error
    return len(found)


def remove_released(jobs: Path, job: str, *, timeout_s: float = 10.0) -> int:
    """Delete as `remove`, after waiting for a master that was killed and still holds a folder.

    Folders deleted by failed tries count too.
    """
    end_s, n_run = time.monotonic() + timeout_s, sum(run.job == job for run in _folders(jobs))
    while True:
        try:
            remove(jobs, job)
            return n_run  # noqa: TRY300 - only where nothing was raised
        except BackendError:
            if time.monotonic() > end_s:
                raise
        time.sleep(0.05)


def job_of(run: Path) -> str | None:
    """Return the job that a run folder is named after; None when it is named otherwise."""
    name = _NAME.fullmatch(run.name)
    return name[1] if name else None


def _folders(jobs: Path) -> list[RunFolder]:
    """Return the run folders in a folder; other names are skipped."""
    found = []
    for path in sorted(jobs.glob("*")):
        job = job_of(path)
        if job is None or path.is_symlink() or not path.is_dir():
            continue
        try:
            found.append(RunFolder(path, job, _used_s(path), _has_model(path)))
        except OSError as error:
            logger.warning("the run folder %s cannot be looked at: %s", path, error)
    return found


def _used_s(path: Path) -> float:
    written = [file.stat().st_mtime for file in (path / JOURNAL, path / JOB) if file.exists()]
    return max(written, default=path.stat().st_mtime)


def _has_model(path: Path) -> bool:
    """Whether a checkpoint is here, or at an address that only this folder holds."""
    if any(path.glob(f"checkpoints/*/{MANIFEST}")):
        return True
    try:
        return bool(read_job(path).spec.checkpoint_url)
    except CheckpointError:
        return False
