"""The routes: one table, from which handlers, the OpenAPI document and its page are made.

Those of commands come from `core.commands.table`: decisions share a route, as they share the version that
their user saw; what the job's master does at once has one each.

A cluster's key is one segment of a path, percent-encoded: ``kubernetes:%2F%2Fprod%2Fads``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from dlrover_nb.core.commands.table import DECISIONS, OTHERS, first_line
from dlrover_nb.core.structs.decisions.query_answers import Explanation
from dlrover_nb.core.structs.views.snapshot import JobSnapshot
from dlrover_nb.core.why import Reply
from dlrover_nb.dashboard.api_v1 import answers, bodies, commands, queries, reads

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dlrover_nb.dashboard.api_v1.call import Call, Result

ROOT = "/api/v1"
JOB = "/jobs/{cluster}/{name}"


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Parameters
    ----------
    method, path
        Of the request, below `ROOT`.
    name, summary
        Of the operation, in the document.
    run
        Does it, on a thread: it may wait for a cluster.
    answer
        Kind of what it answers.
    query, body
        Kinds of what it takes; a body of None: it takes none.
    changes
        Whether it is a command: it may be refused as stale, wait for a second person, and has a key.
    sees
        Whether the version that the caller saw may be given: ``If-Match``.
    """

    method: str
    path: str
    name: str
    summary: str
    run: Callable[[Call], Result]
    answer: type
    query: type = queries.NoQuery
    body: Any = None
    changes: bool = False
    sees: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in its path."""
        return tuple(re.findall(r"{(\w+)}", self.path))


ROUTES = (
    Route(
        "GET", "/clusters", "clusters", "The clusters that you may see.", reads.clusters,
        answers.ClustersAnswer,
    ),
    Route(
        "GET", "/jobs", "jobs", "The jobs of these clusters, as last heard.", reads.jobs,
        answers.JobsAnswer, queries.JobsQuery,
    ),
    Route(
        "GET", JOB, "job", "The state of a job. Its version is sent as the ETag.", reads.snapshot,
        JobSnapshot,
    ),
    Route(
        "GET", f"{JOB}/series", "series", "Telemetry of a job newer than a cursor.", reads.series,
        answers.SeriesAnswer, queries.SeriesQuery,
    ),
    Route(
        "GET", f"{JOB}/proposals", "proposals", "The proposals of a job, oldest first.", reads.proposals,
        answers.ProposalsAnswer,
    ),
    Route(
        "GET", f"{JOB}/mitigations", "mitigations",
        "The actions against stragglers of a job, oldest first, who is slow now, and errors of late.",
        reads.mitigations, answers.MitigationsAnswer,
    ),
    Route(
        "GET", f"{JOB}/explain", "explain", "Why a plan is proposed, or why none is.", reads.explain,
        Explanation, queries.ExplainQuery,
    ),
    Route(
        "GET", f"{JOB}/why", "why", "Answers to nine questions about a plan, with each number in them.",
        reads.why, Reply, queries.WhyQuery,
    ),
    Route(
        "GET", f"{JOB}/logs", "logs", "The newest log lines of a job, the newest last.", reads.logs,
        answers.LogsAnswer, queries.LogsQuery,
    ),
    Route(
        "POST", f"{JOB}/weigh", "weigh", "The predicted effect of plans; nothing is changed.", reads.weigh,
        answers.WeighedAnswer, body=bodies.WeighBody,
    ),
    Route(
        "POST", f"{JOB}/decisions", "decide", "Make a decision about a job.", commands.ask,
        answers.CommandAnswer, body=Union[DECISIONS],  # noqa: UP007 - of a tuple
        changes=True, sees=True,
    ),
    *(
        Route(
            "POST", f"{JOB}/{request.action.replace(' ', '-')}", request.action.replace(" ", "_"),
            first_line(request), commands.ask, answers.CommandAnswer, body=request, changes=True,
        )
        for request in OTHERS
    ),
    Route(
        "GET", "/audit", "audit", "Who asked for what, and what became of it; newest first.", reads.audit,
        answers.AuditAnswer, queries.AuditQuery,
    ),
    Route(
        "GET", "/requests", "requests", "Commands that wait for a second person.", reads.requests,
        answers.RequestsAnswer,
    ),
    Route(
        "POST", "/requests/{id}/approve", "approve", "Carry out a command that waits, as its second person.",
        commands.approve, answers.CommandAnswer, body=bodies.ReasonBody, changes=True,
    ),
    Route(
        "POST", "/requests/{id}/refuse", "refuse", "Close a command that waits without carrying it out.",
        commands.refuse, answers.RefusedAnswer, body=bodies.ReasonBody, changes=True,
    ),
)  # fmt: skip


def by_path() -> dict[str, dict[str, Route]]:
    """Return the routes by path, then by method."""
    routes: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        routes.setdefault(route.path, {})[route.method] = route
    return routes


def pattern(path: str) -> str:
    """Return a path as Tornado matches it: each name is one segment, a slash in it written ``%2F``."""
    return ROOT + re.sub(r"{\w+}", "([^/]+)", path)
