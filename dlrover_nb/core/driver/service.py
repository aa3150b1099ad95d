"""The master's HTTP: a WSGI application that answers the calls of `core.client.calls`.

A request must carry the job's access token, and every call is the same kind of request, so there is one place
that checks it. In a cluster of pods clients connect through the API server's pod proxy with their own
credentials, which the proxy does not pass on, and other pods reach the port too; on one machine all its users
reach it. Only the job's owner may read the token: it is in a Secret, or in the run folder.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.client.calls import ANSWERS, CALLS, NotBegun
from dlrover_nb.core.client.link import CallHandler
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.manifests.objects import READY_PATH
from dlrover_nb.core.structs.external import StepsDone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from dlrover_nb.core.client.calls import Answer, Call
    from dlrover_nb.core.client.link import Served

CALL_PATH = "/call"
ACCESS_HEADER = "X-Dlrover-Access"
REPORT_PATH, REPORT_HEADER = "/v1/report", "X-Dlrover-Report"
MOST_BYTES = 1 << 20  # of a request; the largest, many plans to weigh, has some KiB
SERVER = {"threads": 8, "max_request_body_size": 4 * MOST_BYTES}  # larger ones are not received
_ACCESS_KEY = "HTTP_" + ACCESS_HEADER.upper().replace("-", "_")
_REPORT_KEY = "HTTP_" + REPORT_HEADER.upper().replace("-", "_")
_BINARY, _TEXT = "application/octet-stream", "text/plain"


class Response(NamedTuple):
    """The response."""

    status: str
    body: bytes
    kind: str = _TEXT


class MasterService:
    """The application; it answers from its start, before the job has begun.

    Parameters
    ----------
    access
        The token that a request must carry.
    """

    def __init__(self, access: str) -> None:
        self._reports: tuple[bytes, Callable[[StepsDone], None]] | None = None
        self._access = access.encode()
        self._calls: CallHandler | None = None
        self._not_begun = NotBegun("its master is starting")

    def set_activity(self, doing: str) -> None:
        """Set the answer to calls before the job has begun."""
        self._not_begun = NotBegun(doing)

    def set_resuming(self, doing: str) -> None:
        """Set the answer to calls until this master continues the job of an earlier one."""
        self._not_begun = NotBegun(doing, is_resuming=True)

    def take_reports(self, token: str, report: Callable[[StepsDone], None]) -> None:
        """Accept steps that external programs report with this token from now on."""
        self._reports = token.encode(), report

    def serve(self, served: Served) -> None:
        """Answer calls about this job from now on."""
        self._calls = CallHandler(served)

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
    ) -> Iterable[bytes]:
        """Answer one request; the WSGI entry point."""
        if self._reports is not None and environ["PATH_INFO"] == REPORT_PATH:
            response = take_report(environ, *self._reports)
        else:
            response = respond(environ, access=self._access, answer=self._answer)
        head = [("Content-Type", response.kind), ("Content-Length", str(len(response.body)))]
        start_response(response.status, head)
        return [response.body]

    def _answer(self, call: Call) -> Answer:
        calls = self._calls
        return self._not_begun if calls is None else calls.answer(call)


def respond(environ: Mapping[str, Any], *, access: bytes, answer: Callable[[Call], Answer]) -> Response:  # noqa: PLR0911 - one per fault
    """Return the answer to one request.

    Parameters
    ----------
    environ
        The request, as in WSGI.
    access
        The token that it must carry; it is compared in constant time.
    answer
        Returns the answer to a call.
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
    return Response("200 OK", ANSWERS.pack(answer(call)), _BINARY)


def take_report(environ: Mapping[str, Any], token: bytes, report: Callable[[StepsDone], None]) -> Response:
    """Return the answer to a program that reports its steps."""
    if not hmac.compare_digest(str(environ.get(_REPORT_KEY, "")).encode(), token):
        return Response("401 Unauthorized", b"this needs the report token of the job")
    body = _body(environ) if environ["REQUEST_METHOD"] == "POST" else None
    if body is None:
        return Response("400 Bad Request", b"a report is a POST of some JSON")
    try:
        report(from_json(body, StepsDone))
    except WireError as error:
        return Response("400 Bad Request", str(error).encode())
    return Response("200 OK", b"heard")


def _body(environ: Mapping[str, Any]) -> bytes | None:
    """Return the request's body; None when it is too large, or of no stated length."""
    length = str(environ.get("CONTENT_LENGTH") or "")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        return None
    body: bytes = environ["wsgi.input"].read(int(length))
    return body
