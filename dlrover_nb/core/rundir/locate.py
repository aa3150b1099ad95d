"""Where the run folder of a job lies, while it runs and long after."""

from __future__ import annotations

from pathlib import Path

from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.paths import jobs_folder
from dlrover_nb.core.rundir.job_file import JOB


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
    runs = [
        run for run in jobs_folder().glob(f"{job}-*") if run.name.rpartition("-")[0].rpartition("-")[0] == job
    ]
    if not runs:
        raise NotFoundError(f"no job {job!r} ran on this machine; give the run folder of one, or its name")
    return max(runs)  # named by the time of their start
