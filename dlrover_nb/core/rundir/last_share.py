"""Reads from the run folder of a job whose master is gone how far the job had come.

Only the end of the journal is read, so that a list of many lost jobs takes no time. That of a job with a
recorded end is compressed and left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CheckpointError, NotFoundError
from dlrover_nb.core.rundir.find_checkpoint import CLOCK_S
from dlrover_nb.core.rundir.job_file import read_job
from dlrover_nb.core.rundir.journal import last_progress
from dlrover_nb.core.rundir.locate import run_folder

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.rundir.job_file import JobFile


def last_share(run: Path | str, began_s: float | None = None) -> float | None:
    """Return the share of the training samples that a run had done at its last report of progress, 0 to 1.

    Parameters
    ----------
    run
        A run folder, or the name of a job: its newest run on this machine.
    began_s
        When the run began (seconds since 1970); None: whenever it began.

    Returns
    -------
    float or None
        None where it is not known, or the folder is of a run that began at another time.
    """
    try:
        folder = run_folder(run)
        job = read_job(folder)
    except (CheckpointError, NotFoundError):
        return None
    if began_s is not None and abs(job.started_at_s - began_s) > CLOCK_S:
        return None
    n_total, last = _n_total(job), last_progress(folder)
    return last.n_sample_done / n_total if last is not None and n_total else None


def _n_total(job: JobFile) -> int:
    """Return the samples that are to be trained; 0: not known, as of a stream."""
    if job.spec.foreign is not None:
        return job.spec.foreign.n_sample
    return 0 if job.features.is_stream else job.features.n_train * job.spec.n_epoch
