"""The page *History*: past runs to be found, one of them with its past moments, or several side by side.

The address holds all of it: the filter of the list, the run, the moment, or the runs that are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.decisions import check_reader
from dlrover_nb.dashboard.pages.lists import Field, address, card, filters, link
from dlrover_nb.dashboard.pages.replays import Reading
from dlrover_nb.dashboard.pages.travel import (
    asked_moment,
    asked_span_s,
    part_html,
    past_of,
    reading_html,
    scrubber_html,
)
from dlrover_nb.widgets import theme, units
from dlrover_nb.widgets.blocks import EMPTY, escape
from dlrover_nb.widgets.past.compare import compare_view
from dlrover_nb.widgets.past.history import ended_words, history_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.history import JobRun
    from dlrover_nb.dashboard.page import Visit

N_RUN = 100  # on one page of the list
MOST_COMPARED = 8
_CELL = "padding:3px 12px 3px 0;vertical-align:top;text-align:left"
_BUTTON = (
    f"font:inherit;padding:6px 12px;min-height:36px;background:{theme.SURFACE};color:{theme.INK};"
    f"border:1px solid {theme.EDGE};border-radius:4px;cursor:pointer"
)


def body(visit: Visit) -> str:
    """Return the list, a run, or a comparison, by what the address names."""
    check_reader(visit.person)
    runs = tuple(dict.fromkeys(visit.several.get("run", ())))
    if not runs:
        return _list(visit)
    if len(runs) > MOST_COMPARED:
        raise InvalidValueError(f"at most {MOST_COMPARED} runs are compared, got {len(runs)}; leave some out")
    histories = [run_of(each, visit) for each in runs]
    if len(histories) > 1:
        return _back(visit) + compare_view(histories).html()
    return _back(visit) + _one(histories[0], visit)


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


def _list(visit: Visit) -> str:
    every = visit.team.history.jobs()
    runs = matching(every, visit.query)
    number = _page_number(visit.query)
    shown = runs[(number - 1) * N_RUN : number * N_RUN]
    path, keep = f"{visit.root}/history", _cluster(visit)
    given = {field.name: visit.query.get(field.name, "") for field in _fields(every)}
    pages = ""
    for words, at in (("Newer", number - 1), ("Older", number + 1)):
        if 1 <= at <= -(-len(runs) // N_RUN):
            pages += f" {link(address(path, {**keep, **given, 'page': str(at)}), words)}"
    return (
        card(filters(path, _fields(every), given, keep=keep), label="Filter")
        + card(_table(shown, len(runs), path, keep))
        + (f'<nav aria-label="Pages of runs">{pages}</nav>' if pages else "")
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


def _table(runs: list[JobRun], n_all: int, path: str, keep: Mapping[str, str]) -> str:
    head = ("Compare", "Job", "Run", "Owner", "Started", "Ended as", "Took", "Plan at first", "Model")
    heads = "".join(f'<th scope="col" style="{_CELL};white-space:nowrap">{each}</th>' for each in head)
    rows = "".join(_row(run, path, keep) for run in runs)
    empty = f'<tr><td colspan="{len(head)}">{EMPTY}</td></tr>'
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in keep.items()
    )
    title = f"{units.counted(n_all, 'run')}, newest first"
    return (
        f'<form method="get" action="{escape(path)}">{hidden}'
        f'<div tabindex="0" role="group" aria-label="{title}" style="overflow-x:auto">'
        f'<table style="border-collapse:collapse"><caption style="text-align:left;font-weight:600">{title}'
        f"</caption><thead><tr>{heads}</tr></thead><tbody>{rows or empty}</tbody></table></div>"
        f'<p><button style="{_BUTTON}">Compare the selected runs</button></p></form>'
    )


def _row(run: JobRun, path: str, keep: Mapping[str, str]) -> str:
    took_s = None if run.ended_at_s is None else run.ended_at_s - run.started_at_s
    name = escape(run.run)
    box = f'<input type="checkbox" name="run" value="{name}" aria-label="Compare {name}">'
    cells = (
        f'<label style="display:inline-block;min-width:24px;min-height:24px">{box}</label>',
        escape(run.job),
        link(address(path, {**keep, "run": run.run}), run.run),
        escape(run.owner or units.MISSING),
        units.clock(run.started_at_s),
        escape(ended_words(run)),
        units.unbroken(units.duration(took_s)),
        escape(units.unbroken(run.spec.plan.short)),
        escape(run.spec.model.name),
    )
    return f"<tr>{''.join(f'<td style={chr(34)}{_CELL}{chr(34)}>{cell}</td>' for cell in cells)}</tr>"


def _one(history: RunHistory, visit: Visit) -> str:
    past, keep = past_of(history), _cluster(visit)
    if isinstance(past, Reading):
        again = address(
            f"{visit.root}/history", {**keep, "run": history.run.run, "at": visit.query.get("at", "")}
        )
        return card(reading_html(past, again), label="Time travel") + history_view(history).html()
    at_s, span_s = asked_moment(visit.query, past), asked_span_s(visit.query)
    return (
        card(
            "<h2>Time travel</h2>" + scrubber_html(past, at_s, span_s, root=visit.root, keep=keep),
            label="Time travel",
        )
        + '<p id="travel-told" role="status" aria-live="polite"></p>'
        + f'<div id="travel-moment">{part_html(past, at_s, span_s)}</div>'
        + '<details style="margin:12px 0"><summary style="cursor:pointer">The whole run</summary>'
        + f"{history_view(history).html()}</details>"
        + f'<script src="{escape(visit.root)}/static/history.js" defer></script>'
    )


def _back(visit: Visit) -> str:
    return f"<p>{link(address(f'{visit.root}/history', _cluster(visit)), 'All runs')}</p>"


def _cluster(visit: Visit) -> dict[str, str]:
    return {"cluster": visit.query["cluster"]} if "cluster" in visit.query else {}


def _page_number(query: Mapping[str, str]) -> int:
    text = query.get("page", "1")
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 7 and int(text) > 0):
        raise InvalidValueError(f"page must be a number from 1 on, got {text[:20]!r}; leave it out")
    return int(text)


PAGE = Page("history", "History", body)
