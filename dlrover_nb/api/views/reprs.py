"""Displays of core records in a notebook, registered by `%load_ext dlrover_nb`.

The core is independent of notebooks, so its records have no rich form of their own; here each gets the view
that the verbs display it with, as text and as HTML with inline SVG, which is kept in a saved notebook. They
are named by their modules: nothing is imported before one is shown. A record inside a list or a tuple keeps
the short form of Python, as a page of views would no longer be a list.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Tone, Verbatim, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.views.summary import JobSummary

_STRUCTS = "dlrover_nb.core.structs"
_RECORDS = "dlrover_nb.widgets.past.records"
_HERE = "dlrover_nb.api.views.reprs"
_VIEWS = {  # (module, record) -> (module, what makes a view of it)
    (f"{_STRUCTS}.plan.resources", "ResourcePlan"): (_RECORDS, "plan_view"),
    (f"{_STRUCTS}.decisions.candidates", "Candidate"): (_RECORDS, "candidate_view"),
    (f"{_STRUCTS}.decisions.candidates", "ParetoFront"): (_RECORDS, "front_view"),
    (f"{_STRUCTS}.decisions.decisions", "Proposal"): (_RECORDS, "proposal_view"),
    (f"{_STRUCTS}.decisions.decisions", "Decision"): (_RECORDS, "decision_view"),
    (f"{_STRUCTS}.decisions.decisions", "Outcome"): (_RECORDS, "outcome_view"),
    (f"{_STRUCTS}.views.fit", "Curve"): (_RECORDS, "curve_view"),
    (f"{_STRUCTS}.views.snapshot", "MemoryLine"): (_RECORDS, "forecast_view"),
    (f"{_STRUCTS}.views.fit", "FitReport"): (_RECORDS, "fit_view"),
    (f"{_STRUCTS}.views.snapshot", "JobSnapshot"): (_RECORDS, "snapshot_view"),
    (f"{_STRUCTS}.decisions.query_answers", "Explanation"): (_HERE, "explanation_view"),
    (f"{_STRUCTS}.decisions.query_answers", "Weighed"): (_HERE, "weighed_view"),
    (f"{_STRUCTS}.decisions.query_answers", "LogLine"): (_HERE, "line_view"),
    (f"{_STRUCTS}.job.job", "JobSpec"): (_HERE, "spec_view"),
    (f"{_STRUCTS}.views.summary", "JobSummary"): (_HERE, "summary_view"),
    ("dlrover_nb.core.client.past.history_queries", "RunHistory"): (
        "dlrover_nb.widgets.past.history",
        "history_view",
    ),
    ("dlrover_nb.core.history.runs.prediction_scores", "Scoreboard"): (
        "dlrover_nb.widgets.past.scores",
        "scores_view",
    ),
}


def register(formatter: Any) -> None:  # noqa: ANN401 - IPython carries no types here
    """Register the records with a shell's display formatter."""
    for (module, name), (where, what) in _VIEWS.items():
        view_of = _loader(where, what)
        formatter.formatters["text/html"].for_type_by_name(module, name, _html(view_of))
        formatter.formatters["text/plain"].for_type_by_name(module, name, _plain(view_of))


def unregister(formatter: Any) -> None:  # noqa: ANN401 - as above
    """Remove what `register` registered."""
    for module, name in _VIEWS:
        for kind in ("text/html", "text/plain"):
            formatter.formatters[kind].pop(f"{module}.{name}", None)


def explanation_view(explanation: Explanation) -> View:
    """Return why a plan is proposed, without the job's curves: the record does not hold them."""
    from dlrover_nb.widgets.jobs.why import (  # noqa: PLC0415 - as above
        candidate_facts,
        evidence_table,
        marginal_blocks,
    )
    from dlrover_nb.widgets.units import Currency  # noqa: PLC0415 - when one is shown

    e = explanation
    blocks: list[Block] = [Paragraph(e.why)]
    if e.candidate is not None:
        blocks.append(Facts(candidate_facts(e.candidate, Currency(), when="predicted")))
    blocks += [Paragraph(f"Limit: {each}.") for each in e.binding]
    if e.flip is not None:
        blocks.append(Paragraph(f"What would change it: {e.flip.words}", Tone.HINT))
    blocks += marginal_blocks(e.marginals, Currency("money")) if e.marginals else ()
    blocks += [evidence_table(e.evidence)] if e.evidence else []
    return View(f"Why {e.proposal or 'the plan that runs'}: {e.plan.short}", tuple(blocks))


def weighed_view(weighed: Weighed) -> View:
    """Return the predicted effect of a plan, and why it would be refused."""
    from dlrover_nb.widgets.past.records import candidate_view, plan_view  # noqa: PLC0415 - when one is shown

    refusal = (Paragraph(weighed.refusal, Tone.WARNING),) if weighed.refusal else ()
    shown = candidate_view(weighed.candidate) if weighed.candidate else plan_view(weighed.plan)
    return View(f"What if: {weighed.plan.short}", (*refusal, *shown.blocks))


def line_view(line: LogLine) -> View:
    """Return one line of a node."""
    from dlrover_nb.widgets.jobs.logs import logs_view  # noqa: PLC0415 - when one is shown

    return logs_view(line.node, (line,))


def spec_view(spec: JobSpec) -> View:
    """Return a job as its job file, without secrets: a notebook keeps what it shows."""
    from dlrover_nb.core.jobfile import dump_job  # noqa: PLC0415 - when one is shown
    from dlrover_nb.core.structs.job.secrets import without_secrets  # noqa: PLC0415 - as above

    bare, missing = without_secrets(spec)
    hidden = tuple(Paragraph(f"not shown, because it is secret: {each}") for each in missing)
    return View(f"Job {spec.name} as it is submitted", (*hidden, Verbatim(dump_job(bare).rstrip())))


def summary_view(summary: JobSummary) -> View:
    """Return one line of the list of jobs."""
    from dlrover_nb.widgets.jobs.status import jobs_view  # noqa: PLC0415 - when one is shown

    return jobs_view((summary,))


def _loader(module: str, name: str) -> Callable[[object], View]:
    def view_of(record: object) -> View:
        view: View = getattr(importlib.import_module(module), name)(record)
        return view

    return view_of


def _html(view_of: Callable[[object], View]) -> Callable[[object], str]:
    return lambda record: view_of(record).html()


def _plain(view_of: Callable[[object], View]) -> Callable[[object, Any, bool], None]:
    def pretty(record: object, printer: Any, cycle: bool) -> None:  # noqa: ANN401, ARG001, FBT001 - IPython's signature
        is_alone = len(printer.stack) == 1
        printer.text(view_of(record).text() if is_alone else repr(record))

    return pretty
