"""`AlertLoop`: reads the jobs of all clusters, and begins and ends their alerts.

It is told of each new list of jobs by the clusters' own watchers, and reads on a thread of its own, so that
neither a slow master nor the database delays the lists. In one round it reads at most so many jobs, and goes
on with the others in the next: with 1,000 jobs each is read every 25 s, and the masters are not flooded.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from dlrover_nb.core.alerts import (
    JobMemory,
    changes,
    findings,
    lost_finding,
    remembered,
    request_finding,
)
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.views.alerts import AboutJob, Alert, AlertKind, AlertRules
from dlrover_nb.dashboard.common.waiting_requests import clusters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.alerts import Finding
    from dlrover_nb.core.structs.decisions.commands import SecondRequest
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.common.clusters import Jobs
    from dlrover_nb.dashboard.common.team import Team

logger = logging.getLogger(__name__)

PERIOD_S = 5.0  # between two rounds
MOST_JOBS = 200  # that are read in one
Key = tuple[str, str]  # of a job: cluster and name


class AlertLoop:
    """Finds the alerts of a team's jobs; `begin` starts its thread, `close` ends it.

    Parameters
    ----------
    team
        What the server shares; its `alerts` hold what is found.
    rules
        Thresholds.
    send
        Is told of each alert that this server has begun or ended; it must not wait.
    period_s
        Seconds between two rounds.
    """

    def __init__(
        self, team: Team, rules: AlertRules, send: Callable[[Alert], None], *, period_s: float = PERIOD_S
    ) -> None:
        self._team, self._rules, self._send, self._period_s = team, rules, send, period_s
        self._memories: dict[Key, JobMemory] = {}
        self._heard: dict[Key, tuple[float, JobSummary]] = {}  # when a running job was last listed
        self._lost: dict[Key, AboutJob] = {}
        self._next: dict[str, int] = {}  # of a cluster: the first job of the next round
        self._newest: dict[str, Jobs] = {}
        self._is_over, self._is_news = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._ends: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Listen to the clusters, and read on a thread of its own."""
        for key, cluster in self._team.clusters.items():
            self._ends.append(cluster.listen(lambda jobs, key=key: self._note(key, jobs)))  # type: ignore[misc]  # the default binds the key
        self._thread = threading.Thread(target=self._run, name="dlrover-alerts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and reading."""
        for end in self._ends:
            end()
        self._is_over.set()
        self._is_news.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def _note(self, key: str, jobs: Jobs) -> None:
        self._newest[key] = jobs
        self._is_news.set()

    def _run(self) -> None:
        is_well = True
        while not self._is_over.is_set():
            self._is_news.wait()
            self._is_news.clear()
            for key, jobs in list(self._newest.items()):
                try:
                    self.read(key, jobs)
                except DlroverError as error:
                    if is_well:
                        logger.warning("alerts of cluster %s cannot be read: %s", key, error)
                    is_well = False
                except Exception:  # a mistake of ours about one list must not end all alerts
                    logger.exception("alerts of cluster %s cannot be read", key)
                    is_well = False
                else:
                    is_well = True
            self._is_over.wait(self._period_s)

    # one round

    def read(self, key: str, jobs: Jobs) -> None:
        """Begin and end the alerts of one cluster by its newest list of jobs."""
        if jobs.error or jobs.heard_s is None:
            return  # nothing is known of its jobs: what is open stays open
        listed = {job.name: job for job in jobs.jobs if job.live}
        open_alerts = [alert for alert in self._team.alerts.open() if alert.about.cluster == key]
        self._remember_lost(key, open_alerts)
        for job in self._in_turn(key, list(listed.values())):
            self._apply(self._about(key, job), open_alerts, self._found(key, job))
        waiting = self._team.requests.open(self._team.now_s())
        for job in listed.values():
            self._hear(key, job, jobs.heard_s)
            findings = [lost_finding(0.0, self._rules), self._waiting(key, job.name, waiting)]
            self._apply(self._about(key, job), open_alerts, findings)
        for name in self._missing(key, listed):
            self._silent(key, name, open_alerts, jobs.heard_s)
        self._end_gone(key, listed, open_alerts)

    def _in_turn(self, key: str, jobs: list[JobSummary]) -> list[JobSummary]:
        """Return the jobs whose turn it is."""
        first = self._next.get(key, 0)
        turn = jobs[first : first + MOST_JOBS]
        self._next[key] = first + MOST_JOBS if first + MOST_JOBS < len(jobs) else 0
        return turn

    def _found(self, key: str, job: JobSummary) -> tuple[Finding, ...]:
        try:
            snapshot = self._team.cluster(key).job(job.name).with_short_timeout.snapshot()
        except DlroverError as error:
            logger.debug("job %s was listed, and does not answer: %s", job.name, error)
            return ()
        memory = remembered(self._memories.get((key, job.name), JobMemory()), snapshot)
        self._memories[key, job.name] = memory
        return findings(snapshot, memory, self._rules)

    def _waiting(self, key: str, name: str, waiting: Iterable[SecondRequest]) -> Finding:
        mine = [each for each in waiting if each.command.job == name and key in clusters_of(self._team, each)]
        return request_finding(mine, self._team.now_s(), self._rules)

    def _apply(self, about: AboutJob, open_alerts: Iterable[Alert], findings: Iterable[Finding]) -> None:
        mine = [alert for alert in open_alerts if alert.about.job == about.job]
        ends, begins = changes(about, mine, findings, self._team.now_s())
        for alert in ends:
            self._end(alert)
        for alert in begins:
            if made := self._team.alerts.begin(alert, self._rules.cool_down_s):
                logger.info("alert %s of job %s: %s", made.kind, about.job, made.text)
                self._send(made)

    def _end(self, alert: Alert) -> None:
        if over := self._team.alerts.end(alert, self._team.now_s()):
            logger.info("alert %s of job %s is over", alert.kind, alert.about.job)
            self._send(over)

    # masters that do not answer

    def _hear(self, key: str, job: JobSummary, at_s: float) -> None:
        self._lost.pop((key, job.name), None)
        if job.phase.is_final:
            self._heard.pop((key, job.name), None)
        else:
            self._heard[key, job.name] = (at_s, job)

    def _missing(self, key: str, listed: Iterable[str]) -> list[str]:
        names = {name for at, name in (*self._heard, *self._lost) if at == key}
        return sorted(names.difference(listed))

    def _silent(self, key: str, name: str, open_alerts: list[Alert], now_s: float) -> None:
        """Begin the alert of a silent master, unless its job has ended meanwhile."""
        if (key, name) in self._lost or (last := self._heard.get((key, name))) is None:
            return
        heard_s, job = last
        finding = lost_finding(now_s - heard_s, self._rules)
        if not finding.is_bad:
            return
        del self._heard[key, name]
        if self._has_ended(key, name):
            return
        self._lost[key, name] = about = self._about(key, job)
        self._apply(about, open_alerts, [finding])

    def _has_ended(self, key: str, name: str) -> bool:
        """Whether the history knows that a job is over, whose master is gone then."""
        jobs = [job for job in self._team.cluster(key).core.jobs() if job.name == name]
        return not jobs or jobs[0].phase.is_final

    def _remember_lost(self, key: str, open_alerts: Iterable[Alert]) -> None:
        """Take over the lost masters that a server before this one, or another one, has found."""
        for alert in open_alerts:
            at = (key, alert.about.job)
            if alert.kind is AlertKind.MASTER_LOST and at not in self._heard:
                self._lost.setdefault(at, alert.about)

    def _end_gone(self, key: str, listed: Iterable[str], open_alerts: Iterable[Alert]) -> None:
        """End alerts of jobs that are not here any more."""
        there = {*listed, *(name for at, name in (*self._heard, *self._lost) if at == key)}
        for alert in open_alerts:
            if alert.about.job not in there:
                self._end(alert)
                self._memories.pop((key, alert.about.job), None)

    def _about(self, key: str, job: JobSummary) -> AboutJob:
        return AboutJob(key, job.name, self._team.cluster(key).namespace, job.owner)
