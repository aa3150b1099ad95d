"""Locates the run folder of a job, while it runs and long after."""

from __future__ import annotations

import time
from pathlib import Path

from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.files import writing_to
from dlrover_nb.core.paths import jobs_folder
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.rundir.pruning import job_of


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
    runs = [run for run in jobs_folder().glob(f"{job}-*") if job_of(run) == job]
    if not runs:
        raise NotFoundError(f"no job {job!r} ran on this machine; give the run folder of one, or its name")
    return max(runs)  # named by the time of their start


def new_run_folder(job: str) -> Path:
    """Make the run folder of a new job, for its owner alone."""
    stamp = time.strftime("%Y%m%dT%H%M%S") + f"{time.time() % 1:.3f}"[1:].replace(".", "-")
    folder = jobs_folder() / f"{job}-{stamp}"
    with writing_to(folder):
        folder.mkdir(mode=0o700, parents=True)
    return folder


def newest_runs(jobs: Path, holding: str) -> dict[str, Path]:
    """Return for each job its newest run folder in `jobs` that holds a file of this name."""
    runs: dict[str, Path] = {}
    for path in sorted(jobs.glob(f"*/{holding}"), key=lambda path: path.parent.name):
        if (job := job_of(path.parent)) is not None:
            runs[job] = path.parent
    return runs
