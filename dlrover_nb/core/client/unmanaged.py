"""Jobs on a cluster that other tools manage: found by name, and refused where one is to be changed."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.client.cluster import ListsUnmanagedJobs
from dlrover_nb.core.errors import BackendError, NotFoundError, UnmanagedJobError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob

logger = logging.getLogger(__name__)


def unmanaged_jobs(cluster: Cluster) -> tuple[UnmanagedJob, ...]:
    """Return the jobs of others on a cluster, newest first; none on those where there are none.

    Raises
    ------
    BackendError
        When their system does not answer.
    """
    return cluster.unmanaged_jobs() if isinstance(cluster, ListsUnmanagedJobs) else ()


def unmanaged_job(cluster: Cluster, name: str) -> UnmanagedJob:
    """Return one of them; `NotFoundError` when there is none of that name."""
    for job in unmanaged_jobs(cluster):
        if job.name == name:
            return job
    raise NotFoundError(f"others run no job named {name!r} here; `jobs` lists what they run")


def unmanaged_log(cluster: Cluster, job: UnmanagedJob, n_line: int) -> tuple[str, ...]:
    """Return the last lines that one of them wrote; see `ListsUnmanagedJobs.unmanaged_log`."""
    return cluster.unmanaged_log(job, n_line) if isinstance(cluster, ListsUnmanagedJobs) else ()


@contextlib.contextmanager
def refused_where_unmanaged(cluster: Cluster, name: str) -> Iterator[None]:
    """Raise `UnmanagedJobError` instead of `NotFoundError` where the job is one of others."""
    try:
        yield
    except NotFoundError as error:
        try:
            job = unmanaged_job(cluster, name)
        except NotFoundError:
            raise error from None
        except BackendError as silent:
            logger.info("jobs of others are not known: %s", silent)
            raise error from None
        raise UnmanagedJobError(job.refusal) from error
