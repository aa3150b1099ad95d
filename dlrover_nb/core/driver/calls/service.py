"""The master's HTTP: a WSGI application that answers the calls of `core.client.link.calls`.

A request must carry an access token of the job, and every call is the same kind of request, so there is one
place that checks it. In a cluster of pods clients connect through the API server's pod proxy with their own
credentials, which the proxy does not pass on, and other pods reach the port too; on one machine all its users
reach it. Only the job's owner may read the job's token: it is in a Secret, or in the run folder.

Each call needs a right (`calls.RIGHTS`) that both method and token must give (`structs.call_rights`). A POST
has its call in the body; a GET and a DELETE have it in the URL, since proxies on the way may drop their
bodies. A header was rejected for it: caches may mix up the answers to GETs of one URL.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qs

from dlrover_nb.core.client.link.call_ends import CallHandler
from dlrover_nb.core.client.link.calls import ANSWERS, CALLS, NotBegun, right_of
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.driver.calls.trainer_reports import take_status
from dlrover_nb.core.errors import BackendError, WireError
from dlrover_nb.core.manifests.objects import READY_PATH
from dlrover_nb.core.structs.decisions.call_rights import METHOD_OF, METHODS, CallRight, access_token
from dlrover_nb.core.structs.job.external import StepsDone
from dlrover_nb.core.structs.training.reported import TRAINER_PATH
from dlrover_nb.core.structs.wire.pod_contract import CHECK_HEADER, CHECK_PATH, CodeTried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from dlrover_nb.core.client.link.call_ends import Served
    from dlrover_nb.core.client.link.calls import Answer, Call
    from dlrover_nb.core.driver.calls.service_queue import ServiceQueue
    from dlrover_nb.core.structs.training.reported import TrainerReport

T = TypeVar("T")

CALL_PATH = "/call"
CALL_FIELD = "call"  # of the URL
ACCESS_HEADER = "X-Dlrover-Access"
REPORT_PATH, REPORT_HEADER = "/v1/report", "X-Dlrover-Report"
SERVICE_PATH = "/v1/service"  # with the token of reports
MOST_BYTES = 1 << 20  # of a request; the largest, many plans to weigh, has some KiB
SERVER = {"threads": 8, "max_request_body_size": 4 * MOST_BYTES}  # larger ones are not received
_ACCESS_KEY = "HTTP_" + ACCESS_HEADER.upper().replace("-", "_")
_BINARY, _TEXT, _JSON = "application/octet-stream", "text/plain", "application/json"


class Response(NamedTuple):
    """The response."""

    status: str
    body: bytes
    kind: str = _TEXT


@dataclass(frozen=True, slots=True)
class ReportEndpoint(Generic[T]):
    """Reports that programs in pods may send: their kind, their token and its header, and the receiver."""

    kind: type[T]
    header: str
    token: bytes
    hear: Callable[[T], None]


class Gate:
    """Decides which rights a request has: what both its token and its method give.

    Parameters
    ----------
    access
        The job's token; it gives all rights, and the tokens of the rights are derived from it.
    methods
        The right of each method that a call may have.
    """

    def __init__(self, access: str, methods: Mapping[str, CallRight]) -> None:
        self.methods = methods
        self._tokens = [(access_token(access, right).encode(), right) for right in CallRight]
        self._tokens.append((access.encode(), CallRight.END))

    def right(self, token: str) -> CallRight | None:
        """Return the right of a token; None: it is none of the job's. All are compared, in constant time."""
        presented = token.encode()
        rights = [right for own, right in self._tokens if hmac.compare_digest(presented, own)]
        return rights[0] if rights else None

    def refusal(self, call: Call, right: CallRight, method: str) -> str:
        """Return why this method, and a token with this right, may not send a call; empty: they may."""
        needed = right_of(call)
        head = f"a {type(call).__name__} needs the right to {needed.name.lower()}"
        if self.methods[method] < needed:
            return f"{head}, which a {METHOD_OF[needed]} has, got a {method}; use a newer dlrover-nb"
        if right < needed:
            return f"{head}, got the token to {right.name.lower()}; the job's Secret holds that to all"
        return ""


# A master that has come back is asked by programs before it has read which token is theirs: told so, they try
# again, where a refusal would end them.
_OF_PROGRAMS = {REPORT_PATH, TRAINER_PATH, SERVICE_PATH}
_NOT_YET = Response("503 Service Unavailable", b"the job's master is starting; try again")


class MasterService:
    """The application; it answers from its start, before the job has begun.

    Parameters
    ----------
    access
        The job's token.
    methods
        The right that each method of a call gives, as far as the token gives it too.
    """

    def __init__(self, access: str, methods: Mapping[str, CallRight] = METHODS) -> None:
        self._takers: dict[str, Callable[[Mapping[str, Any]], Response]] = {}
        self._gate = Gate(access, methods)
        self._calls: CallHandler | None = None
        self._not_begun = NotBegun("its master is starting")

    def set_activity(self, doing: str) -> None:
        """Set the answer to calls before the job has begun."""
        self._not_begun = NotBegun(doing)

    def set_resuming(self, doing: str) -> None:
        """Set the answer to calls until this master continues the job of an earlier one."""
        self._not_begun = NotBegun(doing, is_resuming=True)

    def take_reports(self, token: str, report: Callable[[StepsDone | TrainerReport], None]) -> None:
        """Accept what external programs report with this token from now on: steps, or a Trainer's status."""
        endpoint: ReportEndpoint[StepsDone] = ReportEndpoint(StepsDone, REPORT_HEADER, token.encode(), report)
        self._takers[REPORT_PATH] = partial(take_report, endpoint=endpoint)
        self._takers[TRAINER_PATH] = partial(_take_trainer_status, token=token.encode(), hear=report)

    def take_calls(self, token: str, calls: ServiceQueue) -> None:
        """Answer calls that external programs make with this token from now on, by the loop of their job."""
        self._takers[SERVICE_PATH] = partial(take_call, token=token.encode(), calls=calls)

    def take_check(self, token: str, hear: Callable[[CodeTried], None]) -> None:
        """Accept what came of a user's code from the pod that tries it with this token, from now on."""
        endpoint = ReportEndpoint(CodeTried, CHECK_HEADER, token.encode(), hear)
        self._takers[CHECK_PATH] = partial(take_report, endpoint=endpoint)

    def serve(self, served: Served) -> None:
        """Answer calls about this job from now on."""
        self._calls = CallHandler(served)

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
    ) -> Iterable[bytes]:
        """Answer one request; the WSGI entry point."""
        path = environ["PATH_INFO"]
        if take := self._takers.get(path):
            response = take(environ)
        elif path in _OF_PROGRAMS and self._calls is None:
            response = _NOT_YET
        else:
            response = respond(environ, gate=self._gate, answer=self._answer)
        size = str(len(response.body))
        head = [("Content-Type", response.kind), ("Content-Length", size), ("Cache-Control", "no-store")]
        start_response(response.status, head)
        return [response.body]

    def _answer(self, call: Call) -> Answer:
        calls = self._calls
        return self._not_begun if calls is None else calls.answer(call)


def respond(environ: Mapping[str, Any], *, gate: Gate, answer: Callable[[Call], Answer]) -> Response:  # noqa: PLR0911 - one per fault
    """Return the answer to one request.

    Parameters
    ----------
    environ
        The request, as in WSGI.
    gate
        Decides which rights it has.
    answer
        Returns the answer to a call.
    """
    method = environ["REQUEST_METHOD"]
    if environ["PATH_INFO"] == READY_PATH:
        return Response("200 OK", b"ready")
    right = gate.right(str(environ.get(_ACCESS_KEY, "")))
    if right is None:
        return Response("401 Unauthorized", b"this needs an access token of the job")
    if environ["PATH_INFO"] != CALL_PATH:
        return Response("404 Not Found", b"ask at " + CALL_PATH.encode())
    if method not in gate.methods:
        return Response("405 Method Not Allowed", f"a call is a {' or '.join(gate.methods)}".encode())
    packed = _body(environ) if method == "POST" else _from_url(environ)
    if packed is None:
        return Response("413 Content Too Large", f"a call has at most {MOST_BYTES >> 10} KiB".encode())
    try:
        call = CALLS.unpack(packed)
    except WireError as error:
        return Response("400 Bad Request", str(error).encode())
    if why := gate.refusal(call, right, method):
        return Response("403 Forbidden", why.encode())
    return Response("200 OK", ANSWERS.pack(answer(call)), _BINARY)


def call_url(packed: bytes) -> str:
    """Return the URL of a call that is sent without a body."""
    return f"{CALL_PATH}?{CALL_FIELD}={base64.urlsafe_b64encode(packed).decode()}"


def _from_url(environ: Mapping[str, Any]) -> bytes:
    """Return the call in the URL; empty, which is no call, where there is none."""
    values = parse_qs(str(environ.get("QUERY_STRING", ""))).get(CALL_FIELD, [""])
    try:
        return base64.b64decode(values[0], altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def take_report(environ: Mapping[str, Any], endpoint: ReportEndpoint[Any]) -> Response:
    """Return the answer to a program that reports."""
    if not _is_given(environ, endpoint.header, endpoint.token):
        return Response("401 Unauthorized", f"this needs the token of {endpoint.header}".encode())
    body = _body(environ) if environ["REQUEST_METHOD"] == "POST" else None
    if body is None:
        return Response("400 Bad Request", b"a report is a POST of some JSON")
    try:
        endpoint.hear(from_json(body, endpoint.kind))
    except WireError as error:
        return Response("400 Bad Request", str(error).encode())
    return Response("200 OK", b"heard")


def _take_trainer_status(
    environ: Mapping[str, Any], token: bytes, hear: Callable[[TrainerReport], None]
) -> Response:
    return Response(*take_status(environ, token, hear), _JSON)


def take_call(environ: Mapping[str, Any], token: bytes, calls: ServiceQueue) -> Response:
    """Return the answer to a program that asks, once the loop of its job has one."""
    if not _is_given(environ, REPORT_HEADER, token):
        return Response("401 Unauthorized", f"this needs the token of {REPORT_HEADER}".encode())
    body = _body(environ) if environ["REQUEST_METHOD"] == "POST" else None
    if body is None:
        return Response("400 Bad Request", f"a call is a POST of at most {MOST_BYTES >> 10} KiB".encode())
    try:
        return Response("200 OK", calls.ask(body), _JSON)
    except WireError as error:
        return Response("400 Bad Request", str(error).encode())
    except BackendError as error:
        return Response("503 Service Unavailable", str(error).encode())


def _is_given(environ: Mapping[str, Any], header: str, token: bytes) -> bool:
    """Whether a request has the token of a header."""
    given = environ.get("HTTP_" + header.upper().replace("-", "_"), "")
    return hmac.compare_digest(str(given).encode(), token)


def _body(environ: Mapping[str, Any]) -> bytes | None:
    """Return the request's body; None when it is too large, or of no stated length."""
    length = str(environ.get("CONTENT_LENGTH") or "")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        return None
    body: bytes = environ["wsgi.input"].read(int(length))
    return body
