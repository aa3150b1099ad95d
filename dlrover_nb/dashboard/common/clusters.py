"""A cluster that a server watches: one poller for all its pages, however many people look.

The list of jobs is fetched once a period for everybody, by the server's own account, and listeners are told
of each new state. Commands are another matter: `job_as` gives a job in a person's own name.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.widgets.live.browser.poller import Poller

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.common.acting import ActingClusters

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
SILENT_S = 30.0
SILENT = "it was asked for its jobs and has not answered yet; the list may be old"


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of a cluster as last heard.

    Parameters
    ----------
    jobs
        Newest first.
    heard_s
        When, by `time.monotonic`; None: never.
    error
        Of the last attempt; empty: it succeeded.
    """

    jobs: tuple[JobSummary, ...] = ()
    heard_s: float | None = None
    error: str = ""


class WatchedCluster:
    """One cluster, watched for all pages; a thread runs from the making until `close`.

    Parameters
    ----------
    core
        The cluster, connected as the server's own account.
    namespace
        Where its jobs run; empty on clusters without namespaces.
    acting
        The same cluster as each person sees it; None: the server's account acts for all, and the table of
        rights alone bounds them.
    period_s
        Seconds between two lists of jobs.
    silent_s
        Seconds without an answer after which the list is told to be old.
    """

    def __init__(
        self,
        core: Cluster,
        *,
        namespace: str = "",
        acting: ActingClusters | None = None,
        period_s: float = PERIOD_S,
        silent_s: float = SILENT_S,
    ) -> None:
        self.core, self.namespace, self.poller = core, namespace, Poller()
        self._acting, self._period_s = acting, period_s
        self._jobs, self._silent_s = Jobs(), silent_s
        self._late = (self._jobs, self._jobs)  # what was heard last, and the same once that is old
        self._listeners: set[Callable[[Jobs], None]] = set()
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="dlrover-jobs", daemon=True)
        self._thread.start()

    def jobs(self) -> Jobs:
        """Return the jobs as last heard, at once; with an error where the cluster has been silent since."""
        jobs = self._jobs
        if jobs.error or jobs.heard_s is None or time.monotonic() - jobs.heard_s < self._silent_s:
            return jobs
        if self._late[0] is not jobs:
            self._late = (jobs, replace(jobs, error=SILENT))
        return self._late[1]

    def listen(self, listener: Callable[[Jobs], None]) -> Callable[[], None]:
        """Call a function with each new list of jobs, on the watching thread; return what ends that."""
        with self._lock:
            self._listeners.add(listener)

        def end() -> None:
            with self._lock:
                self._listeners.discard(listener)

        return end

    @property
    def n_listener(self) -> int:
        """How many listen to its list of jobs."""
        return len(self._listeners)

    def job(self, name: str) -> JobHandle:
        """Return a job to be read, by the server's own account."""
        return self.core.job(name)

    def job_as(self, name: str, person: Person) -> JobHandle:
        """Return a job for the commands of a person, who is known to the cluster where it knows people."""
        return (self.core if self._acting is None else self._acting.cluster(person)).job(name)

    def known(self, person: Person) -> Person:
        """Return a person with the role that they have here, where the cluster itself knows people."""
        return person if self._acting is None else self._acting.known(person, self.namespace)

    def close(self) -> None:
        """Stop watching; the cluster itself goes on."""
        self._is_over.set()
        self.poller.close()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._is_over.is_set():
            begun_s = time.monotonic()
            self._jobs = self._heard()
            with self._lock:
                listeners = list(self._listeners)
            for listener in listeners:
                listener(self._jobs)
            self._is_over.wait(max(0.0, self._period_s - (time.monotonic() - begun_s)))

    def _heard(self) -> Jobs:
        try:
            return Jobs(self.core.live_jobs(), time.monotonic())
        except DlroverError as error:
            if not self._jobs.error:
                logger.warning("the jobs of a cluster cannot be listed: %s", error)
            return Jobs(self._jobs.jobs, self._jobs.heard_s, str(error).splitlines()[0])
