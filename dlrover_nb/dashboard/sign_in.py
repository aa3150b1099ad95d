"""Who asks: the one interface of all ways to sign in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.client.handle import user_name
from dlrover_nb.core.structs.people import Person, local_person

if TYPE_CHECKING:
    from tornado.httputil import HTTPServerRequest


class SignIn(Protocol):
    """A way to sign in."""

    def identify(self, request: HTTPServerRequest) -> Person | None:
        """Return who asks, by what the request carries; None: nobody is signed in."""
        ...


class OwnAccount:
    """No sign-in: whoever reaches a port of loopback is taken for the account that runs the server."""

    def identify(self, request: HTTPServerRequest) -> Person | None:  # noqa: ARG002 - of the protocol
        """Return the account of the server."""
        return local_person(user_name())
