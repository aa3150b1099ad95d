"""Records as rows of their tables, and back."""

from __future__ import annotations

import math
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar, assert_never

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import BackendError, InvalidValueError, WireError
from dlrover_nb.core.history import tables
from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Outcome, Proposal
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.training.batch_cost import ProgramCost
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, SeriesRow, TermKnowledge

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import Table

    from dlrover_nb.core.structs.decisions.actions import ActionChoice

T = TypeVar("T")
OfARun = JobTraits | PhaseChanged | Proposal | Decision | Mitigation | Outcome | FitSummary
Record = JobSpec | OfARun | SeriesRow | ProgramCost
Columns = dict[str, object]

_LARGEST = sys.float_info.max  # JSON has no infinity


def run_row(run: str, job: str, at_s: float, spec: JobSpec) -> Columns:
    """Return the row of a run."""
    return {"run": run, "job": job, "owner": spec.owner, "started_at_s": at_s, "spec": _json(spec)}


def row_of(record: OfARun) -> tuple[Table, Columns]:  # noqa: PLR0911 - one case per record
    """Return the table of a record of a run, and its row but for the run."""
    match record:
        case JobTraits():
            return tables.traits, {"model": record.model, "owner": record.owner, "record": _json(record)}
        case PhaseChanged():
            return tables.phases, _phase(record)
        case Proposal():
            return tables.proposals, _proposal(record)
        case Decision():
            return tables.decisions, _decision(record)
        case Mitigation():
            return tables.mitigations, _mitigation(record)
        case Outcome():
            return tables.outcomes, _outcome(record)
        case FitSummary():
            return tables.fits, _fit(record)
        case _:
            assert_never(record)


def series_row(record: SeriesRow) -> Columns:
    """Return the row of a piece of a series but for the run.

    Raises
    ------
    InvalidValueError
        When the piece has no length, or a number below zero.
    """
    columns: Columns = {name: getattr(record, name) for name in SeriesRow.__slots__}
    if not (math.isfinite(record.span_s) and record.span_s > 0):
        raise InvalidValueError(f"span_s of a series row must be > 0, got {record.span_s}")
    for name in set(columns) - {"at_s", "span_s"}:
        if not getattr(record, name) >= 0:
            raise InvalidValueError(f"{name} of a series row must be >= 0, got {getattr(record, name)}")
    return columns


def series_from(row: Any) -> SeriesRow:  # noqa: ANN401 - a row of a Select has no useful static type
    """Return the piece of a series that a row holds."""
    return SeriesRow(**{name: getattr(row, name) for name in SeriesRow.__slots__})


def record_from(text: str, kind: type[T]) -> T:
    """Return the record that a row holds as JSON.

    Raises
    ------
    BackendError
        When it is not such a record.
    """
    try:
        return from_json(text, kind)
    except WireError as error:
        raise BackendError(
            f"the history must hold a {kind.__name__}, got something else: {error}; "
            "the file is damaged or of another release"
        ) from error


def _json(record: object) -> str:
    return to_json(record).decode()


def _phase(record: PhaseChanged) -> Columns:
    return {"at_s": record.at_s, "phase": str(record.phase), "message": record.message}


def _proposal(record: Proposal) -> Columns:
    return {
        "id": record.id,
        "created_at_s": record.created_at_s,
        "closed_at_s": record.closed_at_s,
        "kind": str(record.kind),
        "status": str(record.status),
        "plan": str(record.candidate.plan),
        "predicted_samples_per_s": record.candidate.prediction.samples_per_s,
        "cost_per_hour": record.candidate.cost_per_hour,
        "why": record.why,
        "record": _json(record),
    }


def _decision(record: Decision) -> Columns:
    return {
        "id": record.id,
        "at_s": record.at_s,
        "by": record.by,
        "verdict": str(record.verdict),
        "proposal": record.proposal,
        "plan": str(record.plan) if record.plan else None,
        "why": record.why,
        "record": _json(record),
    }


def _mitigation(record: Mitigation) -> Columns:
    gain = record.gain if record.gain is not None and math.isfinite(record.gain) else None
    return {
        "id": record.id,
        "created_at_s": record.created_at_s,
        "closed_at_s": record.closed_at_s,
        "kind": _kind(record.action),
        "status": str(record.status),
        "action": record.words,
        "gain": gain,
        "decision": record.decision or None,
        "why": record.why,
        "record": _json(replace(record, gain=gain)),
    }


def _kind(choice: ActionChoice) -> str:
    """Return the name of the field that a choice sets, such as ``restart``."""
    return next(each.name for each in fields(choice) if getattr(choice, each.name) is not None)


def _outcome(record: Outcome) -> Columns:
    return {
        "decision": record.decision,
        "applied_at_s": record.applied_at_s,
        "plan": str(record.plan),
        "predicted_samples_per_s": record.predicted.samples_per_s if record.predicted else None,
        "measured_samples_per_s": record.measured_samples_per_s,
        "pause_s": record.pause_s,
        "record": _json(record),
    }


def _fit(record: FitSummary) -> Columns:
    return {
        "at_s": record.at_s,
        "log_error": record.log_error,
        "n_plan": record.n_plan,
        "n_sample": record.n_sample,
        "record": _json(replace(record, terms=tuple(_finite(term) for term in record.terms))),
    }


def _finite(term: TermKnowledge) -> TermKnowledge:
    """Return a term that JSON can represent: an infinite error becomes the largest number."""
    if not math.isfinite(term.value):
        raise InvalidValueError(f"{term.term} of a fit must be finite to be kept, got {term.value}")
    return term if math.isfinite(term.std_error) else replace(term, std_error=_LARGEST, identified=False)
