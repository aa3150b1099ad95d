"""Where jobs run, as clients see it: the protocol `Cluster`, and the line of each job in its list."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.structs.job import JobPhase  # noqa: TC001 - a summary is decoded by its annotations

if TYPE_CHECKING:
    from collections.abc import Collection

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.cluster_access import ClusterAccess
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.summary import JobSummary


class Cluster(Protocol):
    """Where jobs run."""

    @property
    def simulated(self) -> bool:
        """Whether nothing here is real."""
        ...

    @property
    def description(self) -> str:
        """One line: what it is, where, and what it offers."""
        ...

    def capacity(self) -> Capacity:
        """Return what jobs may use."""
        ...

    def standing(self) -> ClusterAccess:
        """Return what who is connected is told beside capacity: facts, and what he may do."""
        ...

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        """Start a job and return at once.

        Parameters
        ----------
        model
            The user's own model instead of that of `spec`: a class or function as `dlrover_nb.trainable`
            describes, or its name ``package.module:name``.
        data
            The user's own rows instead of those of `spec`: an object with ``n_row`` and ``read(start, stop)``
            or ``rows(start)``, a class or function that makes one, or its name; see `core.data.own`.

        Raises
        ------
        InvalidValueError
            When a job of that name is there, the data is not what the specification says, or the user's own
            code does not do on a few rows what it should.
        CapacityError
            When the plan does not fit.
        """
        ...

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first: running ones, and those the history knows."""
        ...

    def live_jobs(self) -> tuple[JobSummary, ...]:
        """Return the jobs that a master answers for, at a price that a view of all can pay each second.

        A master that does not answer at once is left out. Raises `BackendError` when the cluster is gone.
        """
        ...

    def job(self, name: str) -> JobHandle:
        """Find a job by name; `NotFoundError` names the nearest ones."""
        ...

    def delete(self, name: str, *, force: bool = False) -> str:
        """Remove a job and what it left, all but its history, and say what was done.

        Raises
        ------
        InvalidValueError
            When it runs and `force` is not given, or where jobs leave nothing.
        NotFoundError
            When there is no such job.
        """
        ...

    def shutdown(self, *, force: bool = False) -> str:
        """End the cluster if this product started it, and say what was done; else only let go of it."""
        ...


def still_runs(name: str, phase: JobPhase) -> str:
    """Say that a job which runs is not deleted."""
    return f"job {name} runs ({phase}); stop {name} first, or delete {name} --force"


def name_taken(name: str, phase: JobPhase) -> str:
    """Say that a job of this name has not ended."""
    return f"a job named {name} is here already ({phase}); attach {name}, stop {name}, or choose another name"


def no_job(name: str, where: str, names: Collection[str], past: Collection[str] = ()) -> str:
    """Say that no master of a job is there (``at here:1``), and which job may have been meant."""
    if name in past:
        return f"job {name} is over and its master is gone; `%dlrover history {name}` shows what it did"
    near = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(name, past, n=1)
    hint = f"did you mean {near[0]}?" if near else f"jobs here: {', '.join(sorted(names)) or 'none'}"
    return f"no job {name!r} {where}; {hint}"
