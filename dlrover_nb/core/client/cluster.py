"""The protocol `Cluster`: a place where jobs run, and the line of each job in its list."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.client.handle import user_name
from dlrover_nb.core.structs.job.job import JobPhase  # noqa: TC001 - a summary is decoded by its annotations

if TYPE_CHECKING:
    from collections.abc import Collection

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad
    from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob
    from dlrover_nb.core.structs.cluster.waits import QueueWait
    from dlrover_nb.core.structs.decisions.people import AccessRole, Person
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.summary import JobSummary


class Cluster(Protocol):
    """Where jobs run."""

    @property
    def simulated(self) -> bool:
        """Whether the cluster is simulated."""
        ...

    @property
    def user(self) -> str:
        """The account that the cluster knows this client as: the author of its commands."""
        ...

    @property
    def namespace(self) -> str:
        """Where jobs run; empty on clusters without namespaces."""
        ...

    @property
    def description(self) -> str:
        """One line: kind, address and capacity."""
        ...

    def capacity(self) -> Capacity:
        """Return the capacity for jobs."""
        ...

    def load(self) -> ClusterLoad:
        """Return what each machine has, who holds it, and what is used, as far as this user may read it.

        Raises
        ------
        BackendError
            When the cluster does not answer. What may not be read is None there, and a note says why.
        """
        ...

    def standing(self) -> ClusterAccess:
        """Return what is shown on connecting beside capacity: facts, and the user's rights."""
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
            or ``rows(start)``, a class or function that makes one, or its name; see
            `core.data.objects.own_source`.

        Raises
        ------
        InvalidValueError
            When a job of that name exists, the data does not match the specification, or the user's own code
            fails on a few rows.
        CapacityError
            When the plan does not fit.
        """
        ...

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first: running ones, and those of the history."""
        ...

    def live_jobs(self) -> tuple[JobSummary, ...]:
        """Return the jobs whose masters answer, cheaply enough for a view of all jobs each second.

        A master that does not answer at once is left out. Raises `BackendError` when the cluster is gone.
        """
        ...

    def job(self, name: str) -> JobHandle:
        """Find a job by name; `NotFoundError` names the nearest ones."""
        ...

    def delete(self, name: str, *, force: bool = False) -> str:
        """Delete a job and what it left, all but its history, and return what was done.

        Raises
        ------
        InvalidValueError
            When it runs and `force` is not given, or where jobs leave nothing.
        NotFoundError
            When there is no such job.
        """
        ...

    def shutdown(self, *, force: bool = False) -> str:
        """End the cluster if this product started it, else disconnect; return what was done."""
        ...


class OfThisAccount:
    """What clusters share that know neither people nor namespaces: each caller is this account."""

    @property
    def user(self) -> str:
        """The account of this process."""
        return user_name()

    @property
    def namespace(self) -> str:
        """None: all jobs are in one place."""
        return ""


@runtime_checkable
class KnowsPeople(Protocol):
    """A cluster that knows people by their names, and can be asked as one of them."""

    def acting_as(self, person: Person) -> Cluster:
        """Return the same cluster, asked as a person: it decides what they may."""
        ...

    def role_of_user(self) -> AccessRole | None:
        """Return what the user of this connection is to the jobs here; None: they may not see them."""
        ...


@runtime_checkable
class HasQueues(Protocol):
    """A cluster where others than its scheduler may hold jobs back."""

    def queue_waits(self) -> tuple[QueueWait, ...]:
        """Return the jobs that a queue holds back; none where no queue can be read."""
        ...


@runtime_checkable
class ListsUnmanagedJobs(Protocol):
    """A cluster where other tools run jobs that can be read."""

    def unmanaged_jobs(self) -> tuple[UnmanagedJob, ...]:
        """Return them, newest first; `BackendError` when their system does not answer."""
        ...

    def unmanaged_log(self, job: UnmanagedJob, n_line: int) -> tuple[str, ...]:
        """Return the last lines that one of them wrote.

        Raises
        ------
        NotFoundError
            When they are not kept where they can be read from here; it says where they are.
        BackendError
            When their system does not answer.
        """
        ...


@runtime_checkable
class NamesHistory(Protocol):
    """A cluster that names the history's database which the masters of its jobs write to."""

    def history_url(self) -> str | None:
        """Return its URL; None where it names none, or this account may not read it."""
        ...


@runtime_checkable
class NamesItself(Protocol):
    """A cluster whose options of `connect` may be left to other settings, as those of a kubeconfig."""

    @property
    def address(self) -> str:
        """The word by which another process finds it, with nothing left to settings that may change."""
        ...


def still_runs(name: str, phase: JobPhase) -> str:
    """Return the error that a running job is not deleted."""
    return f"job {name} runs ({phase}); stop {name} first, or delete {name} --force"


def name_taken(name: str, phase: JobPhase) -> str:
    """Return the error that a job of this name has not ended."""
    return f"a job named {name} exists already ({phase}); attach {name}, stop {name}, or choose another name"


def no_job(name: str, where: str, names: Collection[str], past: Collection[str] = ()) -> str:
    """Return the error that a job has no master (``at here:1``), with the nearest names."""
    if name in past:
        return f"job {name} is over and its master is gone; `%dlrover history {name}` shows what it did"
    near = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(name, past, n=1)
    hint = f"did you mean {near[0]}?" if near else f"jobs here: {', '.join(sorted(names)) or 'none'}"
    return f"no job {shown(name)} {where}; {hint}"
