"""Locates the run folder of a job, while it runs and long after."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.disk.files import make_folder, sync_folder, writing_to
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.rundir.pruning import job_of

_STAMP = "%Y%m%dT%H%M%S-%f"


def run_folder(job: Path | str) -> Path:
    """Return the run folder of a job.

    Parameters
    ----------
    job
        A name (the newest run of that name on this machine), or a run folder.

    Raises
    ------
    NotFoundError
        When no job of that name ran here.
    """
    path = Path(job).expanduser()
    if path.is_dir() and (path / JOB).exists():
        return path
    runs = [run for run in jobs_folder().glob("*") if job_of(run) == job]
    if not runs:
        raise NotFoundError(
            f"no job {shown(job)} ran on this machine; give the run folder of one, or its name"
        )
    return max(runs)  # named by the time of their start


def new_run_folder(job: str) -> Path:
    """Make the run folder of a new job, for its owner alone.

    Its name is after that of every earlier run, also when clocks were set back, as they are each autumn, and
    where another run of this name begins within the same millisecond.
    """
    jobs = jobs_folder()
    with writing_to(jobs):
        make_folder(jobs)
        while not _is_made(folder := _after_earlier_runs(job, jobs)):
            pass
        sync_folder(jobs)
    return folder


def _is_made(folder: Path) -> bool:
    """Make a folder, unless another process made it just now."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def _after_earlier_runs(job: str, jobs: Path) -> Path:
    now = datetime.now().astimezone()
    folder = jobs / f"{job}-{_stamp(now)}"
    earlier = [run.name for run in jobs.glob(f"{job}-*") if job_of(run) == job]
    if earlier and folder.name <= max(earlier):
        last = datetime.strptime(max(earlier)[len(job) + 1 :], _STAMP).replace(tzinfo=now.tzinfo)
        folder = jobs / f"{job}-{_stamp(last + timedelta(milliseconds=1))}"
    return folder


def _stamp(at: datetime) -> str:
    return at.strftime(_STAMP)[:-3]  # to the millisecond


def newest_runs(jobs: Path, holding: str) -> dict[str, Path]:
    """Return for each job its newest run folder in `jobs` that holds a file of this name."""
    runs: dict[str, Path] = {}
    for path in sorted(jobs.glob(f"*/{holding}"), key=lambda path: path.parent.name):
        if (job := job_of(path.parent)) is not None:
            runs[job] = path.parent
    return runs
