"""The pages of the sign-in by a provider: the way there, and the way back."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from tornado.web import HTTPError

from dlrover_nb.core.errors import BackendError, NotAllowedError
from dlrover_nb.dashboard.frame.base_handler import OwnHandler, own_address, own_path
from dlrover_nb.dashboard.frame.entry_checks import Door
from dlrover_nb.dashboard.frame.page_frame import plain_html
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.dashboard.sign_in.by_oidc import PAGE
from dlrover_nb.dashboard.sign_in.oidc import FLOW_S

if TYPE_CHECKING:
    from dlrover_nb.dashboard.sign_in.by_oidc import OidcSignIn
    from dlrover_nb.dashboard.sign_in.sessions import Cookie

MOST_OF_BROWSER = 8  # sign-ins of one browser that wait for the provider
logger = logging.getLogger(__name__)


class _OfProvider(OwnHandler):
    """What its handlers share."""

    def initialize(self, sign_in: OidcSignIn, flow_cookie: Cookie) -> None:
        """Take the sign-in, and the cookie of a flow: each has its own, so that two tabs do not mix."""
        self._sign_in, self._cookie = sign_in, flow_cookie
        self.door: Door = self.settings.get("door") or Door(sign_in)

    def _of_state(self, state: str) -> Cookie:
        """Return the cookie of a flow."""
        return self._cookie.named(hashlib.sha256(state.encode()).hexdigest()[:16], int(FLOW_S))

    def prepare(self) -> None:
        """Refuse a request to another host's name."""
        self.door.check_host(self.request)


class OidcPage(_OfProvider):
    """The page to sign in on: one link, so that who has signed out is not signed in again by it."""

    def get(self) -> None:
        """Show the way to the provider."""
        wanted = quote(own_path(self.get_query_argument("next", "/")), safe="")
        provider = urlsplit(self._sign_in.provider.settings.issuer).netloc
        link = render("provider.html", href=f"{self.root}{PAGE}/go?next={wanted}", provider=provider)
        self.finish(plain_html("Sign in", link, root=self.root))


class OidcStart(_OfProvider):
    """The way to the provider."""

    async def get(self) -> None:
        """Begin a flow of this browser, and send it there."""
        wanted, way = own_path(self.get_query_argument("next", "/")), self._sign_in
        flow, signed = way.flows.begin(wanted, own_address(self, f"{PAGE}/back"), time.monotonic())
        try:
            loop = asyncio.get_running_loop()
            url = await loop.run_in_executor(None, way.provider.start_url, flow)
        except BackendError as error:
            raise HTTPError(503, "%s", error) from error
        for name in self._cookie.all_named(self.request)[MOST_OF_BROWSER - 1 :]:
            self._cookie.named(name, 0).clear(self)
        self._of_state(flow.state).set(self, signed)
        self.redirect(url)


class OidcBack(_OfProvider):
    """The way back from the provider."""

    async def get(self) -> None:
        """Sign a person in by the code that they bring."""
        way, loop = self._sign_in, asyncio.get_running_loop()
        try:
            state = self.get_query_argument("state", "")
            cookie = self._of_state(state)
            flow = way.flows.take(state, cookie.of(self.request), time.monotonic())
            self._check_answer()
            code = self.get_query_argument("code", "")
            secret, name = await loop.run_in_executor(None, way.finish, code, flow)
        except NotAllowedError as error:
            logger.warning("a sign-in by the provider failed: %s", error)
            raise HTTPError(403, "%s", error) from error
        except BackendError as error:
            raise HTTPError(503, "%s", error) from error
        await loop.run_in_executor(None, way.sessions.end, way.sessions.cookie.of(self.request))
        way.sessions.cookie.set(self, secret)
        cookie.clear(self)
        logger.info("%s signed in by the provider", name)
        self.redirect(self.root + flow.wanted)

    def _check_answer(self) -> None:
        """Refuse an answer of another provider (RFC 9207), and one that says that nobody was signed in."""
        issuer = self._sign_in.provider.settings.issuer
        if self.get_query_argument("iss", issuer) != issuer:
            raise NotAllowedError("the answer is of another provider")
        if self.get_query_argument("error", ""):
            raise NotAllowedError("the provider did not sign you in; begin the sign-in again")
