"""`AuditStore`: the audit of commands in the history's database, as one hash chain for all its writers.

A row is appended in a transaction that holds the row of the head: on PostgreSQL by locking it, on SQLite by
the write lock that every writing transaction takes. So processes append one after the other, and no two
rows follow the same one. A key is claimed in the same transaction, hence by one command alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Select, and_, exists, insert, or_, select, update

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.history.audit.chain import Link, chained_hash
from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.rows import record_from
from dlrover_nb.core.history.tables import audit, audit_head
from dlrover_nb.core.structs.decisions.audited import AuditedCommand
from dlrover_nb.core.structs.decisions.commands import AuditRow, ChainedRow, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sqlalchemy import Connection

    from dlrover_nb.core.structs.decisions.audited import AuditFilter

PAGE = 1000  # rows that are read at once
_SEARCHED = ("at_s", "person", "entry", "action", "job", "stage", "key")
_ASKED = str(Stage.ASKED)


class AuditStore(Store):
    """The audit of all commands; fits `core.commands.service.AuditLog`."""

    def append(self, row: AuditRow) -> ChainedRow:
        """Add a row at the end of the chain."""
        with self._database.writing() as connection:
            return _append(connection, row)

    def claim(self, row: AuditRow) -> AuditRow | None:
        """Add the first row of a command; where its key is taken, return the newest row with it instead."""
        with self._database.writing() as connection:
            seq, before = _head(connection)  # first: it locks
            if row.key and (record := connection.scalar(_newest_with(row.key))) is not None:
                return record_from(record, AuditRow)
            _append_after(connection, seq, before, row)
        return None

    def find(self, key: str) -> AuditRow | None:
        """Return the newest row with the key of a command, if there is one."""
        for each in self._database.rows(_newest_with(key)):
            return record_from(each.record, AuditRow)
        return None

    def rows(
        self, *, after: int = 0, job: str | None = None, since_s: float | None = None
    ) -> Iterator[ChainedRow]:
        """Yield rows in their order: of one job, from a time on, after a number; all by default."""
        wanted = select(audit).order_by(audit.c.seq).limit(PAGE)
        if job is not None:
            wanted = wanted.where(audit.c.job == job)
        if since_s is not None:
            wanted = wanted.where(audit.c.at_s >= since_s)
        while page := self._database.rows(wanted.where(audit.c.seq > after)):
            for each in page:
                yield ChainedRow(each.seq, record_from(each.record, AuditRow), each.hash)
            after = page[-1].seq

    def newest(
        self, n_row: int, *, job: str | None = None, before: int | None = None
    ) -> tuple[ChainedRow, ...]:
        """Return the newest rows, newest first: of one job, before a number."""
        wanted = select(audit).order_by(audit.c.seq.desc()).limit(n_row)
        if job is not None:
            wanted = wanted.where(audit.c.job == job)
        if before is not None:
            wanted = wanted.where(audit.c.seq < before)
        rows = self._database.rows(wanted)
        return tuple(ChainedRow(each.seq, record_from(each.record, AuditRow), each.hash) for each in rows)

    def search(
        self, where: AuditFilter, *, n_command: int, before: int | None = None
    ) -> tuple[AuditedCommand, ...]:
        """Return the newest commands that a filter lets through, newest first: both rows of each as one.

        Parameters
        ----------
        before
            Only those whose first row has a smaller number; None: from the newest on.
        """
        with self._database.reading() as connection:
            return _searched(connection, where, n_command=n_command, before=before)

    def links(self, *, after: int = 0) -> Iterator[Link]:
        """Yield the rows as they are stored, by their number, for a check of the chain."""
        wanted = select(audit).order_by(audit.c.seq).limit(PAGE)
        while page := self._database.rows(wanted.where(audit.c.seq > after)):
            for each in page:
                yield Link(each.seq, each.hash, each.record.encode(), _doubt(each))
            after = page[-1].seq

    def head(self) -> tuple[int, str]:
        """Return number and hash of the last row, as they are kept apart from the rows."""
        (row,) = self._database.rows(select(audit_head.c.seq, audit_head.c.hash))
        return row.seq, row.hash


def _newest_with(key: str) -> Select[Any]:
    return select(audit.c.record).where(audit.c.key == key).order_by(audit.c.seq.desc()).limit(1)


def _append(connection: Connection, row: AuditRow) -> ChainedRow:
    seq, before = _head(connection)
    return _append_after(connection, seq, before, row)


def _head(connection: Connection) -> tuple[int, str]:
    head = connection.execute(select(audit_head.c.seq, audit_head.c.hash).with_for_update()).one()
    return head.seq, head.hash


def _append_after(connection: Connection, seq: int, before: str, row: AuditRow) -> ChainedRow:
    chained = ChainedRow(seq + 1, row, chained_hash(before, seq + 1, row))
    connection.execute(
        insert(audit).values(
            seq=chained.seq, **_columns(row), record=to_json(row).decode(), hash=chained.hash
        )
    )
    connection.execute(update(audit_head).values(seq=chained.seq, hash=chained.hash))
    return chained


def _columns(row: AuditRow) -> dict[str, object]:
    """Return the columns that a row is searched by."""
    return {
        "at_s": row.at_s,
        "person": row.person[:128],
        "entry": str(row.entry),
        "action": str(row.action),
        "job": row.job[:64],
        "stage": str(row.stage),
        "key": row.key,
    }


def _doubt(row: Any) -> str:  # noqa: ANN401 - a row of a Select has no useful static type
    """Say where the columns of a row differ from its record: no hash covers them, but searches use them."""
    try:
        record = json.loads(row.record)
        meant = _columns(AuditRow(**{name: record[name] for name in _SEARCHED}))
    except (ValueError, KeyError, TypeError):
        return "cannot be read"
    wrong = [name for name, value in meant.items() if getattr(row, name) != value]
    return f"has a {wrong[0]} in its column that its record does not" if wrong else ""


def _searched(
    connection: Connection, where: AuditFilter, *, n_command: int, before: int | None = None
) -> tuple[AuditedCommand, ...]:
    """Return the newest commands that a filter lets through, newest first; see `AuditStore.search`.

    A command is one line, but two rows: the row that it was asked, and, with the same key, the row that says
    what became of it. The page is made of first rows, in their order; the second rows are then read by their
    keys. A second row without a first one, which a client writes whose database was away when it asked, is a
    line too.

    Pages end at a number and not at an offset: rows are only ever added at the end, so a page that is opened
    again shows the same lines.
    """
    wanted = select(audit).where(_is_first(), *_conditions(where)).order_by(audit.c.seq.desc())
    if before is not None:
        wanted = wanted.where(audit.c.seq < before)
    firsts = connection.execute(wanted.limit(n_command)).all()
    ends = _ends(connection, [each.key for each in firsts if each.stage == _ASKED])
    return tuple(
        AuditedCommand(each.seq, record_from(each.record, AuditRow), ends.get(each.key)) for each in firsts
    )


def _is_first() -> ColumnElement[bool]:
    """Whether a row is the first of its command."""
    other = audit.alias()
    was_asked = exists().where(other.c.key == audit.c.key, other.c.stage == _ASKED)
    return or_(audit.c.stage.in_((_ASKED, str(Stage.WAITING))), audit.c.key == "", ~was_asked)


def _conditions(where: AuditFilter) -> list[ColumnElement[bool]]:
    """Return what the columns of a first row must be; columns hold texts cut to their length."""
    given = {
        audit.c.job: where.job and where.job[:64],
        audit.c.person: where.person and where.person[:128],
        audit.c.entry: where.entry and str(where.entry),
        audit.c.action: where.action and str(where.action),
    }
    conditions = [column == value for column, value in given.items() if value]
    if where.since_s is not None:
        conditions.append(audit.c.at_s >= where.since_s)
    return conditions if where.stage is None else [*conditions, _came_to(where.stage)]


def _came_to(stage: Stage) -> ColumnElement[bool]:
    """Whether the command of a first row came so far, and no further."""
    end = audit.alias()
    has_end = and_(end.c.key == audit.c.key, end.c.seq > audit.c.seq, end.c.stage != _ASKED)
    if stage is Stage.ASKED:
        return and_(audit.c.stage == _ASKED, ~exists().where(has_end))
    ended_so = exists().where(has_end, end.c.stage == str(stage))
    return or_(audit.c.stage == str(stage), and_(audit.c.stage == _ASKED, ended_so))


def _ends(connection: Connection, keys: list[str]) -> dict[str, AuditRow]:
    """Return the second row of each command, by its key; the newest where there are several."""
    wanted = select(audit.c.key, audit.c.record).where(audit.c.key.in_(keys), audit.c.stage != _ASKED)
    rows = connection.execute(wanted.order_by(audit.c.seq)).all()
    return {each.key: record_from(each.record, AuditRow) for each in rows}
