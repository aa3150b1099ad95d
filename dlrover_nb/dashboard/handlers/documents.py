"""Lets requests for Panel's documents in, each by the person it was made for.

A document holds commands in the name of a person, and a websocket is bound to it by a token alone, which the
page carries. So a token is signed, it names its person, and only that person's websocket gets the document.
Bokeh would also put all cookies into the token, for a script of the page to read: it is told to put none.

Panel's own `state.user` is of its OAuth cookies and tells nothing here; a document asks `person_here`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bokeh.application.handlers.handler import Handler
from bokeh.server.auth_provider import AuthProvider
from bokeh.server.views.doc_handler import DocHandler
from bokeh.server.views.ws import WSHandler
from bokeh.util.token import check_token_signature, get_token_payload
from tornado.web import HTTPError

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.structs.decisions.people import Person

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tornado.httputil import HTTPServerRequest

    from dlrover_nb.dashboard.frame.entry_checks import Door

_PERSON = "dlrover_person"  # in the payload of a token, and on the request that was let in


def person_here() -> Person:
    """Return whose document is being made; for functions that Panel calls to make one."""
    import panel as pn  # noqa: PLC0415 - seconds to import

    return from_json(pn.state.curdoc.session_context.token_payload[_PERSON], Person)


class PersonOfDocument(Handler):  # type: ignore[misc]  # of bokeh, without types
    """Puts the person into the token of each document."""

    def process_request(self, request: HTTPServerRequest) -> dict[str, Any]:
        """Return what the token holds beside the arguments of the address."""
        return {_PERSON: to_json(vars(request)[_PERSON]).decode()}

    def modify_document(self, doc: Any) -> None:  # noqa: ANN401 - of bokeh, without types
        """Leave the document to the other handlers."""


class DocumentDoor(AuthProvider):  # type: ignore[misc]  # of bokeh, without types
    """Bokeh asks it before each request; `root` is the path under which a proxy serves the dashboard."""

    def __init__(self, door: Door, root: str) -> None:
        self._door, self._root = door, root
        super().__init__()

    @property
    def get_user_async(self) -> Callable[[Any], Awaitable[str | None]]:
        """Return the function that identifies who asks."""
        return self._user

    @property
    def login_url(self) -> str:
        """Return a path, as Bokeh wants one; `_user` sends people there itself."""
        return "/sign-in"

    async def _user(self, handler: Any) -> str | None:  # noqa: ANN401 - of bokeh, without types
        if not isinstance(handler, (DocHandler, WSHandler)):
            raise HTTPError(404)  # Bokeh's scripts and metadata for pages of other hosts: there are none
        person = await self._door.identify(handler.request)
        if person is None:
            self._send_to_sign_in(handler)
            return None
        setattr(handler.request, _PERSON, person)
        if isinstance(handler, DocHandler):
            _check_is_new(handler.request)
        else:
            self._door.check_origin(handler.request)
            _check_is_of(handler, person)
            self._door.open.add(handler, person, end=partial(_end, handler))
            _forget_when_closed(self._door, handler)
        return person.name

    def _send_to_sign_in(self, handler: Any) -> None:  # noqa: ANN401 - of bokeh, without types
        if isinstance(handler, WSHandler) or not self._door.sign_in.page:
            raise self._door.not_signed_in()
        wanted = quote(handler.request.uri.removeprefix(self._root), safe="")
        handler.redirect(f"{self._root}{self._door.sign_in.page}?next={wanted}")


def _check_is_new(request: HTTPServerRequest) -> None:
    """Refuse to show a document again that was made before, maybe for another person: Bokeh would."""
    if {
        "bokeh-session-id",
        "bokeh-token",
    } & request.arguments.keys() or "Bokeh-Session-Id" in request.headers:
        raise HTTPError(403, "a page asks for a document by its id; open it by its address")


def _check_is_of(handler: Any, person: Person) -> None:  # noqa: ANN401 - of bokeh, without types
    """Refuse a websocket whose document was made for another person, or not by this server."""
    token = handler.request.headers.get("Sec-WebSocket-Protocol", "").partition(",")[2].strip()
    try:
        is_ours = check_token_signature(token, signed=True, secret_key=handler.application.secret_key)
    except (ValueError, TypeError, KeyError):
        is_ours = False  # it is no token at all
    if not is_ours:
        raise HTTPError(403, "a websocket with a token that is not of this server")
    if get_token_payload(token).get(_PERSON) != to_json(person).decode():
        raise HTTPError(403, "%s asks for the document of another person", person.name)


def _end(handler: Any) -> None:  # noqa: ANN401 - of bokeh, without types
    """Close a websocket, and never show its document again."""
    connection = handler.connection
    if connection is not None and handler.ws_connection is not None:
        session = connection._session  # noqa: SLF001 - the public one asserts that it has not let go of it yet
        if session is not None:
            session.request_expiration()
    handler.close(4401, "signed out")


def _forget_when_closed(door: Door, handler: Any) -> None:  # noqa: ANN401 - of bokeh, without types
    """Note the end of a websocket; Bokeh's handler has no hook for it but its own method."""
    close = handler.on_connection_close

    def closed() -> None:
        door.open.drop(handler)
        close()

    handler.on_connection_close = closed
