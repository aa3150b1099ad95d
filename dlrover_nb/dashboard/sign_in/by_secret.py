"""Sign-in by the secret of the server, where nothing else is set up: as Jupyter's token.

A port of loopback is open to every user of the machine, so reaching it proves nothing. The account that runs
the server has a file that no other account can read (`OwnServer`), and proves itself by what is in it: once
by an address with the secret or a ticket, for which a browser gets a cookie; a program sends the secret with
each request.

Each start makes a new secret. One of the account, for all its servers, was rejected: programs and open pages
go on asking a port whose server has ended, and another user may listen there by then.

A ticket is what an address holds that is kept: a notebook's output is saved, and may be read by others. It is
good for one browser, for a few minutes.
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tornado.web import create_signed_value, decode_signed_value

from dlrover_nb.core.client.handle import user_name
from dlrover_nb.core.disk.files import make_folder, replace_synced, writing_to
from dlrover_nb.core.disk.paths import state_folder
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.decisions.people import Person, local_person

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tornado.httputil import HTTPServerRequest

    from dlrover_nb.dashboard.sign_in.sessions import Cookie

PAGE = "/enter"
TICKET_S = 600.0
_DAY_S = 86_400.0
_BEARER = "Bearer "
WAY_IN = (
    "Only the account that runs this dashboard may use it: open the address that "
    "`dlrover-nb server` printed, or run `dlrover-nb server --link` as that account for it."
)


class SecretSignIn:
    """The account that runs the server, by a secret that it alone can know.

    Parameters
    ----------
    cookie
        Which browsers have in place of the secret.
    """

    page, way_in = "", WAY_IN

    def __init__(self, cookie: Cookie) -> None:
        self.secret, self.cookie = secrets.token_urlsafe(32), cookie
        self._used: dict[bytes, float] = {}  # tickets, with when by `time.monotonic`

    def identify(self, request: HTTPServerRequest) -> Person | None:
        """Return the account for its secret where one is sent, else for the cookie."""
        sent = request.headers.get("Authorization")
        if sent is not None:
            return self.by_secret(sent.removeprefix(_BEARER)) if sent.startswith(_BEARER) else None
        return self._account if _is_same(self.cookie.of(request), self._derived("cookie")) else None

    def known(self, name: str) -> Person | None:
        """Return the account of the server; it knows no other person."""
        return self._account if name == user_name() else None

    def by_secret(self, secret: str) -> Person | None:
        """Return the account for its secret."""
        return self._account if _is_same(secret, self.secret) else None

    def form_key(self, request: HTTPServerRequest) -> str:  # noqa: ARG002 - of the protocol
        """Return what no page tells."""
        return self._derived("form")

    def cookie_for(self, token: str, ticket: str) -> str:
        """Return the cookie for the secret, or for a ticket that was not used; empty: it is neither."""
        is_let_in = _is_same(token, self.secret) or self._takes(ticket)
        return self._derived("cookie") if is_let_in else ""

    def _takes(self, ticket: str) -> bool:
        number = decode_signed_value(
            self.secret, "ticket", ticket, max_age_days=TICKET_S / _DAY_S, min_version=2
        )
        now_s = time.monotonic()
        self._used = {each: at_s for each, at_s in self._used.items() if now_s - at_s <= 2 * TICKET_S}
        if number is None or number in self._used:
            return False
        self._used[number] = now_s
        return True

    @property
    def _account(self) -> Person:
        return local_person(user_name())

    def _derived(self, what: str) -> str:
        return hmac.new(self.secret.encode(), what.encode(), "sha256").hexdigest()


def _is_same(sent: str, wanted: str) -> bool:
    return hmac.compare_digest(sent.encode(), wanted.encode())


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server of this account, as its other programs find it: by the file with its secret.

    Parameters
    ----------
    url
        Of its first page, with the slash at its end.
    secret
        Of this start of it.
    """

    url: str
    secret: str

    def address(self, path: str = "") -> str:
        """Return the address of a page that signs a browser in each time: not to be kept."""
        return self._entrance({"token": self.secret}, path)

    def address_once(self, path: str = "") -> str:
        """Return the address of a page that signs one browser in, within `TICKET_S` seconds."""
        ticket = create_signed_value(self.secret, "ticket", secrets.token_urlsafe(16)).decode()
        return self._entrance({"ticket": ticket}, path)

    def _entrance(self, proof: dict[str, str], path: str) -> str:
        return f"{self.url}{PAGE[1:]}?{urlencode(proof | ({'next': f'/{path}'} if path else {}))}"


def secret_file(port: int) -> Path:
    """Return the file with the secret of this account's server on a port."""
    return state_folder() / "serve" / str(port)


def redirecting_file(port: int) -> Path:
    """Return the page that leads a browser to this account's server on a port."""
    return secret_file(port).with_suffix(".html")


def own_server(url: str, port: int) -> OwnServer:
    """Return the server of this account that listens on a port, and whose first page has an address.

    Raises
    ------
    NotFoundError
        When this account runs none there that signs in by a secret.
    """
    try:
        return OwnServer(url, secret_file(port).read_text(encoding="ascii").strip())
    except FileNotFoundError as error:
        raise NotFoundError(
            f"this account runs no dashboard with a secret on port {port}; start one with "
            "`dlrover-nb server`, or name its port with --port"
        ) from error


@contextmanager
def published(server: OwnServer, port: int) -> Iterator[None]:
    """Let this account's programs find a server for as long as it runs.

    The page is for `server --open`: an address that a browser is started with stands in the list of
    processes, which everybody may read.
    """
    from dlrover_nb.dashboard.rendering import render  # noqa: PLC0415 - programs that look for a server need none

    page = render("redirect.html", address=server.address())
    try:
        _write_private(secret_file(port), f"{server.secret}\n")
        _write_private(redirecting_file(port), page)
        yield
    finally:
        for file in (secret_file(port), redirecting_file(port)):
            file.unlink(missing_ok=True)


def _write_private(file: Path, text: str) -> None:
    """Write a file that this account alone can read, in place of one that an earlier server left."""
    with writing_to(file.parent):
        make_folder(file.parent)
        new = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as f:
            f.write(text)
        replace_synced(new, file)
