"""The page *Jobs*: all jobs of a cluster in one table, with what they need first, and what they cost.

The server writes all of it, filtered and sorted as the address says; `static/jobs.js` filters and sorts from
then on without asking, and keeps the cells up to date by the events. So it works without scripts too, and a
link shows what its sender saw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.errors import NotAllowedError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.dashboard.forms.flash import flash_html
from dlrover_nb.dashboard.jobs_board.boards import board
from dlrover_nb.dashboard.jobs_board.filters import MOST_DRAWN, wanted_of
from dlrover_nb.dashboard.jobs_board.rows import COLUMNS, ordered
from dlrover_nb.dashboard.jobs_board.totals import decision_costs, decisions_sum
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.saved_views import saved_views
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.dashboard.jobs_board.deltas import Board
    from dlrover_nb.dashboard.jobs_board.filters import Wanted
    from dlrover_nb.dashboard.jobs_board.rows import Column, JobRow
    from dlrover_nb.dashboard.page import Visit

DAY_S = 86_400.0
N_DECISION_DAY = 7
N_DECISION = 20  # that are listed
_SCRIPTS = ("jobs.js",)


def body(visit: Visit) -> str:
    """Return the page.

    Raises
    ------
    NotAllowedError
        When the person has no role where these jobs run.
    """
    check_may_view(visit)
    shown, wanted = board(visit.team.cluster(visit.cluster)), wanted_of(visit.query)
    return (
        head_html(visit, _SCRIPTS)
        + flash_html(visit)
        + f'<div id="jobs" data-cluster="{escape(visit.cluster)}" '
        f'data-sort="{escape(wanted.sort)}" data-dir="{"down" if wanted.is_down else ""}">'
        + _live_html(shown)
        + _totals_html(shown)
        + _filters_html(visit, wanted, shown)
        + _table_html(visit, wanted, shown)
        + _people_html(shown)
        + _decisions_html(visit)
        + "</div>"
    )


def check_may_view(visit: Visit) -> None:
    """Refuse a person who may not even look."""
    if not visit.team.may(visit.person, Action.VIEW, visit.cluster):
        raise NotAllowedError("you have no role here and may see no jobs; ask an administrator for one")


def head_html(visit: Visit, scripts: Iterable[str] = ()) -> str:
    """Return the style sheet and the scripts of the pages about jobs."""
    root = escape(visit.root)
    loaded = "".join(f'<script type="module" src="{root}/static/{name}"></script>' for name in scripts)
    return f'<link rel="stylesheet" href="{root}/static/jobs.css">{loaded}'


def job_link(cluster: str, name: str) -> str:
    """Return the address of a job's page, beside that of this one."""
    return f"job?{urlencode({'cluster': cluster, 'name': name})}"


def history_link(cluster: str, name: str) -> str:
    """Return the address of the past runs of a job, beside that of this page."""
    return f"history?{urlencode({'cluster': cluster, 'q': name})}"


def _live_html(shown: Board) -> str:
    """Return the lines that the script keeps: whether the page is current, and news for those who listen."""
    badge = f"The cluster does not answer: {shown.error}" if shown.error else ""
    return (
        f'<p id="stale" class="jobs-stale" role="status"{"" if badge else " hidden"}>{escape(badge)}</p>'
        '<p id="news" class="jobs-news" role="status" aria-live="polite"></p>'
    )


def _totals_html(shown: Board) -> str:
    facts = "".join(
        f'<div><dt>{escape(title)}</dt><dd data-total="{escape(title)}">{escape(text)}</dd></div>'
        for title, text in shown.totals.items()
    )
    chart = (
        '<figure class="jobs-chart"><svg id="chart" viewBox="0 0 240 48" preserveAspectRatio="none" '
        'role="img" aria-label="Throughput of all jobs in the last minutes; the table has it by job">'
        '<path fill="none" vector-effect="non-scaling-stroke"/></svg>'
        "<figcaption>throughput of all jobs, last 5 min at most; by job in the table</figcaption></figure>"
    )
    return f'<section class="jobs-totals" aria-label="All jobs together"><dl>{facts}</dl>{chart}</section>'


def _filters_html(visit: Visit, wanted: Wanted, shown: Board) -> str:
    owners = sorted({row.owner for row in shown.rows.values() if row.owner} | ({wanted.owner} - {""}))
    hidden = _hidden(cluster=visit.cluster, sort=wanted.sort, dir="down" if wanted.is_down else "")
    return (
        f'<form id="filters" class="jobs-filters" role="search" aria-label="Filter jobs">{hidden}'
        f'<label>Search <input type="search" name="q" value="{escape(wanted.text)}" '
        'placeholder="name, owner, state" maxlength="200"></label>'
        f'<label>State <select name="state">{_options([*map(str, JobPhase)], wanted.phase)}</select></label>'
        f'<label>Owner <select name="owner">{_options(owners, wanted.owner)}</select></label>'
        f'<label class="jobs-check"><input type="checkbox" name="needs" value="1"'
        f"{' checked' if wanted.needs else ''}> needs attention</label>"
        f'<label class="jobs-check"><input type="checkbox" name="all" value="1"'
        f"{' checked' if wanted.is_whole else ''}> draw all</label>"
        "<button>Show</button></form>" + _views_html(visit, wanted)
    )


def _hidden(**fields: str) -> str:
    return "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in fields.items()
    )


def _options(values: Sequence[str], chosen: str) -> str:
    options = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(value)}</option>'
        for value in values
    )
    return f'<option value="">any</option>{options}'


def _views_html(visit: Visit, wanted: Wanted) -> str:
    """Return the person's saved views as links, and the form that saves this one."""
    common = _hidden(csrf=visit.csrf, cluster=visit.cluster, view=wanted.address)
    listed = "".join(
        f'<li><a href="jobs?{escape(urlencode({"cluster": visit.cluster, **view.wanted.query}))}">'
        f'{escape(view.name)}</a><form method="post" action="views">{common}'
        f"{_hidden(do='drop', name=view.name)}"
        f'<button aria-label="Remove the view {escape(view.name)}">Remove</button></form></li>'
        for view in saved_views(visit.team.notes, visit.person.name)
    )
    return (
        '<div class="jobs-views"><nav aria-label="Saved views"><ul>'
        f'<li><a href="jobs?{escape(urlencode({"cluster": visit.cluster}))}">All jobs</a></li>'
        f"{listed}</ul></nav>"
        f'<form method="post" action="views">{common}<label>Save this view as '
        '<input name="name" required maxlength="60"></label><button>Save</button></form></div>'
    )


def _table_html(visit: Visit, wanted: Wanted, shown: Board) -> str:
    head = "".join(_head_html(visit, wanted, column) for column in COLUMNS)
    rows = ordered(shown.rows.values(), wanted.sort, is_down=wanted.is_down)
    drawn, n_match = wanted.drawn(rows)
    lines = "".join(_row_html(visit.cluster, row, is_shown=row.name in drawn) for row in rows)
    widths = "".join(f'<col style="width:{column.width}%">' for column in COLUMNS)
    return (
        f'<p id="count" role="status">{count_words(n_match, len(drawn), len(rows))}</p>'
        '<div class="jobs-scroll" tabindex="0" role="region" aria-label="Table of jobs">'
        f'<table id="table" class="jobs-table" data-most="{MOST_DRAWN}"><caption>Jobs</caption>'
        f"<colgroup>{widths}</colgroup><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def count_words(n_match: int, n_drawn: int, n_job: int) -> str:
    """Return how many jobs match the filters, and how many of them are drawn."""
    rest = f"; the first {n_drawn:,} are drawn" if n_drawn < n_match else ""
    return f"{n_match:,} of {units.counted(n_job, 'job')}{rest}"


def _head_html(visit: Visit, wanted: Wanted, column: Column) -> str:
    is_sorted = column.key == wanted.sort
    other = replace(wanted, sort=column.key, is_down=is_sorted and not wanted.is_down)
    way = f' aria-sort="{"descending" if wanted.is_down else "ascending"}"' if is_sorted else ""
    address = escape(urlencode({"cluster": visit.cluster, **other.query}))
    number = ' class="n"' if column.is_number else ""
    return (
        f'<th scope="col" data-c="{column.key}"{number}{way}>'
        f'<a href="jobs?{address}" data-sort="{column.key}">{escape(column.title)}</a></th>'
    )


def _row_html(cluster: str, row: JobRow, *, is_shown: bool) -> str:
    cells = "".join(
        f'<td data-c="{column.key}"{_value(row, column)}>{escape(row.cell(column.key).text)}</td>'
        for column in COLUMNS[1:]
    )
    return (
        f'<tr data-job="{escape(row.name)}" data-phase="{escape(row.phase)}" '
        f'data-needs="{"1" if row.needs else ""}"{"" if is_shown else " hidden"}>'
        f'<th scope="row" data-c="job"><a href="{escape(job_link(cluster, row.name))}">'
        f"{escape(row.name)}</a> "
        f'<a class="jobs-past" href="{escape(history_link(cluster, row.name))}" '
        f'aria-label="Past runs of {escape(row.name)}">runs</a></th>'
        f"{cells}</tr>"
    )


def _value(row: JobRow, column: Column) -> str:
    value = row.cell(column.key).value
    number = ' class="n"' if column.is_number else ""
    return number + ("" if value is None else f' data-s="{value:g}"')


def _people_html(shown: Board) -> str:
    head = ("owner", "jobs", "cores", "memory", "cost rate")
    rows = "".join(_plain_row(person.cells) for person in shown.people)
    return _plain_table("people", "Cost per person", head, rows)


def _plain_row(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _plain_table(name: str, title: str, head: Sequence[str], rows: str, note: str = "") -> str:
    titles = "".join(f'<th scope="col">{escape(each)}</th>' for each in head)
    below = f"<p>{escape(note)}</p>" if note else ""
    return (
        f'<div class="jobs-scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        f'<table id="{name}" class="jobs-small"><caption>{escape(title)}</caption>'
        f"<thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>{below}"
    )


def _decisions_html(visit: Visit) -> str:
    """Return what the decisions of the last days have changed in cost."""
    since_s = visit.team.now_s() - N_DECISION_DAY * DAY_S
    costs = decision_costs(visit.team.audit.rows(since_s=since_s))
    rows = "".join(
        _plain_row((units.clock(cost.at_s), cost.person, cost.job, cost.what, cost.words))
        for cost in costs[:N_DECISION]
    )
    title = f"Cost of decisions, last {N_DECISION_DAY} days"
    head = ("when", "who", "job", "decision", "cost per hour")
    return _plain_table(
        "decided", title, head, rows, decisions_sum(costs) if costs else "None was carried out."
    )


PAGE = Page("jobs", "Jobs", body)
