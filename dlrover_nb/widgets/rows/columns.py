"""Columns of rows that results of jobs have, with how each is filled from the records of the core.

Columns of one result alone stand beside it, in `api`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.structs.views.summary import share_done
from dlrover_nb.widgets.mitigations import deciders
from dlrover_nb.widgets.rows.tables import Columns, Table, fields, reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dlrover_nb.core.history import JobRun, Score
    from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
    from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Outcome, Proposal
    from dlrover_nb.core.structs.decisions.query_answers import (
        Explanation,
        LogLine,
        Marginal,
        Measured,
        Weighed,
    )
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import QuarantinedShard, ShardCounts, SkippedBatch
    from dlrover_nb.core.structs.views.past_jobs import SeriesRow
    from dlrover_nb.core.structs.views.schema import ColumnSchema
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, MemoryLine, NodeView
    from dlrover_nb.core.why import Answer, Question, Value


def through(path: str, getters: Mapping[str, Callable[[Any], object]]) -> dict[str, Callable[[Any], object]]:
    """Return the columns of a part of a record; all None where it has no such part."""
    part_of = reader(path)

    def of(get: Callable[[Any], object]) -> Callable[[Any], object]:
        return lambda record: None if (part := part_of(record)) is None else get(part)

    return {name: of(get) for name, get in getters.items()}


PLAN: dict[str, Callable[[ResourcePlan], object]] = fields(
    "workers=worker.count ps=ps.count worker_cpu=worker.cpu ps_cpu=ps.cpu "
    "worker_memory_mib=worker.memory_mib ps_memory_mib=ps.memory_mib"
)
BAND: dict[str, Callable[[Prediction], object]] = fields(
    "predicted_samples_per_s=samples_per_s predicted_low=low predicted_high=high extrapolates"
)
EFFECT: dict[str, Callable[[Candidate], object]] = {
    **through("prediction", BAND),
    **fields("cost_per_hour cost_per_million finish_s in_time in_budget end_cost margin_s transition_s"),
    **through(
        "quality",
        fields(
            "auc_change=auc auc_change_low=auc_low auc_change_high=auc_high loss_change=loss "
            "loss_change_low=loss_low loss_change_high=loss_high age"
        ),
    ),
}

# jobs and their nodes

JOB: Columns[JobSnapshot] = Columns(fields("job=spec.name"))
STATUS: Columns[JobSnapshot] = Columns(
    {
        **fields("job=spec.name phase message owner=spec.owner mode at_s started_at_s ended_at_s simulated"),
        **through("target", PLAN),
        "changing": lambda s: not s.phase.is_final and s.running != s.target,
        **fields("samples_per_s loss n_sample_done=train.n_sample_done n_sample_total=train.n_sample_total"),
        "done": lambda s: share_done(s.train),
        **fields(
            "auc=evaluation.auc log_loss=evaluation.log_loss open_proposal=open_proposal.id "
            "open_mitigation=open_mitigation.id spent=budget.spent budget_total=budget.limit"
        ),
        "stop_at": lambda s: s.stop.at if s.stop and not s.stop.why_not else None,
        "stop_low": lambda s: s.stop.low if s.stop and not s.stop.why_not else None,
        "stop_high": lambda s: s.stop.high if s.stop and not s.stop.why_not else None,
        **fields("decline=stop.decline"),
    }
)
SUBMITTED: Columns[JobSpec] = Columns({**fields("job=name mode"), **through("plan", PLAN)})
COLUMNS: Columns[ColumnSchema] = Columns(fields("column=name use type missing n_distinct"))
NODES: Columns[NodeView] = Columns(
    {
        **fields(
            "node=id role state waits_for since_s cpu cpu_used=last.cpu_cores cpu_enforced memory_mib "
            "memory_used_mib=last.memory_mib memory_enforced iter_s=last.iter_s gpu_busy=last.gpu_busy "
            "gpu_memory_used_mib=last.gpu_memory_mib wished_host=wish.host"
        ),
        "host": lambda n: (n.wish.got or None) if n.wish else None,
        **fields("wish_why=wish.why"),
    }
)
MEMORY: Columns[MemoryLine] = Columns(
    fields(
        "role limit_mib now_mib mib_per_hour at_end_mib at_end_low_mib at_end_high_mib full_in_s "
        "oom_probability"
    )
)
LOGS: Columns[LogLine] = Columns(fields("at_s node level text"))
ACTIONS: Columns[tuple[Mitigation, str | None]] = Columns(
    {
        **fields("mitigation=0.id action=0.words why=0.why gain=0.gain cost=0.cost status=0.status by=1"),
        "decision": lambda m: m[0].decision or None,
        **fields("created_at_s=0.created_at_s closed_at_s=0.closed_at_s note=0.note"),
    }
)


def actions(acted: Sequence[Mitigation], decisions: Sequence[Decision]) -> Table:
    """Return actions against stragglers with who decided on each."""
    by = deciders(acted, decisions)
    return ACTIONS.table((each, by.get(each.id)) for each in acted)


SHARDS: Columns[tuple[str, ShardCounts]] = Columns(
    fields(
        "purpose=0 shards=1.total done=1.done doing=1.doing todo=1.todo quarantined=1.quarantined "
        "skipped=1.skipped n_sample_done=1.n_sample_done n_sample_total=1.n_sample_total "
        "returned=1.returned late_reports=1.refused"
    )
)
QUARANTINE: Columns[QuarantinedShard] = Columns(fields("shard purpose epoch start stop killed"))
SKIPPED_BATCHES: Columns[SkippedBatch] = Columns(
    fields("shard rows=n_row first last rows_at_fault=n_at_fault why=reason")
)

# plans and decisions

OPEN_PROPOSAL: Columns[JobSnapshot] = Columns(fields("job=spec.name open_proposal=open_proposal.id"))
PROPOSALS: Columns[Proposal] = Columns(
    {
        **fields("proposal=id kind status created_at_s closed_at_s"),
        **through("candidate.plan", PLAN),
        **through("candidate", EFFECT),
        **fields(
            "now_samples_per_s=baseline.prediction.samples_per_s now_cost_per_hour=baseline.cost_per_hour why"
        ),
    }
)
FRONT: Columns[Candidate] = Columns({**through("plan", PLAN), **EFFECT, **fields("why=reason")})
WHATIF: Columns[Weighed] = Columns(
    {
        **through("plan", PLAN),
        **through("candidate", EFFECT),
        **fields("refusal caution"),
    }
)
WHY: Columns[Explanation] = Columns(
    {
        **fields("proposal why"),
        **through("plan", PLAN),
        **through("candidate", EFFECT),
        **fields("now_samples_per_s=baseline.prediction.samples_per_s binding flip=flip.words"),
    }
)
ANSWERS: Columns[Answer] = Columns(fields("question asks=question.asks words is_known"))
NUMBERS: Columns[tuple[Question, Value]] = Columns(
    fields("question=0 name=1.name amount=1.amount unit=1.unit note=1.note")
)
MARGINALS: Columns[Marginal] = Columns(
    {
        **fields("what"),
        **through("weighed.plan", PLAN),
        **fields("samples_per_s cost_per_hour refusal=weighed.refusal"),
    }
)
EVIDENCE: Columns[Measured] = Columns(
    {
        **through("plan", PLAN),
        **fields("samples_per_s n_window"),
        **through("predicted", BAND),
    }
)
DECISIONS: Columns[Decision] = Columns(
    {
        **fields("decision=id verdict by at_s proposal mode budget_total"),
        **through("plan", PLAN),
        **fields("action=action.words undoes why"),
    }
)
DECIDED: Columns[tuple[str, Decision]] = Columns({**fields("job=0"), **through("1", DECISIONS.getters)})
OUTCOMES: Columns[tuple[str, Outcome]] = Columns(
    {
        **fields("job=0 decision=1.decision applied_at_s=1.applied_at_s"),
        **through("1.plan", PLAN),
        **through("1.predicted", BAND),
        **fields(
            "measured_samples_per_s=1.measured_samples_per_s "
            "before_samples_per_s=1.before_samples_per_s pause_s=1.pause_s host_share=1.host_share "
            "error=1.error inside_band=1.inside_band"
        ),
    }
)

# the past

RUNS: Columns[JobRun] = Columns(fields("run job owner phase started_at_s ended_at_s message"))
SERIES: Columns[SeriesRow] = Columns(
    fields("at_s span_s samples_per_s workers ps worker_memory_mib ps_memory_mib")
)
SCORES: Columns[tuple[str | None, Score]] = Columns(
    fields(
        "job=0 n_outcome=1.n_outcome n_predicted=1.n_predicted inside=1.inside "
        "median_error=1.median_error bias=1.bias"
    )
)
