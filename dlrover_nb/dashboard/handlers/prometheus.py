"""What Prometheus reads: the jobs, what came of predictions, commands, and the server's own health.

Each server has a registry of its own, and values are read when they are asked for, from what the server knows
anyway. The forecast of memory and the outcomes stand in snapshots of the jobs; they are fetched at once for a
bounded number of jobs, the newest, and those that do not answer in time are left out. Labels are bounded the
same way: names of people are none, and of a request only what handled it.

Who reads must have the right to view, and is told of those clusters alone. Prometheus sends a bearer token,
the content of a file that the settings name (``authorization: {credentials_file: …}`` in its own settings);
the secret of a server without a sign-in lets in as well, though a new one is made at each start.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections import Counter as Tally
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from tornado.web import HTTPError

from dlrover_nb.core.commands.rights import why_not
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.dashboard.frame.base_handler import PersonHandler
from dlrover_nb.dashboard.frame.log import log_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from prometheus_client import Metric
    from tornado.web import RequestHandler

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.common.clusters import WatchedCluster
    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.frame.entry_checks import Open
    from dlrover_nb.dashboard.sign_in import SignIn

MOST_JOBS = 200  # that have series of their own, of each cluster
MOST_SNAPSHOTS = 50
SNAPSHOTS_S = 4.0  # for all of them
_JOB = ("cluster", "job")
_BUCKETS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The metrics of one server.

    Parameters
    ----------
    team
        What is counted.
    n_document
        Returns how many Panel documents are open.
    """

    def __init__(self, team: Team, requests: Open, n_document: Callable[[], int]) -> None:
        self.team, self._requests, self._n_document = team, requests, n_document
        self._registry = CollectorRegistry()
        self._durations = Histogram(
            "dlrover_request_seconds",
            "Time to answer a request; open streams count when they end.",
            ("handler", "status"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._commands: Tally[tuple[str, str, str]] = Tally()
        self._read_to = team.audit.head()[0]
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="dlrover-metrics")

    def note(self, handler: RequestHandler) -> None:
        """Count a request that was answered, and log it; Tornado calls it."""
        status = f"{handler.get_status() // 100}xx"
        self._durations.labels(type(handler).__name__, status).observe(handler.request.request_time())
        log_request(handler)

    def text(self, clusters: Mapping[str, WatchedCluster]) -> bytes:
        """Return all of them for the clusters that the reader may view, as Prometheus reads it."""
        registry = CollectorRegistry()
        registry.register(_Values(tuple(self._values(clusters))))
        return generate_latest(registry) + generate_latest(self._registry)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _values(self, clusters: Mapping[str, WatchedCluster]) -> Iterator[Metric]:
        listed = {key: cluster.jobs().jobs for key, cluster in clusters.items()}
        yield from _of_lists(listed)
        yield from of_snapshots(self._snapshots(clusters, listed))
        yield self._command_counts()
        yield from self._of_server(clusters)

    def _snapshots(
        self, clusters: Mapping[str, WatchedCluster], listed: Mapping[str, tuple[JobSummary, ...]]
    ) -> dict[tuple[str, str], JobSnapshot]:
        running = [(key, job.name) for key, jobs in listed.items() for job in jobs if not job.phase.is_final]
        futures = {
            self._pool.submit(_snapshot, clusters[key], name): (key, name)
            for key, name in running[:MOST_SNAPSHOTS]
        }
        done, late = wait(futures, timeout=SNAPSHOTS_S)
        for each in late:
            each.cancel()
        snapshots = {futures[each]: each.result() for each in done}
        return {place: snapshot for place, snapshot in snapshots.items() if snapshot is not None}

    def _command_counts(self) -> Metric:
        for each in self.team.audit.rows(after=self._read_to):
            self._commands[str(each.row.entry), str(each.row.action), str(each.row.stage)] += 1
            self._read_to = each.seq
        counts = CounterMetricFamily(
            "dlrover_commands",
            "Commands of all servers since this one began.",
            labels=("entry", "action", "stage"),
        )
        for labels, n in sorted(self._commands.items()):
            counts.add_metric(labels, n)
        return counts

    def _of_server(self, clusters: Mapping[str, WatchedCluster]) -> Iterator[Metric]:
        yield _gauge("dlrover_open_requests", "Requests that are open now.", len(self._requests))
        yield _gauge("dlrover_documents", "Panel documents that are open.", self._n_document())
        listeners = sum(each.n_listener for each in clusters.values())
        yield _gauge("dlrover_event_listeners", "Streams of events that are open.", listeners)
        ages = GaugeMetricFamily(
            "dlrover_poll_age_seconds", "Since a cluster was heard last.", labels=("cluster",)
        )
        for key, cluster in clusters.items():
            heard_s = cluster.jobs().heard_s
            ages.add_metric((key,), math.inf if heard_s is None else time.monotonic() - heard_s)
        yield ages


class _Values(Collector):
    def __init__(self, values: tuple[Metric, ...]) -> None:
        self._metrics = values

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _snapshot(cluster: WatchedCluster, name: str) -> JobSnapshot | None:
    try:
        return cluster.job(name).with_short_timeout.snapshot()
    except DlroverError:
        return None  # it ended, or its master is away: the poll age tells


def _of_lists(listed: Mapping[str, tuple[JobSummary, ...]]) -> Iterator[Metric]:
    phases = GaugeMetricFamily("dlrover_jobs", "Jobs by their phase.", labels=("cluster", "phase"))
    speeds = GaugeMetricFamily("dlrover_job_samples_per_second", "Throughput of a job.", labels=_JOB)
    done = GaugeMetricFamily("dlrover_job_done_ratio", "Share of the samples that is trained.", labels=_JOB)
    open_ones = GaugeMetricFamily(
        "dlrover_open_proposals", "Proposals that wait for a decision.", labels=("cluster",)
    )
    actions = GaugeMetricFamily(
        "dlrover_open_mitigations",
        "Actions against stragglers that wait for a decision.",
        labels=("cluster",),
    )
    for key, jobs in listed.items():
        actions.add_metric((key,), sum(job.open_mitigation is not None for job in jobs))
        for phase in JobPhase:
            phases.add_metric((key, str(phase)), sum(job.phase is phase for job in jobs))
        open_ones.add_metric((key,), sum(job.open_proposal is not None for job in jobs))
        for job in jobs[:MOST_JOBS]:
            speeds.add_metric((key, job.name), job.samples_per_s)
            if job.done is not None:
                done.add_metric((key, job.name), job.done)
    yield from (phases, speeds, done, open_ones, actions)


def of_snapshots(snapshots: Mapping[tuple[str, str], JobSnapshot]) -> Iterator[Metric]:
    """Return the metrics of jobs by cluster and name."""
    errors = GaugeMetricFamily(
        "dlrover_prediction_error_ratio",
        "Predicted over measured throughput of the last change, less 1.",
        labels=_JOB,
    )
    clocks = GaugeMetricFamily(
        "dlrover_memory_full_seconds",
        "Until the memory of a role is likely to be full; missing: not during the job.",
        labels=(*_JOB, "role"),
    )
    waiting = GaugeMetricFamily("dlrover_waiting_nodes", "Nodes whose start waits.", labels=_JOB)
    for place, snapshot in snapshots.items():
        waiting.add_metric(place, sum(bool(node.waits_for) for node in snapshot.nodes))
        for line in snapshot.memory:
            if line.full_in_s is not None:
                clocks.add_metric((*place, str(line.role)), line.full_in_s)
        scored = [outcome.error for outcome in snapshot.outcomes if outcome.error is not None]
        if scored:
            errors.add_metric(place, scored[-1])
    yield from (errors, clocks, waiting, *_of_ages(snapshots))


def _of_ages(snapshots: Mapping[tuple[str, str], JobSnapshot]) -> Iterator[Metric]:
    """Return how old the gradients of each job were, where its PS count that."""
    updates = GaugeMetricFamily(
        "dlrover_gradient_age_updates", "Mean updates by other workers that a gradient missed.", labels=_JOB
    )
    seconds = GaugeMetricFamily(
        "dlrover_gradient_age_seconds",
        "Mean time from reading parameters to applying their gradient.",
        labels=_JOB,
    )
    rows = GaugeMetricFamily(
        "dlrover_row_gradient_age_updates",
        "Mean updates of its row by other workers that the gradient of a single row missed.",
        labels=_JOB,
    )
    for place, snapshot in snapshots.items():
        if (ages := snapshot.ages) is not None:
            for family, mean in ((updates, ages.updates), (seconds, ages.seconds), (rows, ages.row_updates)):
                if mean is not None:
                    family.add_metric(place, mean)
    yield from (updates, seconds, rows)


def read_token(path: str) -> str:
    """Return the secret of Prometheus from its file; empty where no file is named.

    Raises
    ------
    InvalidValueError
        When it cannot be read, or could be guessed.
    """
    if not path:
        return ""
    try:
        secret = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"cannot read the token of metrics at {path}: {error}; correct it") from error
    if len(secret) < 24:
        raise InvalidValueError(
            f"the token in {path} must have 24 characters or more; use openssl rand -hex 32"
        )
    return secret


class MetricsHandler(PersonHandler):
    """Answers ``/metrics``."""

    def initialize(  # type: ignore[override]  # with its metrics
        self, team: Team, sign_in: SignIn, metrics: Metrics, token: str
    ) -> None:
        """Take the metrics, and the secret that lets Prometheus read them; empty: none does."""
        super().initialize(team, sign_in)
        self._of, self._token = metrics, token

    def prepare(self) -> Awaitable[None] | None:
        """Let in who sends the token, or is signed in."""
        scheme, _, sent = self.request.headers.get("Authorization", "").partition(" ")
        if not scheme or self.sign_in.by_secret(sent.strip()) is not None:
            return super().prepare()
        self.door.check_host(self.request)
        if scheme.lower() != "bearer" or not self._token or not _same(sent.strip(), self._token):
            self.set_header("WWW-Authenticate", "Bearer")
            raise HTTPError(401, "the token is not the one of the metrics")
        self.person = Person("metrics", grants=(Grant(AccessRole.VIEWER),))
        return None

    async def get(self) -> None:
        """Write the metrics of the clusters that the reader may view."""
        clusters = {
            key: cluster
            for key, cluster in self.team.clusters.items()
            if not why_not(self.person, Action.VIEW, namespace=cluster.namespace)
        }
        if not clusters and self.team.clusters:
            raise HTTPError(403)
        text = await asyncio.get_running_loop().run_in_executor(None, self._of.text, clusters)
        self.set_header("Content-Type", CONTENT_TYPE_LATEST)
        self.write(text)


def _same(sent: str, wanted: str) -> bool:
    return hmac.compare_digest(sent.encode(), wanted.encode())
