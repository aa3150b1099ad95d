"""The page *History*: past runs to be found, one of them with its past moments, or several side by side.

The address holds all of it: the filter of the list, the run, the moment, or the runs that are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.decisions import check_reader
from dlrover_nb.dashboard.pages.lists import Field, Filter, address
from dlrover_nb.dashboard.pages.replays import Reading
from dlrover_nb.dashboard.pages.travel import asked_moment, asked_span_s, part_html, past_of, scrubber_of
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import units
from dlrover_nb.widgets.past.compare import compare_view
from dlrover_nb.widgets.past.history import ended_words, history_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from markupsafe import Markup

    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.history import JobRun
    from dlrover_nb.dashboard.page import Visit

N_RUN = 100  # on one page of the list
MOST_COMPARED = 8
_HEAD = ("Compare", "Job", "Run", "Owner", "Started", "Ended as", "Took", "Plan at first", "Model")


@dataclass(frozen=True, slots=True)
class _Row:
    """A run of the list: its address, and what follows its name."""

    job: str
    run: str
    href: str
    cells: tuple[str, ...]


def body(visit: Visit) -> Markup:
    """Return the list, a run, or a comparison, by what the address names."""
    check_reader(visit.person)
    runs = tuple(dict.fromkeys(visit.several.get("run", ())))
    if not runs:
        return _list(visit)
    if len(runs) > MOST_COMPARED:
        raise InvalidValueError(f"at most {MOST_COMPARED} runs are compared, got {len(runs)}; leave some out")
    histories = [run_of(each, visit) for each in runs]
    if len(histories) > 1:
        return _run_html(visit, view=compare_view(histories))
    return _one(histories[0], visit)


def run_of(run: str, visit: Visit) -> RunHistory:
    """Return the records of a run by its id; `NotFoundError` names the nearest ones."""
    return visit.team.runs.run(run)


def matching(runs: Iterable[JobRun], query: Mapping[str, str]) -> list[JobRun]:
    """Return the runs that a filter lets through: text in job, run or message; owner, model and state."""
    text, owner, model, state = (query.get(name, "").lower() for name in ("q", "owner", "model", "state"))
    return [
        run
        for run in runs
        if text in f"{run.job} {run.run} {run.message}".lower()
        and owner in {"", run.owner.lower()}
        and model in {"", run.spec.model.name.lower()}
        and state in {"", state_of(run)}
    ]


def state_of(run: JobRun) -> str:
    """Return the state that a filter asks for: how a run ended, or that it has not."""
    return str(run.phase).lower() if run.phase.is_final else "not ended"


def _list(visit: Visit) -> Markup:
    every = visit.team.history.jobs()
    runs, number = matching(every, visit.query), _page_number(visit.query)
    path, keep, fields = f"{visit.root}/history", _cluster(visit), _fields(every)
    values = {field.name: visit.query.get(field.name, "") for field in fields}
    return render(
        "history.html",
        filter=Filter(path, fields, values, keep),
        title=f"{units.counted(len(runs), 'run')}, newest first",
        head=_HEAD,
        rows=[_row(run, path, keep) for run in runs[(number - 1) * N_RUN : number * N_RUN]],
        pages=[
            (words, address(path, {**keep, **values, "page": str(at)}))
            for words, at in (("Newer", number - 1), ("Older", number + 1))
            if 1 <= at <= -(-len(runs) // N_RUN)
        ],
    )


def _fields(runs: Iterable[JobRun]) -> tuple[Field, ...]:
    owners = sorted({run.owner for run in runs if run.owner})
    models = sorted({run.spec.model.name for run in runs})
    states = [*(str(phase) for phase in JobPhase if phase.is_final), "not ended"]
    return (
        Field("q", "Search", hint="job, run or message"),
        Field("owner", "Owner", tuple((each, each) for each in owners)),
        Field("model", "Model", tuple((each, each) for each in models)),
        Field("state", "State", tuple((each.lower(), each) for each in states)),
    )


def _row(run: JobRun, path: str, keep: Mapping[str, str]) -> _Row:
    took_s = None if run.ended_at_s is None else run.ended_at_s - run.started_at_s
    cells = (
        run.owner or units.MISSING,
        units.clock(run.started_at_s),
        ended_words(run),
        units.unbroken(units.duration(took_s)),
        units.unbroken(run.spec.plan.short),
        run.spec.model.name,
    )
    return _Row(run.job, run.run, address(path, {**keep, "run": run.run}), cells)


def _one(history: RunHistory, visit: Visit) -> Markup:
    past, keep, view = past_of(history), _cluster(visit), history_view(history)
    if isinstance(past, Reading):
        place = {**keep, "run": history.run.run, "at": visit.query.get("at", "")}
        return _run_html(visit, view=view, reading=past, again=address(f"{visit.root}/history", place))
    at_s, span_s = asked_moment(visit.query, past), asked_span_s(visit.query)
    return _run_html(
        visit,
        view=view,
        scrub=scrubber_of(past, at_s, span_s, root=visit.root, keep=keep),
        moment=part_html(past, at_s, span_s),
    )


def _run_html(visit: Visit, **values: object) -> Markup:
    back = address(f"{visit.root}/history", _cluster(visit))
    nothing = {"reading": None, "scrub": None}
    return render("run.html", root=visit.root, back=back, **{**nothing, **values})


def _cluster(visit: Visit) -> dict[str, str]:
    return {"cluster": visit.query["cluster"]} if "cluster" in visit.query else {}


def _page_number(query: Mapping[str, str]) -> int:
    text = query.get("page", "1")
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 7 and int(text) > 0):
        raise InvalidValueError(f"page must be a number from 1 on, got {text[:20]!r}; leave it out")
    return int(text)


PAGE = Page("history", "History", body)
