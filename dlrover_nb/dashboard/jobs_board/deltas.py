"""What an event tells: the cells that have changed between two boards, and the news in it. Pure.

The law: a browser that applies each event to what it shows, shows the newest board. An event is computed
against what was sent last, so a browser that is slow gets one event for all that it has missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.dashboard.jobs_board.rows import JobRow, row_of
from dlrover_nb.dashboard.jobs_board.totals import PersonCost, per_person
from dlrover_nb.widgets import units
from dlrover_nb.widgets.rows.job_totals import totals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.summary import JobSummary

MOST_NEWS = 5  # sentences that are read out at once; more are counted


@dataclass(frozen=True, slots=True)
class Board:
    """All that the list of jobs shows at one moment.

    Parameters
    ----------
    rows
        By the names of jobs.
    error
        Why the cluster does not answer now; empty while it does.
    """

    rows: dict[str, JobRow]
    totals: dict[str, str]
    people: tuple[PersonCost, ...]
    error: str = ""


EMPTY = Board({}, {}, ())


def board_of(
    jobs: Sequence[JobSummary],
    capacity: Capacity | None,
    error: str = "",
    *,
    silent_s: Mapping[str, float] | None = None,
    now_s: float | None = None,
) -> Board:
    """Return the board of jobs; `silent_s` has the seconds since those gave an answer that give none now."""
    silent = silent_s or {}
    rows = {job.name: row_of(job, silent.get(job.name, 0.0), now_s) for job in jobs}
    return Board(rows, totals(jobs, capacity), per_person(jobs), error)


def only(board: Board, job: str) -> Board:
    """Return the board of one job alone; of all, where none is named."""
    if not job:
        return board
    rows = {job: board.rows[job]} if job in board.rows else {}
    return Board(rows, {}, (), board.error)


def delta(before: Board, after: Board) -> dict[str, Any]:
    """Return what has changed, with short keys; empty: nothing has.

    ``c``: cells of jobs, all of a new one; ``g``: jobs that are gone; ``t``: totals; ``p``: people, all of
    them; ``e``: the error, empty when it is over; ``w``: news, as sentences.
    """
    parts = {
        "c": _cells(before.rows, after.rows),
        "g": [name for name in before.rows if name not in after.rows],
        "t": {key: text for key, text in after.totals.items() if before.totals.get(key) != text},
        "p": [person.cells for person in after.people] if before.people != after.people else [],
        "w": news(before.rows, after.rows) if before is not EMPTY else [],
    }
    changes = {key: part for key, part in parts.items() if part}
    if before.people and not after.people:
        changes["p"] = []
    return changes | ({"e": after.error} if before.error != after.error else {})


def _cells(before: dict[str, JobRow], after: dict[str, JobRow]) -> dict[str, Any]:
    olds = ((name, before.get(name), row) for name, row in after.items())
    cells = {name: row.wire if old is None else row.changes(old) for name, old, row in olds}
    return {name: changed for name, changed in cells.items() if changed}


def news(before: dict[str, JobRow], after: dict[str, JobRow]) -> list[str]:
    """Return what a person who does not look at the table should hear: new proposals, failed jobs."""
    sentences = [words for name, row in after.items() if (words := _news_of(before.get(name), row))]
    n_more = len(sentences) - MOST_NEWS
    return sentences[:MOST_NEWS] + ([f"and {n_more} more"] if n_more > 0 else [])


def _news_of(old: JobRow | None, row: JobRow) -> str:
    if row.phase == JobPhase.FAILED and (old is None or old.phase != row.phase):
        return f"Job {row.name} has {row.cell('state').text}."
    before = {} if old is None else _opened(old)
    fresh = [text for name, text in _opened(row).items() if name not in before]
    return f"Job {row.name} has a new proposal: {'; '.join(fresh)}." if fresh else ""


def _opened(row: JobRow) -> dict[str, str]:
    """Return what waits for an answer, the proposal and the action, each by its id."""
    texts = row.cell("proposal").text.split("; ")
    return {text.partition(" ")[0]: text for text in texts if text != units.MISSING}
