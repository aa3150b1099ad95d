"""The page with the form to sign in, and the way out.

The form is checked like any other, by a token derived from a secret in a cookie; somebody who is not signed
in has one of their own for it (else another site could sign a browser in as somebody else, who would then see
its plans).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from typing import TYPE_CHECKING

from tornado.web import HTTPError

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history.stores.credentials import PERSON_LENGTH
from dlrover_nb.dashboard.frame.base_handler import OwnHandler, PersonHandler, own_address, own_path
from dlrover_nb.dashboard.frame.entry_checks import Door
from dlrover_nb.dashboard.frame.page_frame import plain_html
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.dashboard.sign_in.by_password import MOST_WAITING, PAGE
from dlrover_nb.widgets.blocks import Paragraph, Tone

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.dashboard.sign_in.by_password import PasswordSignIn
    from dlrover_nb.dashboard.sign_in.sessions import Cookie

logger = logging.getLogger(__name__)

WRONG = "Name or password is wrong."


class SignInPage(OwnHandler):
    """The page to sign in on."""

    def initialize(self, sign_in: PasswordSignIn, form_cookie: Cookie) -> None:
        """Take the sign-in."""
        self._sign_in, self._cookie = sign_in, form_cookie
        self.door: Door = self.settings.get("door") or Door(sign_in)

    def prepare(self) -> None:
        """Refuse a request to another host's name."""
        self.door.check_host(self.request)

    def get(self) -> None:
        """Show the form."""
        self._show()

    async def post(self) -> None:
        """Sign a person in."""
        if not self._is_of_our_form():
            self.set_status(403)
            self._show("This form was open for too long, or cookies are off. Try again.")
            return
        name = self.get_body_argument("name", "", strip=True)[: PERSON_LENGTH + 1]
        address = self._sign_in.address_of(self.request)
        wait_s = self._sign_in.throttle.begin(name, address, time.monotonic())
        if wait_s or self._sign_in.n_waiting >= MOST_WAITING:
            self._refuse_many(wait_s or 1.0)
            return
        await self._check(name, address)

    async def _check(self, name: str, address: str) -> None:
        way, password = self._sign_in, self.get_body_argument("password", "", strip=False)
        loop = asyncio.get_running_loop()
        way.n_waiting += 1
        try:
            user = await loop.run_in_executor(way.checks, way.users.verified, name, password)
            secret = None if user is None else await loop.run_in_executor(None, way.begin, name, user)
        except BackendError as error:
            raise HTTPError(503, "%s", error) from error
        finally:
            way.n_waiting -= 1
        if secret is None:
            logger.warning("a sign-in from %s failed", address, extra={"person_tried": name})
            self.set_status(403)
            self._show(WRONG, name)
            return
        way.throttle.succeeded(name, address)
        await loop.run_in_executor(None, way.sessions.end, way.sessions.cookie.of(self.request))
        way.sessions.cookie.set(self, secret)
        self._cookie.clear(self)
        logger.info("%s signed in from %s", name, address)
        self.redirect(self.root + own_path(self.get_body_argument("next", "/")), status=303)

    def _refuse_many(self, wait_s: float) -> None:
        self.set_status(429)
        self.set_header("Retry-After", str(int(wait_s) + 1))
        self._show(f"These were too many tries. The next one is possible in {int(wait_s) + 1} s.")

    def _is_of_our_form(self) -> bool:
        secret = self._cookie.of(self.request)
        sent = self.get_body_argument("csrf", "")
        return bool(secret) and hmac.compare_digest(sent.encode(), form_token(secret).encode())

    def _show(self, error: str = "", name: str = "") -> None:
        secret = self._cookie.of(self.request) or secrets.token_urlsafe(32)
        self._cookie.set(self, secret)
        form = render(
            "sign_in.html",
            action=f"{self.root}{PAGE}",
            fields={"csrf": form_token(secret), "next": own_path(self.get_argument("next", "/"))},
            name=name,
            most_name=PERSON_LENGTH,
            alert=Paragraph(error, Tone.WARNING) if error else None,
        )
        self.finish(plain_html("Sign in", form, root=self.root))


def form_token(secret: str) -> str:
    """Return the token of the form to sign in, from the secret in the cookie of a browser."""
    return hmac.new(secret.encode(), b"sign in", "sha256").hexdigest()


class SignOut(PersonHandler):
    """Takes the form of the way out, which every page has."""

    async def post(self) -> None:
        """End the session, and with it the requests of this browser that are open."""
        way: Any = self.sign_in
        loop = asyncio.get_running_loop()
        session = await loop.run_in_executor(None, way.sessions.find, self.request)
        back = own_address(self, PAGE)
        self.door.open.drop(self)  # its answer is the last one of this session
        target = "" if session is None else await loop.run_in_executor(None, way.leave, session, back)
        way.sessions.cookie.clear(self)
        logger.info("%s signed out", self.person.name)
        await self.door.end_of_signed_out()
        self.redirect(target or self.root + PAGE, status=303)

    def turn_away(self) -> None:
        """Send a person who is signed out already to the sign-in."""
        self.redirect(f"{self.root}{PAGE}", status=303)
