"""The base of all handlers: who asks, and the tokens and errors that no answer lacks.

Headers are set by `headers.StrictHeaders` for all answers, also those of handlers that are not ours.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from tornado.web import HTTPError, RequestHandler

from dlrover_nb.core.errors import (
    BackendError,
    DlroverError,
    InvalidValueError,
    NotAllowedError,
    NotFoundError,
)
from dlrover_nb.dashboard.forms.flash import flash_html, lines_html
from dlrover_nb.dashboard.frame.entry_checks import Door
from dlrover_nb.dashboard.frame.page_frame import error_html, failure_html, page_html
from dlrover_nb.dashboard.page import Page, Visit

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Any

    from markupsafe import Markup

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.sign_in import SignIn

logger = logging.getLogger(__name__)

_READING = {"GET", "HEAD", "OPTIONS"}
_OWN_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")  # of this server: no host, no control character


def own_path(wanted: str) -> str:
    """Return a path of this server to go on to; the first page where it is anything else."""
    return wanted if _OWN_PATH.fullmatch(wanted) else "/"


class OwnHandler(RequestHandler):
    """A handler of this server: it knows its root, and its errors are pages."""

    @property
    def root(self) -> str:
        """Path under which a proxy serves the dashboard."""
        return str(self.settings.get("root", ""))

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ANN401 - of Tornado
        """Write an error as a page: what the server said to the client of it, and never a traceback."""
        error = kwargs.get("exc_info", (None, None))[1]
        message = error.get_message() if isinstance(error, HTTPError) else None
        self.finish(failure_html(status_code, message or "", root=self.root))


def own_address(handler: OwnHandler, path: str) -> str:
    """Return the whole address of a path here; the host of the request has been checked."""
    scheme = "https" if handler.settings.get("is_https") else "http"
    return f"{scheme}://{handler.request.host}{handler.root}{path}"


class NotHere(OwnHandler):
    """Answers for addresses without a handler."""

    def prepare(self) -> None:
        """Refuse every method."""
        raise HTTPError(404)


class PersonHandler(OwnHandler):
    """A handler that knows who asks; a client that is not signed in does not get past `prepare`.

    One that overrides `prepare` must return, or await, what the one here returns.
    """

    person: Person

    def initialize(self, team: Team, sign_in: SignIn) -> None:
        """Take what all handlers of a server share."""
        self.team, self.sign_in = team, sign_in
        self.door: Door = self.settings.get("door") or Door(sign_in)

    def prepare(self) -> Awaitable[None] | None:
        """Identify the person who asks, and refuse a change that no form of ours asks for."""
        return self._let_in()

    async def _let_in(self) -> None:
        person = await self.door.identify(self.request)
        if person is None:
            self.turn_away()
            return
        self.person = person
        self.door.open.add(self, person)
        if self.request.method not in _READING and not self._is_of_our_form():
            raise HTTPError(403, "the form must be one of this page: load it again, and send it once more")

    def turn_away(self) -> None:
        """Answer a client that is not signed in."""
        raise self.door.not_signed_in()

    def on_finish(self) -> None:
        """Note that the request is over."""
        self.door.open.drop(self)

    def on_connection_close(self) -> None:
        """Note that the client has gone."""
        self.door.open.drop(self)

    @property
    def csrf(self) -> str:
        """The token that each form of this person must send back, in the field or the header of that name."""
        return hmac.new(self.sign_in.form_key(self.request).encode(), b"form", "sha256").hexdigest()

    def _is_of_our_form(self) -> bool:
        sent = self.get_body_argument("csrf", "") or self.request.headers.get("X-CSRF-Token", "")
        return hmac.compare_digest(sent.encode(), self.csrf.encode())

    def visit(self) -> Visit:
        """Return the visit that this request is."""
        several = {
            name: tuple(value.decode("utf-8", "replace") for value in values)
            for name, values in self.request.query_arguments.items()
        }
        return Visit(
            self.person,
            self.team,
            {name: values[-1] for name, values in several.items()},
            several,
            self.csrf,
            self.root,
            can_leave=bool(self.sign_in.page),
        )


def told_html(visit: Visit) -> Markup:
    """Return what became of the form that led to a page that cannot be shown: its job may just have gone."""
    with suppress(BackendError):
        return flash_html(visit)
    return lines_html(())


class PageHandler(PersonHandler):
    """Answers with one page."""

    def initialize(self, team: Team, sign_in: SignIn, page: Page) -> None:  # type: ignore[override]  # with its page
        """Take the page."""
        super().initialize(team, sign_in)
        self.page = page

    def turn_away(self) -> None:
        """Send a person who is not signed in to where they can do so, and from there back here."""
        if self.request.method != "GET" or not self.sign_in.page:
            super().turn_away()
        wanted = (self.request.uri or "").removeprefix(self.root)
        self.redirect(f"{self.root}{self.sign_in.page}?next={quote(wanted, safe='')}")

    async def get(self) -> None:
        """Write the page; it is drawn on a thread, as it may wait for a cluster and asks the database."""
        status, text = await asyncio.get_running_loop().run_in_executor(None, self._drawn, self.visit())
        self.set_status(status)
        self.write(text)

    def _drawn(self, visit: Visit) -> tuple[int, Markup]:
        """Return the status and the page."""
        status = 200
        try:
            body = self.page.body(visit)
        except DlroverError as error:
            statuses = {NotAllowedError: 403, NotFoundError: 404, InvalidValueError: 400}
            status, body = statuses.get(type(error), 503), told_html(visit) + error_html(error)
        return status, page_html(self.page, visit, body)


class FirstPage(OwnHandler):
    """Sends visitors of the bare address to the first page."""

    def initialize(self, path: str) -> None:
        """Take the first page's path."""
        self._first = path

    def get(self) -> None:
        """Redirect."""
        self.redirect(f"{self.root}/{self._first}")
