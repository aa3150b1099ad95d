"""`AuditStore`: the audit of commands in the history's database, as one hash chain for all its writers.

A row is appended in a transaction that holds the row of the head: on PostgreSQL by locking it, on SQLite by
the write lock that every writing transaction takes. So processes append one after the other, and no two
rows follow the same one. A key is claimed in the same transaction, hence by one command alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.history.chain import chained_hash
from dlrover_nb.core.history.database import Database, default_url
from dlrover_nb.core.history.rows import record_from
from dlrover_nb.core.history.tables import audit, audit_head
from dlrover_nb.core.structs.commands import AuditRow, ChainedRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

PAGE = 1000  # rows that are read at once


class AuditStore:
    """The audit of all commands; fits `core.commands.service.AuditLog`.

    Parameters
    ----------
    url
        Of the history's database; None for the user's own file.

    Raises
    ------
    BackendError
        When the database cannot be opened, read or written.
    """

    def __init__(self, url: str | None = None) -> None:
        self._database = Database(url or default_url())

    def append(self, row: AuditRow) -> ChainedRow:
        """Add a row at the end of the chain."""
        with self._database.writing() as connection:
            return _append(connection, row)

    def claim(self, row: AuditRow) -> AuditRow | None:
        """Add the first row of a command; where its key is taken, return the newest row with it instead."""
        with self._database.writing() as connection:
            seq, before = _head(connection)  # first: it locks
            if row.key:
                taken = select(audit.c.record).where(audit.c.key == row.key).order_by(audit.c.seq.desc())
                if (record := connection.scalar(taken.limit(1))) is not None:
                    return record_from(record, AuditRow)
            _append_after(connection, seq, before, row)
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
        while found := self._database.rows(wanted.where(audit.c.seq > after)):
            for each in found:
                yield ChainedRow(each.seq, record_from(each.record, AuditRow), each.hash)
            after = found[-1].seq

    def newest(
        self, n_row: int, *, job: str | None = None, before: int | None = None
    ) -> tuple[ChainedRow, ...]:
        """Return the newest rows, newest first: of one job, before a number."""
        wanted = select(audit).order_by(audit.c.seq.desc()).limit(n_row)
        if job is not None:
            wanted = wanted.where(audit.c.job == job)
        if before is not None:
            wanted = wanted.where(audit.c.seq < before)
        found = self._database.rows(wanted)
        return tuple(ChainedRow(each.seq, record_from(each.record, AuditRow), each.hash) for each in found)

    def head(self) -> tuple[int, str]:
        """Return number and hash of the last row, as they are kept apart from the rows."""
        (found,) = self._database.rows(select(audit_head.c.seq, audit_head.c.hash))
        return found.seq, found.hash

    def close(self) -> None:
        """Close the database."""
        self._database.close()


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
            seq=chained.seq,
            at_s=row.at_s,
            person=row.person[:128],
            entry=str(row.entry),
            action=str(row.action),
            job=row.job[:64],
            stage=str(row.stage),
            key=row.key,
            record=to_json(row).decode(),
            hash=chained.hash,
        )
    )
    connection.execute(update(audit_head).values(seq=chained.seq, hash=chained.hash))
    return chained
