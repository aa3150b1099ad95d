"""What the list of all jobs shows of them: the filters and the order, which stand in its address. Pure.

The browser filters and sorts by the same rules without asking (`static/jobs.js`); here they hold for a
browser without scripts, and for the first drawing of a link that another person has sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from dlrover_nb.dashboard.jobs_board.rows import IN_LINE, KEYS, USUAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.dashboard.jobs_board.rows import JobRow

MOST_TEXT = 200
MOST_DRAWN = 200  # rows; a browser takes a second to lay 1,000 of them out, and a person reads none of that


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filters and order.

    Parameters
    ----------
    text
        Words that must all be in the name, the owner, the tags, the state, the proposal or the needs.
    phase, owner, tag
        Exactly these; empty: any.
    needs
        Only jobs that need a person.
    sort, is_down
        Column, and whether its largest stands first.
    is_whole
        Whether all rows are drawn, and not the first `MOST_DRAWN`.
    columns
        The keys of the columns that are shown, in the order of the table.
    """

    text: str = ""
    phase: str = ""
    owner: str = ""
    needs: bool = False
    sort: str = "needs"
    is_down: bool = False
    is_whole: bool = False
    columns: tuple[str, ...] = USUAL
    tag: str = ""

    @property
    def query(self) -> dict[str, str]:
        """It as parameters of an address, without what is as usual."""
        parameters = {
            "q": self.text,
            "state": self.phase,
            "owner": self.owner,
            "tag": self.tag,
            "needs": "1" if self.needs else "",
            "sort": "" if self.sort == "needs" else self.sort,
            "dir": "down" if self.is_down else "",
            "all": "1" if self.is_whole else "",
            "cols": "" if self.columns == USUAL else ",".join(self.columns),
        }
        return {key: value for key, value in parameters.items() if value}

    @property
    def address(self) -> str:
        """The same as the text after the question mark."""
        return urlencode(self.query)

    def shows(self, row: JobRow) -> bool:
        """Whether a job is shown."""
        if (self.phase and row.phase != self.phase) or (self.owner and row.owner != self.owner):
            return False
        if self.tag and self.tag not in row.tags:
            return False
        if self.needs and not row.needs:
            return False
        searched = " ".join(
            row.cell(key).text for key in ("job", "owner", "tags", "state", "proposal", "needs")
        ).lower()
        return all(word in searched for word in self.text.lower().split())

    def drawn(self, rows: Iterable[JobRow]) -> tuple[frozenset[str], int]:
        """Return the names of the jobs that are drawn, of ordered rows, and how many match."""
        matching = [row.name for row in rows if self.shows(row)]
        return frozenset(matching if self.is_whole else matching[:MOST_DRAWN]), len(matching)


def wanted_of(query: Mapping[str, str]) -> Wanted:
    """Return what the parameters of an address ask for; those that mean nothing are left out.

    A form without scripts sends a ``cols`` for each column: join these by commas first.
    """
    sort = query.get("sort", "")
    return Wanted(
        text=query.get("q", "")[:MOST_TEXT],
        phase=query.get("state", "")[:MOST_TEXT],
        owner=query.get("owner", "")[:MOST_TEXT],
        tag=query.get("tag", "")[:MOST_TEXT],
        needs=query.get("needs", "") == "1",
        sort=sort if sort in KEYS else "needs",
        is_down=query.get("dir", "") == "down",
        is_whole=query.get("all", "") == "1",
        columns=_columns(query.get("cols", "").split(",")),
    )


def _columns(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of these keys; the usual ones where they name none."""
    wanted = frozenset(keys)
    chosen = tuple(column.key for column in IN_LINE if column.key in wanted | {"job"})
    return chosen if len(chosen) > 1 or wanted == {"job"} else USUAL


def wanted_from(address: str) -> Wanted:
    """Return what a saved text after the question mark asks for."""
    return wanted_of(dict(parse_qsl(address)))
