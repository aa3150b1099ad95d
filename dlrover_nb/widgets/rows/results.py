"""Each result that a verb or a method returns, as data: its head, its tables, and which one is the main."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.goals import VALUES
from dlrover_nb.widgets.mitigations import deciders
from dlrover_nb.widgets.rows import columns as c
from dlrover_nb.widgets.rows.job_columns import JOBS
from dlrover_nb.widgets.rows.tables import Columns, Table, Tables, fields, listed, one

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.export import Imported
    from dlrover_nb.core.history import JobRun, Scoreboard
    from dlrover_nb.core.history.stores.load_series import LoadPoint
    from dlrover_nb.core.straggler.review import Review
    from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad
    from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob
    from dlrover_nb.core.structs.decisions.audited import AuditedCommand
    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.decisions.goals import Goal, GoalAnswer
    from dlrover_nb.core.structs.decisions.mitigations import Mitigation
    from dlrover_nb.core.structs.decisions.questions import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.brain import BrainRound, JobShare, QueuedJob
    from dlrover_nb.core.structs.views.schema import DataSchema
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.core.why import Answer

_NAMED: Columns[tuple[str, str | None]] = Columns(fields("job=0 open_proposal=1"))
_ACTED: Columns[tuple[str, str | None]] = Columns(fields("job=0 open_mitigation=1"))
_JOB: Columns[str] = Columns({"job": lambda name: name})
_DECIDED: Columns[tuple[str, Decision]] = Columns({**fields("job=0"), **c.through("1", c.DECISIONS.getters)})
_IMPORTED: Columns[tuple[str, Imported]] = Columns(
    {
        **fields("path=0 job=1.name kind=1.kind version=1.version auto_scale=1.auto_scale"),
        **c.through("1.plan", c.PLAN),
        **fields("changed=1.differs unknown=1.unknown"),
    }
)
_ROUND: Columns[BrainRound] = Columns(fields("cluster by term number at_s took_s is_kept note"))
_SHARES: Columns[JobShare] = Columns(
    {
        **fields("job owner"),
        **c.through("now", c.PLAN),
        **fields(
            "meant=meant.short added_cores quota_cpu=quota.cpu quota_memory_mib=quota.memory_mib why refused"
        ),
    }
)
_APART: Columns[tuple[str, str]] = Columns(fields("job=0 why=1"))
_QUEUE: Columns[QueuedJob] = Columns(
    {
        **fields("job owner"),
        "place": lambda q: None if q.admitted else q.place.place,
        **fields(
            "asked=asked.short admitted=admitted.short starts_in_s=place.starts_in_s why=place.why refused"
        ),
    }
)
_MET: Columns[tuple[str, GoalAnswer]] = Columns(
    {
        **fields("job=0"),
        "is_met": lambda m: m[1].plan is not None,
        **fields("is_sure=1.is_sure plan=1.plan.plan.short"),
    }
)
_GOALS: Columns[tuple[Goal, float | None, float | None]] = Columns(
    fields("goal=0.text kind=0.kind limit=0.limit value=1 nearest=2")
)
_DIFFERENCES: Columns[tuple[str, str, str]] = Columns(fields("what=0 in_file=1 now=2"))
_UNMANAGED: Columns[UnmanagedJob] = Columns(
    fields("job=name kind state ended=is_final entrypoint started_at_s ended_at_s message ended_by")
)
_CLUSTER: Columns[tuple[str, Capacity | None, str, str]] = Columns(
    fields("cluster=0 total_cpu=1.total_cpu total_memory_mib=1.total_memory_mib message=2 ask=3")
)


def jobs(summaries: Iterable[JobSummary]) -> Tables:
    """Return the list of jobs."""
    return listed("jobs", JOBS, summaries)


def unmanaged(summaries: Iterable[UnmanagedJob]) -> Tables:
    """Return jobs of others."""
    return listed("unmanaged", _UNMANAGED, summaries)


def status(snapshot: JobSnapshot) -> Tables:
    """Return the state of a job."""
    tables = {"nodes": c.NODES.table(snapshot.nodes), "memory": c.MEMORY.table(snapshot.memory)}
    return Tables(one(c.STATUS, snapshot), tables)


def submitted(spec: JobSpec, schema: DataSchema | None = None) -> Tables:
    """Return a job that was just submitted, and the columns that it trains on, where they are known."""
    columns = c.COLUMNS.table(() if schema is None else schema.columns)
    return Tables(one(c.SUBMITTED, spec), {"columns": columns})


def plans(snapshot: JobSnapshot) -> Tables:
    """Return a job's proposals, the front, and the outcomes of plans."""
    name, proposal, front = snapshot.spec.name, snapshot.open_proposal, snapshot.front
    tables = {
        "proposals": c.PROPOSALS.table(snapshot.proposals),
        "front": c.FRONT.table(front.candidates if front else ()),
        "outcomes": c.OUTCOMES.table((name, outcome) for outcome in snapshot.outcomes),
    }
    return Tables(one(_NAMED, (name, proposal.id if proposal else None)), tables, "proposals")


def why(explanation: Explanation, answers: Sequence[Answer]) -> Tables:
    """Return an explanation, with the answers to questions about it and the numbers in their words."""
    tables = {
        "answers": c.ANSWERS.table(answers),
        "numbers": c.NUMBERS.table((each.question, value) for each in answers for value in each.values),
        "marginals": c.MARGINALS.table(explanation.marginals),
        "evidence": c.EVIDENCE.table(explanation.evidence),
    }
    return Tables(one(c.WHY, explanation), tables)


def whatif(weighed: Iterable[Weighed]) -> Tables:
    """Return the predicted effects of plans."""
    return listed("plans", c.WHATIF, weighed)


def decision(made: Decision, snapshot: JobSnapshot) -> Tables:
    """Return a decision."""
    return Tables(one(_DECIDED, (snapshot.spec.name, made)))


def logs(lines: Iterable[LogLine]) -> Tables:
    """Return log lines."""
    return listed("lines", c.LOGS, lines)


def stragglers(snapshot: JobSnapshot, review: Review) -> Tables:
    """Return the nodes, who is slow, what would help and errors, and which action waits for an answer."""
    name, opened = snapshot.spec.name, snapshot.open_mitigation
    tables = {
        "nodes": c.NODE_TIMES.table((each, review.others_s(each)) for each in review.times),
        "stragglers": c.STRAGGLERS.table(review.findings),
        "mitigations": c.MITIGATIONS.table(review.proposed),
        "errors": c.NODE_ERRORS.table(snapshot.node_errors),
    }
    return Tables(one(_ACTED, (name, opened.id if opened else None)), tables, "stragglers")


def mitigations(snapshot: JobSnapshot) -> Tables:
    """Return the actions against stragglers, and who is slow."""
    opened = snapshot.open_mitigation
    tables = {
        "mitigations": _acted(snapshot.mitigations, snapshot.decisions),
        "stragglers": c.STRAGGLERS.table(snapshot.stragglers),
    }
    return Tables(one(_ACTED, (snapshot.spec.name, opened.id if opened else None)), tables, "mitigations")


def _acted(acted: Sequence[Mitigation], decisions: Sequence[Decision]) -> Table:
    """Return actions with who decided on each."""
    by = deciders(acted, decisions)
    return c.ACTIONS.table((each, by.get(each.id)) for each in acted)


def brain(brain_round: BrainRound) -> Tables:
    """Return what the brain gives to every job of a cluster."""
    tables = {
        "shares": _SHARES.table(brain_round.shares),
        "queue": _QUEUE.table(brain_round.queue),
        "apart": _APART.table(brain_round.apart),
    }
    return Tables(one(_ROUND, brain_round), tables, "shares")


def goals(answer: GoalAnswer, snapshot: JobSnapshot) -> Tables:
    """Return the plan that meets some goals, or what is in the way."""
    nearest = {each.goal: each.nearest for each in answer.bindings}
    alone = dict(answer.alone)
    rows = [
        (
            goal,
            None if answer.plan is None else VALUES[goal.kind](answer.plan),
            nearest.get(goal, alone.get(goal)),
        )
        for goal in answer.goals
    ]
    return Tables(one(_MET, (snapshot.spec.name, answer)), {"goals": _GOALS.table(rows)}, "goals")


def shards(snapshot: JobSnapshot) -> Tables:
    """Return the account of rows."""
    tables = {
        "shards": c.SHARDS.table((("train", snapshot.train), ("evaluate", snapshot.evaluate))),
        "quarantine": c.QUARANTINE.table(snapshot.quarantined),
        "skipped_batches": c.SKIPPED_BATCHES.table(snapshot.skipped_batches),
    }
    return Tables(one(_JOB, snapshot.spec.name), tables, "shards")


def runs(rows: Iterable[JobRun]) -> Tables:
    """Return the runs in the history."""
    return listed("runs", c.RUNS, rows)


def audit(rows: Iterable[AuditedCommand]) -> Tables:
    """Return commands in the audit."""
    return listed("commands", c.AUDIT, rows)


def history(past: RunHistory) -> Tables:
    """Return one run of the history."""
    tables = {
        "proposals": c.PROPOSALS.table(past.proposals),
        "decisions": c.DECISIONS.table(past.decisions),
        "outcomes": c.OUTCOMES.table((past.run.job, outcome) for outcome in past.outcomes),
        "mitigations": _acted(past.mitigations, past.decisions),
        "series": c.SERIES.table(past.series),
    }
    return Tables(one(c.RUNS, past.run), tables)


def scores(board: Scoreboard) -> Tables:
    """Return how good predictions were: of all jobs together (the head), and of each."""
    tables = {"jobs": c.SCORES.table(board.jobs), "outcomes": c.OUTCOMES.table(board.outcomes)}
    return Tables(one(c.SCORES, (None, board.total)), tables, "jobs")


def cluster(description: str, capacity: Capacity | None, why_unknown: str, access: ClusterAccess) -> Tables:
    """Return a cluster: its machines, and the user's rights there."""
    tables = {
        "machines": c.MACHINES.table(capacity.shapes if capacity else ()),
        "rights": c.RIGHTS.table(access.allowed),
    }
    return Tables(one(_CLUSTER, (description, capacity, why_unknown, access.ask)), tables)


def load(description: str, now: ClusterLoad, points: Iterable[LoadPoint]) -> Tables:
    """Return the load of a cluster: all machines together (the head), each of them, and the recent past."""
    tables = {
        "machines": c.MACHINE_LOADS.table(now.machines),
        "jobs": c.HOLDERS.table((m.name, job, amount) for m in now.machines for job, amount in m.jobs),
        "series": c.LOAD_POINTS.table(points),
    }
    return Tables(one(c.LOAD, (description, now)), tables, "machines")


def facts(**values: object) -> Tables:
    """Return a result that is one row of named values."""
    return Tables(Table(tuple(values), (values,)))


def imported(path: str, documents: Imported, differences: Iterable[tuple[str, str, str]]) -> Tables:
    """Return the content of a file of exported documents, and what differs from the running job."""
    return Tables(one(_IMPORTED, (path, documents)), {"differences": _DIFFERENCES.table(differences)})
