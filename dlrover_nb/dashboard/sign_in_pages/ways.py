"""Which way of signing in the settings ask for, with its pages.

The secret of a server is brought once by a browser, which gets a cookie for it.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tornado.web import HTTPError

from dlrover_nb.core.clock import ThisMachine
from dlrover_nb.core.history.stores.credentials import CredentialStore
from dlrover_nb.dashboard.frame.base_handler import OwnHandler, own_path
from dlrover_nb.dashboard.frame.entry_checks import Door
from dlrover_nb.dashboard.sign_in import OwnAccount
from dlrover_nb.dashboard.sign_in.by_oidc import OidcSignIn
from dlrover_nb.dashboard.sign_in.by_password import PAGE, PasswordSignIn
from dlrover_nb.dashboard.sign_in.by_proxy import ProxySignIn
from dlrover_nb.dashboard.sign_in.by_secret import PAGE as ENTRANCE
from dlrover_nb.dashboard.sign_in.by_secret import SecretSignIn
from dlrover_nb.dashboard.sign_in.oidc import Provider, read_oidc
from dlrover_nb.dashboard.sign_in.sessions import Sessions, cookie_of
from dlrover_nb.dashboard.sign_in.users import UsersFile
from dlrover_nb.dashboard.sign_in_pages.oidc import OidcBack, OidcPage, OidcStart
from dlrover_nb.dashboard.sign_in_pages.password import SignInPage, SignOut

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tornado.httputil import HTTPServerRequest

    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.settings import ServeSettings
    from dlrover_nb.dashboard.sign_in import SignIn

    Pattern = tuple[str, Any, dict[str, Any]]


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


@dataclass(frozen=True, slots=True)
class Way:
    """A way of signing in: who asks, the handlers of its pages, what to call in the end.

    `forms_to` is another origin that its forms may lead to.
    """

    sign_in: SignIn
    patterns: tuple[Pattern, ...] = ()
    close: Callable[[], None] = lambda: None
    forms_to: str = ""


def way_of(settings: ServeSettings, team: Team) -> Way:
    """Return the way that the settings ask for.

    Raises
    ------
    NotFoundError, InvalidValueError
        When the file of its people is not there, or malformed.
    BackendError
        When the database cannot be opened.
    """
    if settings.proxy is not None:
        return Way(ProxySignIn(settings.proxy, settings.groups, is_socket=bool(settings.unix_socket)))
    if not settings.has_sign_in:
        return Way(OwnAccount()) if settings.unix_socket else _by_secret(settings)
    return _by_oidc(settings, team) if settings.oidc else _by_password(settings, team)


def _by_secret(settings: ServeSettings) -> Way:
    sign_in = SecretSignIn(cookie_of(settings, "own"))
    return Way(sign_in, ((ENTRANCE, Enter, {"sign_in": sign_in}),))


def _by_oidc(settings: ServeSettings, team: Team) -> Way:
    provider = Provider(*read_oidc(settings.oidc))
    sessions, store = sessions_of(settings, team)
    sign_in = OidcSignIn(provider, settings.groups, sessions)
    own = {"sign_in": sign_in, "flow_cookie": cookie_of(settings, "flow")}
    pages = ((PAGE, OidcPage, own), (f"{PAGE}/go", OidcStart, own), (f"{PAGE}/back", OidcBack, own))
    issuer = urlsplit(provider.settings.issuer)
    return Way(
        sign_in, (*pages, sign_out(team, sign_in)), store.close, forms_to=f"{issuer.scheme}://{issuer.netloc}"
    )


def sessions_of(settings: ServeSettings, team: Team) -> tuple[Sessions, CredentialStore]:
    """Return the sessions of a server, and the store below them."""
    store = CredentialStore(team.url)
    now_s = ThisMachine().wall_s  # not the monotonic clock: it stands still while the machine sleeps
    cookie = cookie_of(settings)
    return Sessions(store, cookie, now_s, idle_s=settings.idle_s, absolute_s=settings.absolute_s), store


def _by_password(settings: ServeSettings, team: Team) -> Way:
    users = UsersFile(settings.users)
    sessions, store = sessions_of(settings, team)
    sign_in = PasswordSignIn(users, settings.groups, sessions, address_of(settings))

    def close() -> None:
        sign_in.close()
        store.close()

    form = {"sign_in": sign_in, "form_cookie": cookie_of(settings, "form")}
    return Way(sign_in, ((PAGE, SignInPage, form), sign_out(team, sign_in)), close)


def sign_out(team: Team, sign_in: SignIn) -> Pattern:
    """Return the handler of the way out."""
    return "/sign-out", SignOut, {"team": team, "sign_in": sign_in}


def address_of(settings: ServeSettings) -> Callable[[HTTPServerRequest], str]:
    """Return a function that tells where a request comes from.

    Behind a proxy of ours, on this machine or on a socket, that is what the proxy has added to
    ``X-Forwarded-For``: its last entry. The client may have made up all entries before it.
    """
    is_behind_proxy = bool(settings.url)

    def address(request: HTTPServerRequest) -> str:
        entry = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        if not (is_behind_proxy and entry):
            return request.remote_ip or "socket"
        try:
            return str(ipaddress.ip_address(entry))
        except ValueError:
            return request.remote_ip or "socket"

    return address
