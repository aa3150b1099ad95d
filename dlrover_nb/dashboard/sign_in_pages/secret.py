"""The way in by the secret of a server: a browser brings it once, and gets a cookie for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tornado.web import HTTPError

from dlrover_nb.dashboard.frame.base_handler import OwnHandler, own_path
from dlrover_nb.dashboard.frame.entry_checks import Door

if TYPE_CHECKING:
    from dlrover_nb.dashboard.sign_in.by_secret import SecretSignIn


class Enter(OwnHandler):
    """Takes the secret or a ticket, and leads on to an address without it."""

    def initialize(self, sign_in: SecretSignIn) -> None:
        """Take the sign-in."""
        self._sign_in = sign_in
        self.door: Door = self.settings.get("door") or Door(sign_in)

    def prepare(self) -> None:
        """Refuse a request to another host's name."""
        self.door.check_host(self.request)

    def get(self) -> None:
        """Give the browser its cookie; one that has it is led on, also by a ticket that was used."""
        token, ticket = (self.get_query_argument(name, "") for name in ("token", "ticket"))
        if cookie := self._sign_in.cookie_for(token, ticket):
            self._sign_in.cookie.set(self, cookie)
        elif self._sign_in.identify(self.request) is None:
            raise HTTPError(403, "%s", self._sign_in.way_in)
        self.redirect(self.root + own_path(self.get_query_argument("next", "/")))
