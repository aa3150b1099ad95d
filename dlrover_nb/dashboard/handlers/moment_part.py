"""The part of one past moment, ``/history/at``: what the scrubber of the page *History* asks for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotAllowedError, NotFoundError
from dlrover_nb.dashboard.frame.base_handler import PersonHandler
from dlrover_nb.dashboard.pages.decisions import check_reader
from dlrover_nb.dashboard.pages.replays import Reading
from dlrover_nb.dashboard.pages.travel import asked_moment, asked_span_s, part_html, past_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from dlrover_nb.dashboard.page import Visit

_STATUS = {NotAllowedError: 403, NotFoundError: 404, InvalidValueError: 400}


class MomentHandler(PersonHandler):
    """Answers with a moment of a run; with 202 while its journal is still being read."""

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
