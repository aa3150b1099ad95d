"""The routes: one table, from which handlers, the OpenAPI document and its page are made.

Those of commands come from `core.commands.table`: decisions share a route, as they share the version that
their user saw; what the job's master does at once has one each.

A cluster's key is one segment of a path, percent-encoded: ``kubernetes:%2F%2Fprod%2Fads``.
The body of a command is a record of the table of commands, which the job's handle carries out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from dlrover_nb.core.client.bare_snapshot import bare_snapshot
from dlrover_nb.core.commands.requests import Request
from dlrover_nb.core.commands.table import DECISIONS, OTHERS, first_line
from dlrover_nb.core.structs.decisions.query_answers import Explanation
from dlrover_nb.core.structs.views.snapshot import JobSnapshot
from dlrover_nb.core.why import Reply, question_of, reply_to
from dlrover_nb.dashboard.api_v1 import answers, bodies, queries
from dlrover_nb.dashboard.api_v1.call import Call, Result
from dlrover_nb.dashboard.common.waiting_requests import cluster_of, visible_requests

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dlrover_nb.dashboard.api_v1.call import Call

ROOT = "/api/v1"
JOB = "/jobs/{cluster}/{name}"


def clusters(call: Call) -> Result:
    """Return the clusters that the caller may see."""
    rows = []
    for key in call.visible():
        watched = call.team.cluster(key)
        role = watched.known(call.person).role_in(watched.namespace)
        assert role is not None  # it is visible
        rows.append(
            answers.ClusterAnswer(key, watched.namespace, role, watched.core.simulated, watched.jobs().error)
        )
    return Result(answers.ClustersAnswer(tuple(rows)))


def jobs(call: Call) -> Result:
    """Return the jobs as last heard, by cluster."""
    keys = call.only_visible(call.asked(queries.JobsQuery).cluster)
    heard = {key: call.team.cluster(key).jobs() for key in keys}
    rows = [answers.JobAnswer(key, job) for key in keys for job in heard[key].jobs]
    away = {key: each.error for key, each in heard.items() if each.error}
    return Result(answers.JobsAnswer(tuple(rows), away))


def snapshot(call: Call) -> Result:
    """Return a job's state; its version is what ``If-Match`` of a decision names."""
    state = bare_snapshot(call.job().snapshot())
    return Result(state, state.version)


def series(call: Call) -> Result:
    """Return telemetry newer than a cursor."""
    chunk = call.job().series(call.asked(queries.SeriesQuery).cursor)
    job, node = {**chunk.job}, {**chunk.node}
    return Result(answers.SeriesAnswer(chunk.cursor, job, node, chunk.lost))  # type: ignore[arg-type]  # NaN is sent as null


def proposals(call: Call) -> Result:
    """Return all proposals of a job."""
    state = bare_snapshot(call.job().snapshot())
    return Result(answers.ProposalsAnswer(state.version, state.proposals), state.version)


def mitigations(call: Call) -> Result:
    """Return all actions against stragglers of a job, with the slow nodes and the errors of nodes."""
    state = bare_snapshot(call.job().snapshot())
    answer = answers.MitigationsAnswer(state.version, state.mitigations, state.stragglers, state.node_errors)
    return Result(answer, state.version)


def explain(call: Call) -> Result:
    """Return why a proposal was made, or why there is none."""
    return Result(call.job().explain(call.asked(queries.ExplainQuery).proposal or None))


def why(call: Call) -> Result:
    """Return the answers to questions about a proposal, or about the plan that runs."""
    query, job = call.asked(queries.WhyQuery), call.job()
    question = question_of(query.question) if query.question else None
    return Result(reply_to(job.explain(query.proposal or None), bare_snapshot(job.snapshot()), question))


def logs(call: Call) -> Result:
    """Return the newest log lines."""
    query = call.asked(queries.LogsQuery)
    return Result(answers.LogsAnswer(call.job().logs(query.node or None, n_line=query.lines)))


def weigh(call: Call) -> Result:
    """Return the predicted effect of plans; nothing is changed."""
    plans = tuple(each.plan() for each in call.sent(bodies.WeighBody).plans)
    return Result(answers.WeighedAnswer(call.job().weigh(*plans)))


def audit(call: Call) -> Result:
    """Return rows of the audit of the namespaces that the caller may see, newest first."""
    query = call.asked(queries.AuditQuery)
    rows = call.team.audit.newest(query.rows, job=query.job or None, before=query.before or None)
    shown = [
        answers.AuditLineAnswer(each.seq, each.row, each.hash)
        for each in rows
        if call.team.sees(call.person, each.row.namespace)
    ]
    older = rows[-1].seq if len(rows) == query.rows else None
    return Result(answers.AuditAnswer(tuple(shown), older))


def requests(call: Call) -> Result:
    """Return the commands that wait for a second person."""
    visible = visible_requests(call.team, call.person)
    return Result(answers.RequestsAnswer(tuple(map(answers.RequestAnswer.of, visible))))


def ask(call: Call) -> Result:
    """Carry out a command about a job."""
    request, handle = call.sent(Request), call.job()
    made = handle.ask(request, version=call.version, key=call.own_key)
    return Result(answers.CommandAnswer(call.path["cluster"], handle.name, request.action, made))


def approve(call: Call) -> Result:
    """Carry out a command that waits, as its second person."""
    request = call.team.requests.find(call.path["id"])
    key = cluster_of(call.team, request)
    made = call.team.job(key, request.command.job, call.asker).approve(request)
    return Result(answers.CommandAnswer(key, request.command.job, request.command.action, made))


def refuse(call: Call) -> Result:
    """Close a command that waits without carrying it out."""
    request = call.team.requests.find(call.path["id"])
    handle = call.team.job(cluster_of(call.team, request), request.command.job, call.asker)
    facts = handle.facts(request.command)
    call.team.commands.withdraw(request.id, call.asker, facts, call.sent(bodies.ReasonBody).why)
    return Result(answers.RefusedAnswer(request.id))


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
        "GET", "/clusters", "clusters", "The clusters that you may see.", clusters,
        answers.ClustersAnswer,
    ),
    Route(
        "GET", "/jobs", "jobs", "The jobs of these clusters, as last heard.", jobs,
        answers.JobsAnswer, queries.JobsQuery,
    ),
    Route(
        "GET", JOB, "job", "The state of a job. Its version is sent as the ETag.", snapshot,
        JobSnapshot,
    ),
    Route(
        "GET", f"{JOB}/series", "series", "Telemetry of a job newer than a cursor.", series,
        answers.SeriesAnswer, queries.SeriesQuery,
    ),
    Route(
        "GET", f"{JOB}/proposals", "proposals", "The proposals of a job, oldest first.", proposals,
        answers.ProposalsAnswer,
    ),
    Route(
        "GET", f"{JOB}/mitigations", "mitigations",
        "The actions against stragglers of a job, oldest first, who is slow now, and errors of late.",
        mitigations, answers.MitigationsAnswer,
    ),
    Route(
        "GET", f"{JOB}/explain", "explain", "Why a plan is proposed, or why none is.", explain,
        Explanation, queries.ExplainQuery,
    ),
    Route(
        "GET", f"{JOB}/why", "why", "Answers to nine questions about a plan, with each number in them.",
        why, Reply, queries.WhyQuery,
    ),
    Route(
        "GET", f"{JOB}/logs", "logs", "The newest log lines of a job, the newest last.", logs,
        answers.LogsAnswer, queries.LogsQuery,
    ),
    Route(
        "POST", f"{JOB}/weigh", "weigh", "The predicted effect of plans; nothing is changed.", weigh,
        answers.WeighedAnswer, body=bodies.WeighBody,
    ),
    Route(
        "POST", f"{JOB}/decisions", "decide", "Make a decision about a job.", ask,
        answers.CommandAnswer, body=Union[DECISIONS],  # noqa: UP007 - of a tuple
        changes=True, sees=True,
    ),
    *(
        Route(
            "POST", f"{JOB}/{request.action.replace(' ', '-')}", request.action.replace(" ", "_"),
            first_line(request), ask, answers.CommandAnswer, body=request, changes=True,
        )
        for request in OTHERS
    ),
    Route(
        "GET", "/audit", "audit", "Who asked for what, and what became of it; newest first.", audit,
        answers.AuditAnswer, queries.AuditQuery,
    ),
    Route(
        "GET", "/requests", "requests", "Commands that wait for a second person.", requests,
        answers.RequestsAnswer,
    ),
    Route(
        "POST", "/requests/{id}/approve", "approve", "Carry out a command that waits, as its second person.",
        approve, answers.CommandAnswer, body=bodies.ReasonBody, changes=True,
    ),
    Route(
        "POST", "/requests/{id}/refuse", "refuse", "Close a command that waits without carrying it out.",
        refuse, answers.RefusedAnswer, body=bodies.ReasonBody, changes=True,
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
