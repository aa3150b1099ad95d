"""`RequestStore`: commands that wait for a second person, in the history's database.

A request is closed by one person: the update asks for the open state, and the database lets one of two win.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select, update

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import NotFoundError, StaleDecisionError
from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.rows import record_from
from dlrover_nb.core.history.tables import audit_head, requests
from dlrover_nb.core.structs.decisions.commands import SecondRequest

if TYPE_CHECKING:
    from typing import Any

OPEN = "open"


class RequestStore(Store):
    """Commands that wait; fits `core.commands.service.Requests`."""

    def add(self, request: SecondRequest) -> SecondRequest:
        """Keep a request; return it with its id."""
        with self._database.writing() as connection:
            connection.execute(select(audit_head.c.seq).with_for_update())  # one writer at a time numbers
            n_known = connection.scalar(select(func.count()).select_from(requests)) or 0
            named = replace(request, id=f"r{n_known + 1}")
            connection.execute(
                insert(requests).values(
                    id=named.id,
                    job=named.command.job[:64],
                    first=named.first[:128],
                    at_s=named.at_s,
                    expires_at_s=named.expires_at_s,
                    state=OPEN,
                    record=to_json(named).decode(),
                )
            )
        return named

    def find(self, name: str) -> SecondRequest:
        """Return an open request.

        Raises
        ------
        NotFoundError
            When there is none of that id.
        StaleDecisionError
            When it is closed; it names by whom.
        """
        row = self._row(name)
        if row.state != OPEN:
            raise StaleDecisionError(f"{name} is not open any more: it was {row.state}")
        return record_from(row.record, SecondRequest)

    def take(self, name: str, state: str) -> SecondRequest:
        """Close an open request and return it; raises as `find` does."""
        mine = (requests.c.id == name) & (requests.c.state == OPEN)
        with self._database.writing() as connection:
            n_closed = connection.execute(update(requests).where(mine).values(state=state[:160])).rowcount
        row = self._row(name)
        if not n_closed:
            raise StaleDecisionError(f"{name} is not open any more: it was {row.state}")
        return record_from(row.record, SecondRequest)

    def open(self, at_s: float) -> tuple[SecondRequest, ...]:
        """Return the requests that wait, oldest first."""
        wanted = select(requests.c.record).where(requests.c.state == OPEN, requests.c.expires_at_s > at_s)
        rows = self._database.rows(wanted.order_by(requests.c.at_s))
        return tuple(record_from(each.record, SecondRequest) for each in rows)

    def _row(self, name: str) -> Any:  # noqa: ANN401 - a row of a Select has no useful static type
        rows = self._database.rows(select(requests).where(requests.c.id == name))
        if not rows:
            raise NotFoundError(
                f"no request {name!r} waits for a second person; see what does under Proposals"
            )
        return rows[0]
