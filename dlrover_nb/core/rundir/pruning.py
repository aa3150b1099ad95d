"""Deletes run folders of ended jobs, so that a user's jobs do not fill the disk over the years.

A folder is kept while any of these holds: its master is alive, it was written to in the last 30 days, it is
among the 50 newest, or it has the last model of its job's name, which users may still load. Where the
variable `DLROVER_NB_RUNS_GIB` limits what all folders may take, the oldest of the kept ones are deleted too
until they fit, but for those with a last model or written to within a day: a job whose master was lost
overnight can still be resumed. There is no limit by default, because models would be deleted that no user
agreed to lose. The history is kept in any case; a folder's checkpoints, logs and journal are deleted with it.

A job's master does it when it begins: in pods too, where run folders are on a volume. Namespaces that share a
volume count as one.

Time counts from the last write to the journal, which a running job does every second, so that a job between
two masters never counts as ended. The master's lock is held while its folder is deleted.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError, CheckpointError
from dlrover_nb.core.rundir.checkpoint_folder import MANIFEST
from dlrover_nb.core.rundir.job_file import JOB, MasterLock, read_job

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger(__name__)

N_KEPT = 50
KEPT_S = 30 * 86_400.0
SETTLED_S = 86_400.0  # without a write, until a folder may be deleted for its size
SIZE_VAR = "DLROVER_NB_RUNS_GIB"  # variable: GiB that the run folders of this user may take
_NAME = re.compile(r"(.+)-\d{8}T\d{6}-\d{3}")  # job and the time of its start
_NAME_IN_PODS = re.compile(r"(.+)-[0-9a-f]{8}")  # job and its run


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
    n_byte
        Its size on the disk; 0 where that does not matter.
    is_held
        Whether its master is alive.
    """

    path: Path
    job: str
    used_s: float
    has_model: bool
    n_byte: int = 0
    is_held: bool = False


def too_old(
    folders: Iterable[RunFolder], at_s: float, *, most_byte: float = math.inf
) -> tuple[RunFolder, ...]:
    """Return the folders to delete at `at_s`, oldest first.

    Parameters
    ----------
    most_byte
        What all folders may take.
    """
    newest_first = sorted(folders, key=lambda folder: folder.used_s, reverse=True)
    models: dict[str, RunFolder] = {}
    for folder in newest_first:
        if folder.has_model:
            models.setdefault(folder.job, folder)
    spare = [f for f in reversed(newest_first) if models.get(f.job) != f and not f.is_held]
    numbered = {folder.path for folder in newest_first[:N_KEPT]}
    n_byte, gone = sum(folder.n_byte for folder in newest_first), []
    for folder in spare:
        unused_s = at_s - folder.used_s
        is_old = unused_s > KEPT_S and folder.path not in numbered
        if is_old or (n_byte > most_byte and unused_s > SETTLED_S):
            gone.append(folder)
            n_byte -= folder.n_byte
    return tuple(gone)


def prune(jobs: Path, at_s: float) -> int:
    """Delete the run folders in `jobs` that are no longer needed; return how many.

    A folder that cannot be read or deleted is left, with a line in the log: no job depends on this space.
    """
    n_gone, most_byte = 0, size_limit(os.environ.get(SIZE_VAR, ""))
    folders = _folders(jobs, is_sized=most_byte < math.inf)
    for folder in too_old(folders, at_s, most_byte=most_byte):
        try:
            lock = MasterLock(folder.path)
        except (BackendError, OSError):
            continue  # its master is alive, or it may not be written to
        try:
            shutil.rmtree(folder.path)
            n_gone += 1
        except OSError as error:
            logger.warning("the old run folder %s cannot be deleted: %s", folder.path, error)
        finally:
            lock.release()
    if n_gone:
        logger.info("deleted %d run folders in %s, too old or over %s", n_gone, jobs, SIZE_VAR)
    return n_gone


def size_limit(text: str) -> float:
    """Return the bytes that all run folders may take, as a variable's text has it; infinite without one."""
    if not text:
        return math.inf
    try:
        gib = float(text)
    except ValueError:
        gib = math.nan
    if not gib > 0:
        logger.warning(
            "%s must be a number of GiB above 0, got %r; nothing is deleted by size", SIZE_VAR, text
        )
        return math.inf
    return gib * (1 << 30)


def remove(jobs: Path, job: str) -> int:
    """Delete all run folders of one job, and return how many.

    Raises
    ------
    BackendError
        When its master is still alive, or a folder cannot be deleted; earlier deletions stay.
    """
    paths = [folder.path for folder in _folders(jobs) if folder.job == job]
    for path in paths:
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
    return len(paths)


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
    """Return the job that a run folder is named after; None when it is named otherwise.

    Other folders may have names like those in pods, on a volume that is used for more: there a job must be.
    """
    name = _NAME.fullmatch(run.name)
    if name is None and (run / JOB).is_file():
        name = _NAME_IN_PODS.fullmatch(run.name)
    return name[1] if name else None


def _folders(jobs: Path, *, is_sized: bool = False) -> list[RunFolder]:
    """Return the run folders in a folder; other names are skipped."""
    folders = []
    for path in sorted(jobs.glob("*")):
        job = job_of(path)
        if job is None or path.is_symlink() or not path.is_dir():
            continue
        try:
            folder = RunFolder(path, job, _used_s(path), _has_model(path))
            if is_sized:
                folder = replace(folder, n_byte=_n_byte(path), is_held=is_held(path))
            folders.append(folder)
        except OSError as error:
            logger.warning("the run folder %s cannot be read: %s", path, error)
    return folders


def _used_s(path: Path) -> float:
    written = [file.stat().st_mtime for file in (*path.glob("journal*"), *path.glob(JOB))]
    return max(written, default=path.stat().st_mtime)


def _n_byte(path: Path) -> int:
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(file.lstat().st_blocks * 512 for file in files)


def is_held(path: Path) -> bool:
    """Whether a master runs in a run folder, or its lock cannot be read."""
    try:
        MasterLock(path).release()
    except (BackendError, OSError):
        return True
    return False


def _has_model(path: Path) -> bool:
    """Whether a checkpoint is here, or at an address that only this folder holds."""
    if any(path.glob(f"checkpoints/*/{MANIFEST}")):
        return True
    try:
        return bool(read_job(path).spec.checkpoint_url)
    except CheckpointError:
        return False
