"""The page *Jobs*: all jobs of a cluster in one table, with what they need first, and what they cost.

The server writes all of it, filtered and sorted as the address says; `static/jobs.js` filters and sorts from
then on without asking, and keeps the cells up to date by the events. So it works without scripts too, and a
link shows what its sender saw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote_plus, urlencode

from dlrover_nb.core.errors import NotAllowedError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.dashboard.forms.flash import flash_html
from dlrover_nb.dashboard.jobs_board.boards import board
from dlrover_nb.dashboard.jobs_board.elsewhere import elsewhere
from dlrover_nb.dashboard.jobs_board.filters import MOST_DRAWN, wanted_of
from dlrover_nb.dashboard.jobs_board.rows import IN_LINE, KEYS, USUAL, ordered
from dlrover_nb.dashboard.jobs_board.totals import decision_costs, decisions_sum
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.dashboard.saved_views import saved_views
from dlrover_nb.widgets import units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from dlrover_nb.dashboard.jobs_board.deltas import Board
    from dlrover_nb.dashboard.jobs_board.filters import Wanted
    from dlrover_nb.dashboard.jobs_board.rows import Column
    from dlrover_nb.dashboard.page import Visit

DAY_S = 86_400.0
N_DECISION_DAY = 7
N_DECISION = 20  # that are listed
MOST_COMPARED = 6  # jobs
_PHASES = tuple((str(phase), str(phase)) for phase in JobPhase)


def body(visit: Visit) -> Markup:
    """Return the page.

    Raises
    ------
    NotAllowedError
        When the person has no role where these jobs run.
    """
    check_may_view(visit)
    shown, wanted = board(visit.team.cluster(visit.cluster)), _wanted(visit)
    owners = sorted({row.owner for row in shown.rows.values() if row.owner} | ({wanted.owner} - {""}))
    tags = sorted({tag for row in shown.rows.values() for tag in row.tags} | ({wanted.tag} - {""}))
    lines, count = _lines(visit.cluster, wanted, shown)
    return render(
        "jobs.html",
        visit=visit,
        news=flash_html(visit),
        board=shown,
        wanted=wanted,
        phases=_PHASES,
        owners=[(owner, owner) for owner in owners],
        tags=[(tag, tag) for tag in tags],
        all_jobs=_address(visit, {}),
        views=[
            (view.name, _address(visit, view.wanted.query))
            for view in saved_views(visit.team.notes, visit.person.name)
        ],
        count=count,
        most_drawn=MOST_DRAWN,
        most_compared=MOST_COMPARED,
        usual=",".join(USUAL),
        columns=_placed(wanted),
        heads=[(each, _sorted_address(visit, wanted, each.column)) for each in _placed(wanted)],
        lines=lines,
        places=() if shown.rows else elsewhere(visit),
        people=[person.cells for person in shown.people],
        decisions=_decisions(visit),
    )


def _wanted(visit: Visit) -> Wanted:
    """Return what the address asks for; a form without scripts names each column alone."""
    return wanted_of({**visit.query, "cols": ",".join(visit.several.get("cols", ()))})


@dataclass(frozen=True, slots=True)
class _Placed:
    """A column in the table: whether it is shown, and its share of the width in percent."""

    column: Column
    is_shown: bool
    percent: str


def _placed(wanted: Wanted) -> list[_Placed]:
    whole = sum(KEYS[key].width for key in wanted.columns)
    return [
        _Placed(column, column.key in wanted.columns, f"{100 * column.width / whole:.2f}")
        for column in IN_LINE
    ]


def check_may_view(visit: Visit) -> None:
    """Refuse a person who may not even look."""
    if not visit.team.may(visit.person, Action.VIEW, visit.cluster):
        raise NotAllowedError("you have no role here and may see no jobs; ask an administrator for one")


def job_link(cluster: str, name: str) -> str:
    """Return the address of a job's page, beside that of this one."""
    return f"job?{urlencode({'cluster': cluster, 'name': name})}"


def history_link(cluster: str, name: str) -> str:
    """Return the address of the past runs of a job, beside that of this page."""
    return f"history?{urlencode({'cluster': cluster, 'q': name})}"


def _address(visit: Visit, query: dict[str, str]) -> str:
    return f"jobs?{urlencode({'cluster': visit.cluster, **query})}"


def _sorted_address(visit: Visit, wanted: Wanted, column: Column) -> str:
    """Return the address that sorts by a column; the other way round where it is sorted by it."""
    is_down = column.key == wanted.sort and not wanted.is_down
    return _address(visit, replace(wanted, sort=column.key, is_down=is_down).query)


def _lines(cluster: str, wanted: Wanted, shown: Board) -> tuple[list[tuple[object, ...]], str]:
    """Return the rows that are drawn, in their order, and how many there are in words.

    A browser with scripts gets all others by the first event, and one without could not show them.
    The last cell of a row is its second line. The beginnings of cells are made once for a column: made for
    each cell, 1,000 rows took a third longer.
    """
    rows = ordered(shown.rows.values(), wanted.sort, is_down=wanted.is_down)
    drawn, n_match = wanted.drawn(rows)
    job, past = job_link(cluster, ""), history_link(cluster, "")  # all the same but for the name at their end
    tags = [render("cell.html", column=column, shown=wanted.columns) for column in IN_LINE[1:]]
    lines: list[tuple[object, ...]] = []
    for row in (row for row in rows if row.name in drawn):
        name, needs = quote_plus(row.name), "1" if row.needs else ""
        cells = [
            (tag, _sort(cell.value), cell.exact, cell.text)
            for tag, cell in zip(tags, row.cells[1:], strict=False)
        ]
        below = row.cells[-1].text
        lines.append((row.name, row.phase, needs, job + name, past + name, cells, below))
    return lines, count_words(n_match, len(drawn), len(rows))


def _sort(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def count_words(n_match: int, n_drawn: int, n_job: int) -> str:
    """Return how many jobs match the filters, and how many of them are drawn."""
    rest = f"; the first {n_drawn:,} are drawn" if n_drawn < n_match else ""
    return f"{n_match:,} of {units.counted(n_job, 'job')}{rest}"


@dataclass(frozen=True, slots=True)
class _Decisions:
    """What the decisions of the last days have changed in cost."""

    title: str
    rows: Sequence[tuple[str, ...]]
    note: str


def _decisions(visit: Visit) -> _Decisions:
    since_s = visit.team.now_s() - N_DECISION_DAY * DAY_S
    costs = decision_costs(visit.team.audit.rows(since_s=since_s))
    rows = [
        (units.clock(cost.at_s), cost.person, cost.job, cost.what, cost.words) for cost in costs[:N_DECISION]
    ]
    note = decisions_sum(costs) if costs else "None was carried out."
    return _Decisions(f"Cost of decisions, last {N_DECISION_DAY} days", rows, note)


PAGE = Page("jobs", "Jobs", body)
