"""The base of all handlers: who asks, and the headers and tokens that no answer lacks."""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING

from tornado.web import HTTPError, RequestHandler

from dlrover_nb.core.errors import DlroverError, NotAllowedError, NotFoundError
from dlrover_nb.dashboard.page import Page, Visit
from dlrover_nb.dashboard.shell import error_html, page_html

if TYPE_CHECKING:
    from dlrover_nb.core.structs.people import Person
    from dlrover_nb.dashboard.sign_in import SignIn
    from dlrover_nb.dashboard.team import Team


_READING = {"GET", "HEAD", "OPTIONS"}


class PersonHandler(RequestHandler):
    """A handler that knows who asks; nobody who is not signed in gets past `prepare`."""

    person: Person

    def initialize(self, team: Team, sign_in: SignIn) -> None:
        """Take what all handlers of a server share."""
        self.team, self.sign_in = team, sign_in

    def prepare(self) -> None:
        """Identify the person who asks, and refuse a change that no form of ours asks for."""
        person = self.sign_in.identify(self.request)
        if person is None:
            raise HTTPError(401)
        self.person = person
        if self.request.method not in _READING and not self._is_of_our_form():
            raise HTTPError(403, "the form must be one of this page: load it again, and send it once more")

    @property
    def csrf(self) -> str:
        """The token that each form of this person must send back, in the field or the header of that name."""
        return hmac.new(self.sign_in.form_key(self.request).encode(), b"form", "sha256").hexdigest()

    def _is_of_our_form(self) -> bool:
        sent = self.get_body_argument("csrf", "") or self.request.headers.get("X-CSRF-Token", "")
        return hmac.compare_digest(sent, self.csrf)

    def visit(self) -> Visit:
        """Return the visit that this request is."""
        several = {
            name: tuple(value.decode("utf-8", "replace") for value in values)
            for name, values in self.request.query_arguments.items()
        }
        return Visit(
            self.person, self.team, {name: values[-1] for name, values in several.items()}, several, self.csrf
        )


class PageHandler(PersonHandler):
    """Answers with one page."""

    def initialize(self, team: Team, sign_in: SignIn, page: Page) -> None:  # type: ignore[override]  # with its page
        """Take the page."""
        super().initialize(team, sign_in)
        self.page = page

    async def get(self) -> None:
        """Write the page; its content is made on a thread, as it may wait for a cluster."""
        visit = self.visit()
        try:
            body = await asyncio.get_running_loop().run_in_executor(None, self.page.body, visit)
        except DlroverError as error:
            known = {NotAllowedError: 403, NotFoundError: 404}
            self.set_status(known.get(type(error), 503))
            body = error_html(error)
        self.write(page_html(self.page, visit, body))
