"""`AlertStore`: alerts in the history's database, where several servers agree on who sends each.

The servers of a team all see the same jobs, and each would begin the same alert. An alert's id says which one
of its job and kind it is: the first, the second, and so on. The process that inserts that id
first has begun it, and sends it; the others find it there. The end is an update that only one of them can
make.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.rows import record_from
from dlrover_nb.core.history.tables import alerts
from dlrover_nb.core.structs.views.alerts import Alert

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import ColumnElement, Connection

    from dlrover_nb.core.structs.views.alerts import AboutJob, AlertKind

N_LETTER = 40  # of the hash that stands for cluster, job and kind: a cluster's name may be long


class AlertStore(Store):
    """The alerts of a team."""

    def begin(self, alert: Alert, cool_down_s: float) -> Alert | None:
        """Keep a new alert and return it with its id.

        None: one of its job and kind is open, one about the same thing ended less than `cool_down_s` ago, or
        another server has just begun it.
        """
        which = _which(alert.about, alert.kind)
        try:
            with self._database.writing() as connection:
                n_before, newest = _newest(connection, which)
                if newest is not None and _is_in_the_way(newest, alert, cool_down_s):
                    return None
                made = replace(alert, id=f"{_name(alert.about, alert.kind)}-{n_before + 1}")
                connection.execute(insert(alerts).values(_row(made)))
        except BackendError as error:
            if isinstance(error.__cause__, IntegrityError):
                return None  # another server was faster
            raise
        return made

    def end(self, alert: Alert, at_s: float) -> Alert | None:
        """End an alert and return it; None: another server has ended it."""
        over = replace(alert, ended_at_s=at_s)
        mine = (alerts.c.key == alert.id) & alerts.c.ended_at_s.is_(None)
        change = update(alerts).where(mine).values(ended_at_s=at_s, record=to_json(over).decode())
        with self._database.writing() as connection:
            return over if connection.execute(change).rowcount else None

    def open(self) -> tuple[Alert, ...]:
        """Return the open alerts, oldest first."""
        wanted = select(alerts.c.record).where(alerts.c.ended_at_s.is_(None)).order_by(alerts.c.at_s)
        return tuple(record_from(row.record, Alert) for row in self._database.rows(wanted))

    def ended(self, n_row: int, *, job: str | None = None) -> tuple[Alert, ...]:
        """Return the newest alerts that are over, newest first: of one job, or of all."""
        wanted = select(alerts.c.record).where(alerts.c.ended_at_s.is_not(None))
        if job is not None:
            wanted = wanted.where(alerts.c.job == job[:64])
        rows = self._database.rows(wanted.order_by(alerts.c.at_s.desc()).limit(n_row))
        return tuple(record_from(row.record, Alert) for row in rows)


def _newest(connection: Connection, which: ColumnElement[bool]) -> tuple[int, Alert | None]:
    n_before = connection.scalar(select(func.count()).select_from(alerts).where(which)) or 0
    record = connection.scalar(select(alerts.c.record).where(which).order_by(alerts.c.at_s.desc()).limit(1))
    return n_before, None if record is None else record_from(record, Alert)


def _is_in_the_way(newest: Alert, alert: Alert, cool_down_s: float) -> bool:
    if newest.ended_at_s is None:
        return True
    return newest.subject == alert.subject and alert.at_s < newest.ended_at_s + cool_down_s


def _which(about: AboutJob, kind: AlertKind) -> ColumnElement[bool]:
    return (alerts.c.job == about.job[:64]) & alerts.c.key.startswith(f"{_name(about, kind)}-")


def _name(about: AboutJob, kind: AlertKind) -> str:
    return hashlib.sha256(f"{about.cluster}\n{about.job}\n{kind}".encode()).hexdigest()[:N_LETTER]


def _row(alert: Alert) -> dict[str, Any]:
    return {
        "key": alert.id,
        "job": alert.about.job[:64],
        "kind": str(alert.kind),
        "at_s": alert.at_s,
        "ended_at_s": None,
        "record": to_json(alert).decode(),
    }
