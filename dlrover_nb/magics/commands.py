"""What the handlers of the verbs share: the cluster, the session, and how a job is found.

The same class serves the notebook and the command line.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.api.cluster import Cluster
from dlrover_nb.api.views.shown_waits import shown_waits
from dlrover_nb.core.connect import connect
from dlrover_nb.core.connect.kinds import Target, read_address
from dlrover_nb.core.errors import (
    BackendError,
    DlroverError,
    InvalidValueError,
    NotFoundError,
    UnmanagedJobError,
)
from dlrover_nb.core.structs.decisions.commands import Entry
from dlrover_nb.magics.session import Session
from dlrover_nb.magics.verb import MAGIC, DetachedError
from dlrover_nb.widgets.jobs.wait_lines import session_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from dlrover_nb.api.job import Job
    from dlrover_nb.api.views.job_views import DecisionView, JobsView, Note, StatusView
    from dlrover_nb.api.views.unmanaged_view import UnmanagedJobView
    from dlrover_nb.core.client.cluster import Cluster as CoreCluster
    from dlrover_nb.core.connect.kinds import Options
    from dlrover_nb.magics.verb import Call
    from dlrover_nb.widgets.jobs.wait_lines import WaitLine


ADDRESS = "DLROVER_NB_ADDRESS"  # variable of a shell: a word as `read_address` takes it


class Connector(Protocol):
    """Signature of `core.connect.connect`, which returns a cluster."""

    def __call__(
        self, kind: str, address: str | None, *, start: bool = True, **options: Unpack[Options]
    ) -> CoreCluster:
        """Connect."""
        ...


class Commands:
    """Runs verbs.

    Parameters
    ----------
    connector
        Opens a cluster.
    command
        What the user types before a verb, for messages.
    auto_connect, address
        Whether a verb that needs a cluster connects by itself, as each call of the command line must (in a
        notebook, `connect` runs once), and where to, in the form of `read_address`; None: as `remembered`.
    remembered
        Returns where an earlier `connect` of this user's shells went; None: to the Ray of this machine.
    say
        Takes a line that is no part of a result: where a job goes, before anything is started for it.
    namespace
        The user's variables: a cell in Python runs among them, and a job may name its own model or data.
    line
        Makes the line that shows what a verb waits for, see `shown_waits`.
    entry
        Through which these commands come, for the audit.

    Attributes
    ----------
    is_shown
        Whether what `run` returns is shown to the user; a notebook shows no result that is assigned.
    """

    def __init__(  # noqa: PLR0913 - what a front end differs in, each by its name
        self,
        connector: Connector = connect,
        *,
        command: str = MAGIC,
        auto_connect: bool = False,
        address: str | None = None,
        namespace: dict[str, object] | None = None,
        remembered: Callable[[], Target | None] = lambda: None,
        say: Callable[[str], object] = lambda _: None,
        line: Callable[[], WaitLine | None] = session_line,
        entry: Entry = Entry.NOTEBOOK,
    ) -> None:
        self.entry, self.is_shown = entry, True
        self.session = Session()
        self.command = command
        self.address = address
        self.namespace = {} if namespace is None else namespace
        self._connector = connector
        self._auto_connect = auto_connect
        self._remembered, self._say = remembered, say
        self._is_of_call = False
        self._line = line

    def run(self, call: Call, cell: str | None = None) -> object:
        """Run a verb and return what there is to show."""
        verb, values = call.verb, dict(call.values)
        if verb.takes_cell:
            values["cell"] = cell
        elif cell is not None:
            raise InvalidValueError(
                f"only submit, plan, lab and rehearse take a cell; use {self.command} with one percent sign"
            )
        if call.cluster is not None:
            self.address, self._is_of_call = call.cluster, True
        with self.waiting(f"the answer to {verb.name}"):
            return verb.handler(self, **values)

    def waiting(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Show what the block waits for, once that takes long."""
        return shown_waits(what, self._line)

    # the cluster

    def connect(self, kind: str, address: str | None, **options: Unpack[Options]) -> Cluster:
        """Start or join a cluster; a simulated one ends with it, which is refused while jobs run there."""
        previous, target = self.session.cluster, Target(kind, address, options)
        if previous is not None and previous.simulated:
            previous.shutdown()
        core = self._connector(kind, address, **options)
        is_again = previous is not None and target == self.session.target
        cluster = Cluster(core, previous.poller if previous is not None and is_again else None, self.entry)
        self.session.cluster, self.session.target = cluster, target
        with contextlib.suppress(BackendError):  # the cluster's own display reports the error
            self.session.note_jobs(cluster.jobs())
        return cluster

    def cluster(self, *, start: bool = False) -> Cluster:
        """Return the cluster; only a verb that submits a job may start one.

        Raises
        ------
        NotFoundError
            When none is connected, and this session does not connect by itself.
        """
        if self.session.cluster is None:
            if not self._auto_connect:
                raise NotFoundError(f"not connected; `{self.command} connect ray` starts or joins a cluster")
            self.session.cluster = Cluster(self._connected(start=start), entry=self.entry)
        return self.session.cluster

    def _connected(self, *, start: bool) -> CoreCluster:
        """Connect by itself, and say where to, where a job goes there or it fails."""
        kind, address, options = target = self.target()
        if start:
            self._say(f"the job goes to {_place(target)}{self._chosen_by()}")
        try:
            return self._connector(kind, address, start=start, **options)
        except DlroverError:
            if not start and self.address is None and self._remembered() is not None:
                self._say(f"this call went to {_place(target)}{self._chosen_by()}")
            raise

    def target(self) -> Target:
        """Return where this session is connected to, or goes when it connects by itself.

        The first that is there: `connect` of this session, ``--cluster`` of the call, the variable, what
        `connect` of a shell chose, the Ray of this machine.
        """
        if self.session.target is not None:
            return self.session.target
        chosen = self._remembered() if self.address is None else None
        return chosen or read_address(self.address)

    def _chosen_by(self) -> str:
        """Return what chose the target of a session that connects by itself, and what chooses another."""
        if self.address is not None:
            return ", as --cluster says" if self._is_of_call else f", as {ADDRESS} says"
        if self._remembered() is None:
            return f"; `{self.command} connect` or --cluster chooses another cluster"
        return f", as `{self.command} connect` chose; --cluster chooses another for one call"

    def address_of_cluster(self) -> str:
        """Return the word by which another process finds the connected cluster; empty: it needs none."""
        if self.session.target is None and (self.address is not None or self._remembered() is None):
            return self.address or ""
        return self.target().word

    def cluster_if_any(self) -> Cluster | None:
        """Return the cluster where there is one, for verbs that read a file and can do without."""
        try:
            return self.cluster()
        except NotFoundError:
            return None

    def check_can_submit(self) -> None:
        """Refuse a submit without a cluster before any code of the user runs."""
        if not self._auto_connect:
            self.cluster()

    def shutdown(self, *, force: bool) -> Note:
        """End the cluster if it was started here, else disconnect."""
        done = self.cluster().shutdown(force=force)
        self.session = Session()
        return done

    # its jobs

    def jobs(self) -> JobsView:
        """Return all jobs, and remember their names."""
        jobs = self.cluster().jobs()
        self.session.note_jobs(jobs)
        return jobs

    def job(self, name: str | None) -> Job:
        """Return the named job, or the only one that runs."""
        if name is None:
            name = self.jobs().only_name()
        job = self.cluster().job(name)
        self.session.jobs.setdefault(name, True)
        return job

    def any_job(self, name: str | None) -> Job | UnmanagedJobView:
        """Return the named job, also one that other tools manage, or the only one of ours that runs."""
        try:
            return self.job(name)
        except UnmanagedJobError:
            return self.cluster().unmanaged_job(str(name))

    def wait(self, job: Job, timeout_s: float | None = None, until: str = "end") -> StatusView:
        """Block until the job has ended, or proposes a plan.

        Raises
        ------
        DetachedError
            After an interrupt: the job goes on.
        """
        try:
            return job.wait(timeout_s, until=until)
        except KeyboardInterrupt as error:
            raise DetachedError(f"job {job.name} goes on; `{MAGIC} end {job.name} --now` stops it") from error

    def decided(self, view: DecisionView) -> DecisionView:
        """Remember what a decision changed: the proposal that was shown last is answered."""
        self.session.note_decided(view.snapshot)
        return view


def _place(target: Target) -> str:
    """Return a target as a person reads it."""
    return "the Ray of this machine" if target.word == "ray" else target.word
