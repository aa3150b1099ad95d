"""Who asks: the one interface of all ways to sign in.

A way identifies a person anew at each request, and as long as a request is open: somebody who was removed, or
has signed out elsewhere, is nobody from then on. None of them believes what a request says of itself but by a
secret that only the person can have, or by where it comes from.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.client.handle import user_name
from dlrover_nb.core.structs.decisions.people import Person, local_person

if TYPE_CHECKING:
    from tornado.httputil import HTTPServerRequest


class SignIn(Protocol):
    """A way to sign in."""

    @property
    def page(self) -> str:
        """Path of the page where people sign in, and leave by ``/sign-out``; empty: there is none."""
        ...

    @property
    def way_in(self) -> str:
        """What to do for a person who is not signed in, where there is no page; empty: the proxy knows."""
        ...

    def by_secret(self, secret: str) -> Person | None:
        """Return whom a secret of this way signs in, as programs send it; None: it signs no person in."""
        ...

    def identify(self, request: HTTPServerRequest) -> Person | None:
        """Return who asks, by what the request carries; None: not signed in. It may wait for a while.

        Raises
        ------
        NotAllowedError
            When the request claims what it may not: it is refused to every caller.
        """
        ...

    def known(self, name: str) -> Person | None:
        """Return a person by name, with the roles that they have now; None: there is none of that name."""
        ...

    def form_key(self, request: HTTPServerRequest) -> str:
        """Return what the tokens of forms are derived from: a secret of this sign-in that no page tells."""
        ...


class WithoutSecret:
    """A way to sign in without a secret of the server: programs have tokens, or need none."""

    way_in = ""

    def by_secret(self, secret: str) -> Person | None:  # noqa: ARG002 - of the protocol
        """Return None."""
        return None


class OwnAccount(WithoutSecret):
    """No sign-in: who reaches the server is taken for its account, as on a socket that it alone may open.

    A port of loopback is reached by every user of the machine: see `by_secret`.
    """

    page = ""

    def __init__(self) -> None:
        self._key = secrets.token_hex()

    def identify(self, request: HTTPServerRequest) -> Person | None:  # noqa: ARG002 - of the protocol
        """Return the account of the server."""
        return local_person(user_name())

    def known(self, name: str) -> Person | None:
        """Return the account of the server; it knows no other person."""
        return local_person(name) if name == user_name() else None

    def form_key(self, request: HTTPServerRequest) -> str:  # noqa: ARG002 - of the protocol
        """Return a secret of this process: another page cannot read ours, and so cannot send its token."""
        return self._key
