"""The columns of every kind of row, with how each is filled from the records of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.structs.views.summary import share_done
from dlrover_nb.widgets.rows.tables import Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.history import JobRun, Score
    from dlrover_nb.core.straggler.monitor import NodeTimes
    from dlrover_nb.core.structs.cluster.cluster_access import Allowed
    from dlrover_nb.core.structs.decisions.actions import Proposed
    from dlrover_nb.core.structs.decisions.audited import AuditedCommand
    from dlrover_nb.core.structs.decisions.decisions import Candidate, Decision, Outcome, Prediction, Proposal
    from dlrover_nb.core.structs.decisions.mitigations import Mitigation
    from dlrover_nb.core.structs.decisions.questions import Explanation, LogLine, Marginal, Measured, Weighed
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import QuarantinedShard, ShardCounts, SkippedBatch
    from dlrover_nb.core.structs.training.stragglers import NodeErrors, Straggler
    from dlrover_nb.core.structs.views.past import SeriesRow
    from dlrover_nb.core.structs.views.schema import ColumnSchema
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, MemoryLine, NodeView
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.core.why import Answer, Question, Value

R = TypeVar("R")
S = TypeVar("S")


def through(
    part_of: Callable[[R], S | None], getters: Mapping[str, Callable[[S], object]]
) -> dict[str, Callable[[R], object]]:
    """Return the columns of a part of a record; all None where it has no such part."""

    def of(get: Callable[[S], object]) -> Callable[[R], object]:
        return lambda record: None if (part := part_of(record)) is None else get(part)

    return {name: of(get) for name, get in getters.items()}


PLAN: dict[str, Callable[[ResourcePlan], object]] = {
    "workers": lambda p: p.worker.count,
    "ps": lambda p: p.ps.count,
    "worker_cpu": lambda p: p.worker.cpu,
    "ps_cpu": lambda p: p.ps.cpu,
    "worker_memory_mib": lambda p: p.worker.memory_mib,
    "ps_memory_mib": lambda p: p.ps.memory_mib,
}
BAND: dict[str, Callable[[Prediction], object]] = {
    "predicted_samples_per_s": lambda p: p.samples_per_s,
    "predicted_low": lambda p: p.low,
    "predicted_high": lambda p: p.high,
    "extrapolates": lambda p: p.extrapolates,
}
EFFECT: dict[str, Callable[[Candidate], object]] = {
    **through(lambda c: c.prediction, BAND),
    "cost_per_hour": lambda c: c.cost_per_hour,
    "cost_per_million": lambda c: c.cost_per_million,
    "finish_s": lambda c: c.finish_s,
    "in_time": lambda c: c.in_time,
    "in_budget": lambda c: c.in_budget,
    "end_cost": lambda c: c.end_cost,
    "margin_s": lambda c: c.margin_s,
    "transition_s": lambda c: c.transition_s,
}

# jobs and their nodes

JOBS: Columns[JobSummary] = Columns(
    {
        "job": lambda j: j.name,
        "phase": lambda j: j.phase,
        "owner": lambda j: j.owner,
        "started_at_s": lambda j: j.started_at_s,
        "live": lambda j: j.live,
        "simulated": lambda j: j.simulated,
        **through(lambda j: j.plan, PLAN),
        "samples_per_s": lambda j: j.samples_per_s,
        "done": lambda j: j.done,
        "left_s": lambda j: j.left_s,
        "open_proposal": lambda j: j.open_proposal,
        "open_mitigation": lambda j: j.open_mitigation,
        "message": lambda j: j.message,
    }
)
STATUS: Columns[JobSnapshot] = Columns(
    {
        "job": lambda s: s.spec.name,
        "phase": lambda s: s.phase,
        "message": lambda s: s.message,
        "owner": lambda s: s.spec.owner,
        "mode": lambda s: s.mode,
        "at_s": lambda s: s.at_s,
        "started_at_s": lambda s: s.started_at_s,
        "ended_at_s": lambda s: s.ended_at_s,
        "simulated": lambda s: s.simulated,
        **through(lambda s: s.target, PLAN),
        "changing": lambda s: not s.phase.is_final and s.running != s.target,
        "samples_per_s": lambda s: s.samples_per_s,
        "loss": lambda s: s.loss,
        "n_sample_done": lambda s: s.train.n_sample_done,
        "n_sample_total": lambda s: s.train.n_sample_total,
        "done": lambda s: share_done(s.train),
        "auc": lambda s: s.evaluation.auc if s.evaluation else None,
        "log_loss": lambda s: s.evaluation.log_loss if s.evaluation else None,
        "open_proposal": lambda s: s.open_proposal.id if s.open_proposal else None,
        "open_mitigation": lambda s: s.open_mitigation.id if s.open_mitigation else None,
        "spent": lambda s: s.budget.spent if s.budget else None,
        "budget_total": lambda s: s.budget.limit if s.budget else None,
        "stop_at": lambda s: s.stop.at if s.stop and not s.stop.why_not else None,
        "stop_low": lambda s: s.stop.low if s.stop and not s.stop.why_not else None,
        "stop_high": lambda s: s.stop.high if s.stop and not s.stop.why_not else None,
        "decline": lambda s: s.stop.decline if s.stop else None,
    }
)
SUBMITTED: Columns[JobSpec] = Columns(
    {"job": lambda s: s.name, "mode": lambda s: s.mode, **through(lambda s: s.plan, PLAN)}
)
COLUMNS: Columns[ColumnSchema] = Columns(
    {
        "column": lambda c: c.name,
        "use": lambda c: c.use,
        "type": lambda c: c.type,
        "missing": lambda c: c.missing,
        "n_distinct": lambda c: c.n_distinct,
    }
)
NODES: Columns[NodeView] = Columns(
    {
        "node": lambda n: n.id,
        "role": lambda n: n.role,
        "state": lambda n: n.state,
        "waits_for": lambda n: n.waits_for,
        "since_s": lambda n: n.since_s,
        "cpu": lambda n: n.cpu,
        "cpu_used": lambda n: n.last.cpu_cores if n.last else None,
        "cpu_enforced": lambda n: n.cpu_enforced,
        "memory_mib": lambda n: n.memory_mib,
        "memory_used_mib": lambda n: n.last.memory_mib if n.last else None,
        "memory_enforced": lambda n: n.memory_enforced,
        "iter_s": lambda n: n.last.iter_s if n.last else None,
        "wished_host": lambda n: n.wish.host if n.wish else None,
        "host": lambda n: (n.wish.got or None) if n.wish else None,
        "wish_why": lambda n: n.wish.why if n.wish else None,
    }
)
MEMORY: Columns[MemoryLine] = Columns(
    {
        "role": lambda m: m.role,
        "limit_mib": lambda m: m.limit_mib,
        "now_mib": lambda m: m.now_mib,
        "mib_per_hour": lambda m: m.mib_per_hour,
        "at_end_mib": lambda m: m.at_end_mib,
        "at_end_low_mib": lambda m: m.at_end_low_mib,
        "at_end_high_mib": lambda m: m.at_end_high_mib,
        "full_in_s": lambda m: m.full_in_s,
        "oom_probability": lambda m: m.oom_probability,
    }
)
LOGS: Columns[LogLine] = Columns(
    {"at_s": lambda x: x.at_s, "node": lambda x: x.node, "level": lambda x: x.level, "text": lambda x: x.text}
)
NODE_TIMES: Columns[tuple[NodeTimes, float | None]] = Columns(
    {
        "node": lambda n: n[0].node,
        "role": lambda n: n[0].role,
        "work_s": lambda n: n[0].work_s,
        "others_s": lambda n: n[1],
        "exchange_s": lambda n: n[0].exchange_s,
        "samples_per_s": lambda n: n[0].samples_per_s or None,
    }
)
STRAGGLERS: Columns[Straggler] = Columns(
    {
        "node": lambda s: s.node,
        "role": lambda s: s.role,
        "pace": lambda s: s.pace,
        "iter_s": lambda s: s.iter_s,
        "peers_s": lambda s: s.peers_s,
        "ratio": lambda s: s.ratio,
        "window_s": lambda s: s.window_s,
        "since_s": lambda s: s.since_s,
        "rule": lambda s: s.rule,
    }
)
NODE_ERRORS: Columns[NodeErrors] = Columns(
    {
        "node": lambda e: e.node,
        "role": lambda e: e.role,
        "n_retryable": lambda e: e.n_retryable,
        "n_unretryable": lambda e: e.n_unretryable,
        "window_s": lambda e: e.window_s,
    }
)
MITIGATIONS: Columns[Proposed] = Columns(
    {
        "action": lambda p: p.action.words,
        "reason": lambda p: p.reason,
        "is_global": lambda p: p.action.is_global,
    }
)
ACTIONS: Columns[tuple[Mitigation, str | None]] = Columns(
    {
        "mitigation": lambda m: m[0].id,
        "action": lambda m: m[0].words,
        "why": lambda m: m[0].why,
        "gain": lambda m: m[0].gain,
        "cost": lambda m: m[0].cost,
        "status": lambda m: m[0].status,
        "by": lambda m: m[1],
        "decision": lambda m: m[0].decision or None,
        "created_at_s": lambda m: m[0].created_at_s,
        "closed_at_s": lambda m: m[0].closed_at_s,
        "note": lambda m: m[0].note,
    }
)
SHARDS: Columns[tuple[str, ShardCounts]] = Columns(
    {
        "purpose": lambda s: s[0],
        "shards": lambda s: s[1].total,
        "done": lambda s: s[1].done,
        "doing": lambda s: s[1].doing,
        "todo": lambda s: s[1].todo,
        "quarantined": lambda s: s[1].quarantined,
        "skipped": lambda s: s[1].skipped,
        "n_sample_done": lambda s: s[1].n_sample_done,
        "n_sample_total": lambda s: s[1].n_sample_total,
        "returned": lambda s: s[1].returned,
        "late_reports": lambda s: s[1].refused,
    }
)
QUARANTINE: Columns[QuarantinedShard] = Columns(
    {
        "shard": lambda s: s.shard,
        "purpose": lambda s: s.purpose,
        "epoch": lambda s: s.epoch,
        "start": lambda s: s.start,
        "stop": lambda s: s.stop,
        "killed": lambda s: s.killed,
    }
)
SKIPPED_BATCHES: Columns[SkippedBatch] = Columns(
    {
        "shard": lambda b: b.shard,
        "rows": lambda b: b.n_row,
        "first": lambda b: b.first,
        "last": lambda b: b.last,
        "rows_at_fault": lambda b: b.n_at_fault,
        "why": lambda b: b.reason,
    }
)

# plans and decisions

PROPOSALS: Columns[Proposal] = Columns(
    {
        "proposal": lambda p: p.id,
        "kind": lambda p: p.kind,
        "status": lambda p: p.status,
        "created_at_s": lambda p: p.created_at_s,
        "closed_at_s": lambda p: p.closed_at_s,
        **through(lambda p: p.candidate.plan, PLAN),
        **through(lambda p: p.candidate, EFFECT),
        "now_samples_per_s": lambda p: p.baseline.prediction.samples_per_s,
        "now_cost_per_hour": lambda p: p.baseline.cost_per_hour,
        "why": lambda p: p.why,
    }
)
FRONT: Columns[Candidate] = Columns({**through(lambda c: c.plan, PLAN), **EFFECT, "why": lambda c: c.reason})
WHATIF: Columns[Weighed] = Columns(
    {
        **through(lambda w: w.plan, PLAN),
        **through(lambda w: w.candidate, EFFECT),
        "refusal": lambda w: w.refusal,
    }
)
WHY: Columns[Explanation] = Columns(
    {
        "proposal": lambda e: e.proposal,
        "why": lambda e: e.why,
        **through(lambda e: e.plan, PLAN),
        **through(lambda e: e.candidate, EFFECT),
        "now_samples_per_s": lambda e: e.baseline.prediction.samples_per_s if e.baseline else None,
        "binding": lambda e: e.binding,
        "flip": lambda e: e.flip.words if e.flip else None,
    }
)
ANSWERS: Columns[Answer] = Columns(
    {
        "question": lambda a: a.question,
        "asks": lambda a: a.question.asks,
        "words": lambda a: a.words,
        "is_known": lambda a: a.is_known,
    }
)
NUMBERS: Columns[tuple[Question, Value]] = Columns(
    {
        "question": lambda n: n[0],
        "name": lambda n: n[1].name,
        "amount": lambda n: n[1].amount,
        "unit": lambda n: n[1].unit,
        "note": lambda n: n[1].note,
    }
)
MARGINALS: Columns[Marginal] = Columns(
    {
        "what": lambda m: m.what,
        **through(lambda m: m.weighed.plan, PLAN),
        "samples_per_s": lambda m: m.samples_per_s,
        "cost_per_hour": lambda m: m.cost_per_hour,
        "refusal": lambda m: m.weighed.refusal,
    }
)
EVIDENCE: Columns[Measured] = Columns(
    {
        **through(lambda m: m.plan, PLAN),
        "samples_per_s": lambda m: m.samples_per_s,
        "n_window": lambda m: m.n_window,
        **through(lambda m: m.predicted, BAND),
    }
)
DECISIONS: Columns[Decision] = Columns(
    {
        "decision": lambda d: d.id,
        "verdict": lambda d: d.verdict,
        "by": lambda d: d.by,
        "at_s": lambda d: d.at_s,
        "proposal": lambda d: d.proposal,
        "mode": lambda d: d.mode,
        "budget_total": lambda d: d.budget_total,
        **through(lambda d: d.plan, PLAN),
        "action": lambda d: d.action.words if d.action else None,
        "undoes": lambda d: d.undoes,
        "why": lambda d: d.why,
    }
)
OUTCOMES: Columns[tuple[str, Outcome]] = Columns(
    {
        "job": lambda o: o[0],
        "decision": lambda o: o[1].decision,
        "applied_at_s": lambda o: o[1].applied_at_s,
        **through(lambda o: o[1].plan, PLAN),
        **through(lambda o: o[1].predicted, BAND),
        "measured_samples_per_s": lambda o: o[1].measured_samples_per_s,
        "before_samples_per_s": lambda o: o[1].before_samples_per_s,
        "pause_s": lambda o: o[1].pause_s,
        "host_share": lambda o: o[1].host_share,
        "error": lambda o: o[1].error,
        "inside_band": lambda o: o[1].inside_band,
    }
)

# the past

RUNS: Columns[JobRun] = Columns(
    {
        "run": lambda r: r.run,
        "job": lambda r: r.job,
        "owner": lambda r: r.owner,
        "phase": lambda r: r.phase,
        "started_at_s": lambda r: r.started_at_s,
        "ended_at_s": lambda r: r.ended_at_s,
        "message": lambda r: r.message,
    }
)
AUDIT: Columns[AuditedCommand] = Columns(
    {
        "row": lambda a: a.seq,
        "at_s": lambda a: a.asked.at_s,
        "person": lambda a: a.asked.person,
        "entry": lambda a: a.asked.entry,
        "job": lambda a: a.asked.job,
        "action": lambda a: a.asked.action,
        "subject": lambda a: a.asked.subject,
        "why": lambda a: a.asked.why,
        "plan_before": lambda a: a.asked.plan_before,
        "plan_after": lambda a: a.asked.plan_after,
        "mitigation": lambda a: a.asked.mitigation,
        "predicted_samples_per_s": lambda a: a.asked.predicted_samples_per_s,
        "low": lambda a: a.asked.low,
        "high": lambda a: a.asked.high,
        "stage": lambda a: a.last.stage,
        "answer": lambda a: a.last.answer,
        "first": lambda a: a.asked.first,
    }
)
SERIES: Columns[SeriesRow] = Columns(
    {
        "at_s": lambda s: s.at_s,
        "span_s": lambda s: s.span_s,
        "samples_per_s": lambda s: s.samples_per_s,
        "workers": lambda s: s.workers,
        "ps": lambda s: s.ps,
        "worker_memory_mib": lambda s: s.worker_memory_mib,
        "ps_memory_mib": lambda s: s.ps_memory_mib,
    }
)
SCORES: Columns[tuple[str | None, Score]] = Columns(
    {
        "job": lambda s: s[0],
        "n_outcome": lambda s: s[1].n_outcome,
        "n_predicted": lambda s: s[1].n_predicted,
        "inside": lambda s: s[1].inside,
        "median_error": lambda s: s[1].median_error,
        "bias": lambda s: s[1].bias,
    }
)

# clusters

RIGHTS: Columns[Allowed] = Columns(
    {
        "what": lambda r: r.what,
        "right": lambda r: r.right,
        "allowed": lambda r: not r.missing,
        "missing": lambda r: r.missing,
        "needed": lambda r: not r.optional,
    }
)
