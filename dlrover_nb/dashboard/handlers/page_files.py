"""What pages offer beside themselves: the audit as a file, written row by row, and parts that are fetched."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError

from dlrover_nb.core.commands.audit_export import ExportFormat, exported
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotAllowedError, NotFoundError
from dlrover_nb.dashboard.frame.base_handler import PersonHandler
from dlrover_nb.dashboard.pages.decisions import check_reader, filter_of, may_read
from dlrover_nb.dashboard.pages.replays import Reading
from dlrover_nb.dashboard.pages.travel import asked_moment, asked_span_s, part_html, past_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

    from dlrover_nb.core.history.audit.trail import AuditStore
    from dlrover_nb.core.structs.decisions.audited import AuditFilter
    from dlrover_nb.core.structs.decisions.commands import ChainedRow
    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.page import Visit


_STATUS = {NotAllowedError: 403, NotFoundError: 404, InvalidValueError: 400}


N_LINE = 500  # that are made at once, on a thread
_TYPES = {
    ExportFormat.JSONL: "application/x-ndjson; charset=utf-8",
    ExportFormat.CSV: "text/csv; charset=utf-8",
}


class ExportHandler(PersonHandler):
    """Sends the audit, as far as the person may read it."""

    async def get(self, form: str) -> None:
        """Send an export; its rows are read on a thread, and only as fast as they are received."""
        kind = ExportFormat(form)
        try:
            check_reader(self.person)
            where = filter_of(self.visit().query, self.team.now_s())
        except DlroverError as error:
            raise HTTPError(403 if isinstance(error, NotAllowedError) else 400, "%s", error) from error
        self.set_header("Content-Type", _TYPES[kind])
        self.set_header("Content-Disposition", f'attachment; filename="decisions.{kind}"')
        audit = self.team.audit
        lines = exported(readable(audit, self.person, where), audit.head, kind)
        loop = asyncio.get_running_loop()
        try:
            while part := await loop.run_in_executor(None, _next, lines):
                self.write(part)
                await self.flush()
        except StreamClosedError:
            return  # the client has gone


def readable(audit: AuditStore, person: Person, where: AuditFilter) -> Iterator[ChainedRow]:
    """Yield the rows that a person may read, and asks for; both rows of a command, whatever its outcome."""
    wanted = {name: getattr(where, name) for name in ("person", "entry", "action")}
    for each in audit.rows(job=where.job, since_s=where.since_s):
        is_wanted = all(value in (None, getattr(each.row, name)) for name, value in wanted.items())
        if is_wanted and may_read(person, each.row):
            yield each


def _next(lines: Iterator[str]) -> str:
    return "".join(islice(lines, N_LINE))


class MomentHandler(PersonHandler):
    """Answers the scrubber of *History* with a moment of a run; with 202 while its journal is being read."""

    async def get(self) -> None:
        """Write the part, which is made on a thread."""
        visit = self.visit()
        try:
            part = await asyncio.get_running_loop().run_in_executor(None, _part, visit)
        except DlroverError as error:
            self.set_status(_STATUS.get(type(error), 503))
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.write(str(error))
            return
        if isinstance(part, Reading):
            self.set_status(202)
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.set_header("Retry-After", "1")
            self.write(part.words)
            return
        self.write(part)


def _part(visit: Visit) -> Markup | Reading:
    check_reader(visit.person)
    span_s = asked_span_s(visit.query)
    past = past_of(visit.team.runs.run(visit.query.get("run", "")))
    return past if isinstance(past, Reading) else part_html(past, asked_moment(visit.query, past), span_s)


FILES: tuple[tuple[str, type[PersonHandler]], ...] = (
    (r"/decisions\.(jsonl|csv)", ExportHandler),
    (r"/history/at", MomentHandler),
)
