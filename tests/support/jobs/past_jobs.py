"""Jobs that have ended, as the history tells of them."""

from __future__ import annotations

from dataclasses import replace

from dlrover_nb.core.client.past.history_queries import RunHistory
from dlrover_nb.core.history import JobRun
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.past_jobs import FitSummary, SeriesRow, TermKnowledge
from support.jobs import builders as b


def run(**changes: object) -> JobRun:
    spec = b.snapshot().spec
    base = JobRun(
        "quick-start@1", "quick-start", "ada", spec, b.START_S, JobPhase.SUCCEEDED, b.START_S + 600, ""
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def row(minute: int, samples_per_s: float = 30_000.0) -> SeriesRow:
    return SeriesRow(b.START_S + 60 * minute, 60.0, samples_per_s, 1, 1, 400.0, 300.0)


def fit(n: int) -> FitSummary:
    terms = (
        TermKnowledge("gradient", 1.0, 0.1, identified=True),
        TermKnowledge("fixed", 1.0, 9.0, identified=False),
    )
    return FitSummary(b.START_S + n, terms, 0.04, n, 3 * n, 1e6, 8.0, 512)


def past(**changes: object) -> RunHistory:
    seen = b.snapshot()
    base = RunHistory(
        run(),
        seen.proposals,
        seen.decisions,
        seen.outcomes,
        (fit(1), fit(2)),
        (row(1), row(2), row(9)),
        (b.mitigation(status=ProposalStatus.APPLIED, decision="d1"),),
    )
    return replace(base, **changes)  # type: ignore[arg-type]
