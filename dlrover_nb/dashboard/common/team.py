"""What the pages of one server share: its clusters, its history, and the one command service.

The records of runs that were read last are kept, as a scrubber asks for many moments of one run: only ended
runs, whose records change no more, and for a minute, since they may be deleted.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.client.past.history_queries import run_history
from dlrover_nb.core.commands.rights import why_not
from dlrover_nb.core.commands.second_person import NO_RULES, Rules
from dlrover_nb.core.errors import NotAllowedError, NotFoundError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.history.stores.alerts import AlertStore
from dlrover_nb.core.history.stores.brain_rounds import RoundStore
from dlrover_nb.core.history.stores.notes import NoteStore
from dlrover_nb.core.history.stores.request_store import RequestStore
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.dashboard.common.spans import Steps, TracedCommands

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.structs.decisions.commands import Asker
    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.common.clusters import WatchedCluster


KEPT_S = 60.0
N_KEPT = 4  # a run of 100,000 spans takes some 20 MB


class KeptRuns:
    """Reads runs from the history, and keeps those that were asked for last; thread-safe.

    Parameters
    ----------
    url
        Of the history's database; None for the user's own file.
    read
        Returns the records of a run: by the job's name, the run's id and the address.
    monotonic
        A clock that is never set back.
    """

    def __init__(
        self,
        url: str | None,
        *,
        read: Callable[[str, str, str | None], RunHistory] = run_history,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._read, self._monotonic = url, read, monotonic
        self._kept: dict[str, tuple[float, RunHistory]] = {}
        self._lock = threading.Lock()

    def run(self, run: str) -> RunHistory:
        """Return the records of a run by its id; `NotFoundError` names the nearest ones."""
        now_s = self._monotonic()
        with self._lock:
            self._kept = {each: entry for each, entry in self._kept.items() if now_s - entry[0] < KEPT_S}
            if (entry := self._kept.get(run)) is not None:
                return entry[1]
        history = self._read(run.rpartition("@")[0] or run, run, self._url)
        if history.run.phase.is_final:
            with self._lock:
                self._kept[run] = now_s, history
                for oldest in [*self._kept][:-N_KEPT]:
                    del self._kept[oldest]
        return history


class Team:
    """The clusters and records of one server.

    Parameters
    ----------
    clusters
        By their keys: the words of `dlrover_nb.core.connect.kinds.read_address`.
    now_s
        The time, for the audit.
    url
        Of the history's database; None for the user's own file.
    rules
        When a second person is needed.

    Raises
    ------
    BackendError
        When the database cannot be opened.
    """

    def __init__(
        self,
        clusters: Mapping[str, WatchedCluster],
        now_s: Callable[[], float],
        *,
        url: str | None = None,
        rules: Rules = NO_RULES,
    ) -> None:
        self.clusters, self.now_s, self.url = clusters, now_s, url
        self.history, self.runs = HistoryStore(url), KeptRuns(url)
        self.audit, self.requests, self.notes = AuditStore(url), RequestStore(url), NoteStore(url)
        self.alerts, self.rounds = AlertStore(url), RoundStore(url)
        self.steps = Steps()
        self.commands = TracedCommands(
            lambda: self.audit, now_s, requests=self.requests, rules=rules, steps=self.steps
        )

    def cluster(self, key: str) -> WatchedCluster:
        """Return a cluster by its key; `NotFoundError` names those that there are."""
        if key not in self.clusters:
            raise NotFoundError(f"no cluster {shown(key)} here; there are: {', '.join(self.clusters)}")
        return self.clusters[key]

    def may(self, person: Person, action: Action, key: str, *, owner: str = "") -> bool:
        """Whether a person may do something there, as far as roles go: for what a page offers."""
        return not self.refusal(person, action, key, owner=owner)

    def refusal(self, person: Person, action: Action, key: str, *, owner: str = "") -> str:
        """Return why a person may not do something there, as far as roles go; empty: they may."""
        cluster = self.cluster(key)
        return why_not(cluster.known(person), action, owner=owner, namespace=cluster.namespace)

    def sees(self, person: Person, namespace: str) -> bool:
        """Whether a person may see what is kept of a namespace: by a cluster of it here, or by grants."""
        here = [key for key, cluster in self.clusters.items() if cluster.namespace == namespace]
        if not here:
            return not why_not(person, Action.VIEW, namespace=namespace)
        return any(self.may(person, Action.VIEW, key) for key in here)

    def job(self, key: str, name: str, asker: Asker) -> JobHandle:
        """Return a job as the person who asks: what they may not do is refused, and audited.

        Raises
        ------
        NotAllowedError
            When they may not even view it.
        NotFoundError
            When there is no such cluster or job.
        """
        cluster = self.cluster(key)
        caller = replace(asker, person=cluster.known(asker.person))
        if refusal := why_not(caller.person, Action.VIEW, namespace=cluster.namespace):
            raise NotAllowedError(refusal)
        commands = self.commands.about(lambda: cluster.job(name).snapshot())
        return cluster.job_as(name, asker.person).asked_by(caller, commands, cluster=key)

    def close(self) -> None:
        """Close the database and stop watching the clusters."""
        self.steps.close()
        for cluster in self.clusters.values():
            cluster.close()
        for store in (self.history, self.audit, self.requests, self.notes, self.alerts, self.rounds):
            store.close()
