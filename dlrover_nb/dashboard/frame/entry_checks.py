"""What every request passes before anything else: the host it names, who asks, and whether they still may.

The name of the host is checked, as a page of an attacker can let its own name lead to this machine; it would
then be of the same origin as ours (DNS rebinding). Behind a proxy, the public address is the one name.

A request can stay open for hours: a stream of events, a websocket. `Open` holds all of them, and whoever is
behind one is identified again every few seconds; with the sign-in, the request ends. So a person who was
removed sees no more, without any page having to ask.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tornado.web import HTTPError

from dlrover_nb.core.errors import BackendError, NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tornado.httputil import HTTPServerRequest
    from tornado.web import RequestHandler

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.sign_in import SignIn

logger = logging.getLogger(__name__)

CHECK_S = 2.0  # between two looks at who is behind the open requests
LONG_S = 1.0  # a request that is open for less is not looked at again


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request that is open: who is behind it, since when by `time.monotonic`, and what ends it."""

    request: HTTPServerRequest
    person: Person
    since_s: float
    end: Callable[[], None]


class Open:
    """The requests that are open now; for the event loop's thread alone."""

    def __init__(self) -> None:
        self._requests: weakref.WeakKeyDictionary[RequestHandler, OpenRequest] = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, handler: RequestHandler, person: Person, end: Callable[[], None] | None = None) -> None:
        """Note a request and who is behind it; `end` ends it, by default with its connection."""
        self._requests[handler] = OpenRequest(
            handler.request, person, time.monotonic(), end or _closing(handler.request)
        )

    def drop(self, handler: RequestHandler) -> bool:
        """Forget a request that is over; whether it was open."""
        return self._requests.pop(handler, None) is not None

    def all(self) -> tuple[tuple[RequestHandler, OpenRequest], ...]:
        """Return all of them."""
        return tuple(self._requests.items())


def _closing(request: HTTPServerRequest) -> Callable[[], None]:
    """Return a function that closes a request's connection, and holds nothing of the handler."""
    connection = request.connection

    def close() -> None:
        connection.stream.close()  # type: ignore[union-attr]  # of HTTP/1, the one that Tornado serves

    return close


class Door:
    """Lets requests in.

    Parameters
    ----------
    sign_in
        Tells who asks.
    hosts
        Names, with ports, under which the server is reached; none: any, as of a socket that no web page
        can reach.
    """

    def __init__(self, sign_in: SignIn, hosts: Iterable[str] = ()) -> None:
        self.sign_in, self.hosts, self.open = sign_in, frozenset(hosts), Open()

    def not_signed_in(self) -> HTTPError:
        """Return the error for a person who is not signed in; it says what to do where no page does."""
        way_in = self.sign_in.way_in
        return HTTPError(401, "%s", way_in) if way_in else HTTPError(401)

    def check_host(self, request: HTTPServerRequest) -> None:
        """Refuse a request to another host's name; `HTTPError` says so."""
        if self.hosts and request.host.lower() not in self.hosts:
            raise HTTPError(421, "a request to the host %r", request.host)

    def check_origin(self, request: HTTPServerRequest) -> None:
        """Refuse what a page of another host asks for, where a browser tells whose page it is."""
        origin = urlsplit(request.headers.get("Origin", ""))
        if origin.netloc.lower() != request.host.lower():
            raise HTTPError(403, "a request from the origin %r", origin.netloc)

    async def identify(self, request: HTTPServerRequest) -> Person | None:
        """Return who asks; on a thread, as a database may be asked.

        Raises
        ------
        HTTPError
            When the request is refused to every caller, or the caller cannot be identified now.
        """
        self.check_host(request)
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self.sign_in.identify, request)
        except NotAllowedError as error:
            raise HTTPError(403, "%s", error) from error
        except BackendError as error:
            raise HTTPError(503, "we cannot tell who is asking: %s", error) from error

    async def end_of_signed_out(self) -> None:
        """End the open requests of people who are not signed in any more, or are another person by now."""
        now_s = time.monotonic()
        for handler, each in self.open.all():
            if now_s - each.since_s >= LONG_S and not await self._is_still(each.request, each.person):
                if not self.open.drop(handler):
                    continue  # it is over since
                logger.info(
                    "an open request of %s to %s ends with the sign-in", each.person.name, each.request.path
                )
                each.end()

    async def _is_still(self, request: HTTPServerRequest, person: Person) -> bool:
        try:
            return await self.identify(request) == person
        except HTTPError as error:
            return error.status_code == 503  # the database is away: the sign-in was good before
