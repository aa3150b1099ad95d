"""Which jobs this account has on this machine: for a person who looks for them in another place."""

from __future__ import annotations

from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.rundir.locate import newest_runs


def local_jobs() -> tuple[str, ...]:
    """Return the names of the jobs that were started as processes of this machine, newest first."""
    from dlrover_nb.core.backends.local.record import SUBMISSION  # noqa: PLC0415 - for this alone

    runs = newest_runs(jobs_folder(), SUBMISSION)
    return tuple(
        sorted(runs, key=lambda job: runs[job].name.removeprefix(job), reverse=True)
    )  # by their start


def has_ray() -> bool:
    """Whether a Ray of this account runs here; its jobs are known once it is asked."""
    from dlrover_nb.core.backends.ray.head import running_head  # noqa: PLC0415 - as above

    return running_head() is not None
