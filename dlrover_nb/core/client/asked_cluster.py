"""A cluster as one person asks it through one entry: what changes something is a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.client.own_commands import own_service
from dlrover_nb.core.client.unmanaged import refused_where_unmanaged
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Command
from dlrover_nb.core.structs.decisions.people import local_person

if TYPE_CHECKING:
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.commands.facts import CommandFacts
    from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad
    from dlrover_nb.core.structs.decisions.commands import Entry
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.summary import JobSummary


class AskedCluster:
    """A cluster for one person and one entry; a `core.client.cluster.Cluster` itself.

    Parameters
    ----------
    core
        The cluster.
    entry
        Through which this person asks.
    """

    def __init__(self, core: Cluster, entry: Entry) -> None:
        self._core, self._entry = core, entry
        self._commands = own_service(simulated=core.simulated)

    @property
    def simulated(self) -> bool:
        """Whether the cluster is simulated."""
        return self._core.simulated

    @property
    def description(self) -> str:
        """One line: kind, address and capacity."""
        return self._core.description

    @property
    def user(self) -> str:
        """The account that the cluster knows this client as."""
        return self._core.user

    @property
    def namespace(self) -> str:
        """Where jobs run; empty on clusters without namespaces."""
        return self._core.namespace

    def capacity(self) -> Capacity:
        """Return the capacity for jobs."""
        return self._core.capacity()

    def load(self) -> ClusterLoad:
        """Return what each machine has, who holds it, and what is used."""
        return self._core.load()

    def standing(self) -> ClusterAccess:
        """Return facts about the cluster, and the rights of the account."""
        return self._core.standing()

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        """Start a job and return at once; see `core.client.cluster.Cluster.submit`."""
        from dlrover_nb.core.commands.facts import facts_of_submit  # noqa: PLC0415 - few calls need it

        command = Command(Action.SUBMIT, spec.name)
        facts = facts_of_submit(spec, namespace=self.namespace)
        return self._mine(
            self._commands.run(
                command, self._asker, facts, lambda: self._core.submit(spec, model=model, data=data)
            )
        )

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first."""
        return self._core.jobs()

    def live_jobs(self) -> tuple[JobSummary, ...]:
        """Return the jobs whose masters answer."""
        return self._core.live_jobs()

    def job(self, name: str) -> JobHandle:
        """Find a job by name; `NotFoundError` names the nearest ones, `UnmanagedJobError` whose it is."""
        with refused_where_unmanaged(self._core, name):
            return self._mine(self._core.job(name))

    def delete(self, name: str, *, force: bool = False) -> str:
        """Delete a job and what it left; see `core.client.cluster.Cluster.delete`."""
        command = Command(Action.DELETE, name)
        with refused_where_unmanaged(self._core, name):
            return self._commands.run(
                command, self._asker, self._facts(command), lambda: self._core.delete(name, force=force)
            )

    def shutdown(self, *, force: bool = False) -> str:
        """End the cluster if this product started it, else disconnect; return what was done."""
        return self._core.shutdown(force=force)

    @property
    def _asker(self) -> Asker:
        """Who asks; the cluster is asked for its name of the account only when a command comes."""
        return Asker(local_person(self.user), self._entry)

    def _mine(self, handle: JobHandle) -> JobHandle:
        return handle.through(self._entry, self._commands)

    def _facts(self, command: Command) -> CommandFacts:
        from dlrover_nb.core.commands.facts import facts_of  # noqa: PLC0415 - as above

        try:
            return self._core.job(command.job).facts(command)
        except DlroverError:  # gone, or broken: it can be deleted all the same
            return facts_of(command, None, namespace=self.namespace)
