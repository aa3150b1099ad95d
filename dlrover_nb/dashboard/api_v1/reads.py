"""What the API tells: the reads of all routes that change nothing."""

from __future__ import annotations

from dlrover_nb.core.client.bare_snapshot import bare_snapshot
from dlrover_nb.core.why import question_of, reply_to
from dlrover_nb.dashboard.api_v1 import answers, bodies, queries
from dlrover_nb.dashboard.api_v1.call import Call, Result
from dlrover_nb.dashboard.common.waiting_requests import visible_requests


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
