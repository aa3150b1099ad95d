"""Commands in the audit, found by what a reader asks for, page by page.

A command is one line, but two rows: the row that it was asked, and, with the same key, the row that says what
became of it. The page is made of first rows, in their order; the second rows are then read by their keys. A
second row without a first one, which a client writes whose database was away when it asked, is a line too.

Pages end at a number and not at an offset: rows are only ever added at the end, so a page that is opened
again shows the same lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, and_, exists, or_, select

from dlrover_nb.core.history.rows import record_from
from dlrover_nb.core.history.tables import audit
from dlrover_nb.core.structs.decisions.audited import AuditedCommand
from dlrover_nb.core.structs.decisions.commands import AuditRow, Stage

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from dlrover_nb.core.structs.decisions.audited import AuditFilter

_ASKED = str(Stage.ASKED)


def searched(
    connection: Connection, where: AuditFilter, *, n_command: int, before: int | None = None
) -> tuple[AuditedCommand, ...]:
    """Return the newest commands that a filter lets through, newest first."""
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
