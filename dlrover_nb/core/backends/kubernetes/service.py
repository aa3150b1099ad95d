"""The master's HTTP: a WSGI application that answers `calls` to whoever knows the job's access token.

Clients reach it through the API server's pod proxy, with their own credentials. The proxy does not pass
these on, and other pods reach the port too; so each request carries the token of the job's Secret: who may
read that may speak. Everything that is asked comes as one kind of request, so there is one place to check it.
"""

from __future__ import annotations

import hmac
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.backends.kubernetes.rpc import ANSWERS, CALLS, CallHandler, Failed, NotBegun
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.manifests.objects import READY_PATH
from dlrover_nb.core.structs.external import StepsDone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from dlrover_nb.core.backends.kubernetes.rpc import Answer, Call, Served

logger = logging.getLogger(__name__)

CALL_PATH = "/call"
ACCESS_HEADER = "X-Dlrover-Access"
REPORT_PATH, REPORT_HEADER = "/v1/report", "X-Dlrover-Report"
MOST_BYTES = 1 << 20  # of a request; the largest, many plans to weigh, has some KiB
SERVER = {"threads": 8, "max_request_body_size": 4 * MOST_BYTES}  # what is more is not even taken in
_ACCESS_KEY = "HTTP_" + ACCESS_HEADER.upper().replace("-", "_")
_REPORT_KEY = "HTTP_" + REPORT_HEADER.upper().replace("-", "_")
_BINARY, _TEXT = "application/octet-stream", "text/plain"


class Response(NamedTuple):
    """What goes back."""

    status: str
    body: bytes
    kind: str = _TEXT


class MasterService:
    """The application; it answers from its first moment, before there is a job to speak about.

    Parameters
    ----------
    access
        The token that a request must carry.
    """

    def __init__(self, access: str) -> None:
        self._reports: tuple[bytes, Callable[[StepsDone], None]] | None = None
        self._access, self._desk = access.encode(), CallHandler(os.urandom(4).hex())
        self._served: Served | None = None
        self._doing = "its master begins"

    def tell(self, doing: str) -> None:
        """Say what the master is at, while the job has not begun."""
        self._doing = doing

    def take_reports(self, token: str, hear: Callable[[StepsDone], None]) -> None:
        """Hear the steps of programs of others from now on, from whoever knows this token."""
        self._reports = token.encode(), hear

    def serve(self, served: Served) -> None:
        """Answer for this from now on."""
        self._served = served

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
    ) -> Iterable[bytes]:
        """Answer one request, as WSGI has it."""
        if self._reports is not None and environ["PATH_INFO"] == REPORT_PATH:
            response = take_report(environ, *self._reports)
        else:
            response = respond(environ, access=self._access, answer=self._answer)
        head = [("Content-Type", response.kind), ("Content-Length", str(len(response.body)))]
        start_response(response.status, head)
        return [response.body]

    def _answer(self, call: Call) -> Answer:
        served = self._served
        return NotBegun(self._doing) if served is None else self._desk.answer(served, call)


def respond(environ: Mapping[str, Any], *, access: bytes, answer: Callable[[Call], Answer]) -> Response:  # noqa: PLR0911 - one to a fault
    """Return the answer to one request.

    Parameters
    ----------
    environ
        The request, as WSGI has it.
    access
        The token that it must carry; it is compared in a time that tells nothing about it.
    answer
        What is said to a call.
    """
    if environ["PATH_INFO"] == READY_PATH:
        return Response("200 OK", b"ready")
    if not hmac.compare_digest(str(environ.get(_ACCESS_KEY, "")).encode(), access):
        return Response("401 Unauthorized", b"this needs the access token of the job")
    if environ["PATH_INFO"] != CALL_PATH:
        return Response("404 Not Found", b"ask at " + CALL_PATH.encode())
    if environ["REQUEST_METHOD"] != "POST":
        return Response("405 Method Not Allowed", b"a call is a POST")
    body = _body(environ)
    if body is None:
        return Response("413 Content Too Large", f"a call has at most {MOST_BYTES >> 10} KiB".encode())
    try:
        call = CALLS.unpack(body)
    except WireError as error:
        return Response("400 Bad Request", str(error).encode())
    return Response("200 OK", ANSWERS.pack(_answered(call, answer)), _BINARY)


def take_report(environ: Mapping[str, Any], token: bytes, hear: Callable[[StepsDone], None]) -> Response:
    """Return the answer to a program that reports its steps."""
    if not hmac.compare_digest(str(environ.get(_REPORT_KEY, "")).encode(), token):
        return Response("401 Unauthorized", b"this needs the report token of the job")
    body = _body(environ) if environ["REQUEST_METHOD"] == "POST" else None
    if body is None:
        return Response("400 Bad Request", b"a report is a POST of some JSON")
    try:
        hear(from_json(body, StepsDone))
    except WireError as error:
        return Response("400 Bad Request", str(error).encode())
    return Response("200 OK", b"heard")


def _answered(call: Call, answer: Callable[[Call], Answer]) -> Answer:
    try:
        return answer(call)
    except Exception as error:
        logger.exception("a call %s could not be answered", type(call).__name__)
        return Failed("BackendError", f"the master failed to answer ({type(error).__name__}); see its log")


def _body(environ: Mapping[str, Any]) -> bytes | None:
    """Return what was sent; None when it is too much, or of no stated length."""
    length = str(environ.get("CONTENT_LENGTH") or "")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        return None
    body: bytes = environ["wsgi.input"].read(int(length))
    return body
