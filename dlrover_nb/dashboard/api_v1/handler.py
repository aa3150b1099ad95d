"""The one handler of the API: who asks, how often, with what; then the route's function, on a thread.

Everything in the text of a request that is not exactly as declared is refused.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

import msgspec
from tornado.web import HTTPError

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import DlroverError, InvalidValueError, StaleDecisionError
from dlrover_nb.core.history.stores.credentials import credential_id
from dlrover_nb.dashboard.api_v1 import problems
from dlrover_nb.dashboard.api_v1.call import Call
from dlrover_nb.dashboard.api_v1.rate_limits import Buckets, Rate, Recent
from dlrover_nb.dashboard.frame.base_handler import PersonHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.api_v1.answers import Problem
    from dlrover_nb.dashboard.api_v1.call import Result
    from dlrover_nb.dashboard.api_v1.routes import Route
    from dlrover_nb.dashboard.api_v1.tokens import Tokens
    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.sign_in import SignIn


_KEY = re.compile(r"[!-~]{1,200}")
_SEEN = re.compile(r'"(d\d{1,14})"', re.ASCII)
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
DOCS = "/api/v1/docs says what it takes"


def read_query(arguments: Mapping[str, Sequence[bytes]], kind: type[T]) -> T:
    """Return the parameters of an address as a record; `InvalidValueError` names the one at fault."""
    if many := [name for name, values in arguments.items() if len(values) > 1]:
        raise InvalidValueError(
            f"each parameter must be given once, got {shown(many[0])} several times; {DOCS}"
        )
    try:
        given = {name: values[0].decode() for name, values in arguments.items()}
        return msgspec.convert(given, kind, strict=False)
    except _REFUSED as error:
        raise InvalidValueError(_told(error, "the address")) from error


def read_body(body: bytes, kind: Any) -> Any:  # noqa: ANN401 - a union of types has no useful static type
    """Return a body as a record of its kind; `InvalidValueError` names the field at fault."""
    try:
        return msgspec.json.decode(body, type=kind)
    except _REFUSED as error:
        raise InvalidValueError(_told(error, "the body")) from error


def read_key(header: str | None) -> str:
    """Return an idempotency key; empty: none was sent."""
    if header is None:
        return ""
    if not _KEY.fullmatch(header):
        raise InvalidValueError(
            f"Idempotency-Key must be 1 to 200 letters of ASCII without spaces, got {shown(header)}; "
            "a UUID will do"
        )
    return header


def read_seen(header: str | None) -> str:
    """Return the version that ``If-Match`` names; empty: none was sent."""
    if header is None:
        return ""
    if (match := _SEEN.fullmatch(header)) is None:
        raise InvalidValueError(
            f'If-Match must be the ETag of the job, such as "d3", got {shown(header)}; send it as it came'
        )
    return match[1]


def _told(error: Exception, where: str) -> str:
    """Return what msgspec found, in the words of this product: expected, got, what to do."""
    text = str(error).replace("`", "")
    return f"{where}: {text[:1].lower()}{text[1:]}; {DOCS}"


A = TypeVar("A")
T = TypeVar("T")

logger = logging.getLogger(__name__)

MOST_BYTES = 64 * 1024  # of a body
PER_PERSON = Rate(burst=60, per_s=20)
FAILURES = Rate(burst=10, per_s=0.2)  # wrong tokens, per address
BEARER = "Bearer "
NOT_SIGNED_IN = (
    "a request must carry a token that is valid, got none; send `Authorization: Bearer dlnb_…`, "
    "as `dlrover-nb server tokens add` prints it"
)
OR_SO = (
    ", or what is in the file serve/PORT in the state folder of the account that runs the server "
    "(~/.local/state/dlrover-nb)"
)
NOT_OUR_FORM = "a change by a signed-in browser must carry X-CSRF-Token, got another; load the page again"


@dataclass(frozen=True, slots=True)
class Api:
    """What the handlers of the API share.

    Parameters
    ----------
    tokens
        Who a token signs in.
    clock_s
        A clock that never goes back, for the limits.
    per_person, failures
        How often one person may ask, and one address may send a wrong token.
    good
        Hashes of tokens that were good of late.
    """

    tokens: Tokens
    clock_s: Callable[[], float]
    per_person: Buckets = field(default_factory=lambda: Buckets(PER_PERSON))
    failures: Buckets = field(default_factory=lambda: Buckets(FAILURES))
    good: Recent = field(default_factory=Recent)


class RefusedError(Exception):
    """A request is not carried out; the problem says why."""

    def __init__(self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.problem, self.headers = problems.problem(status, text), headers or {}


class ApiHandler(PersonHandler):
    """Answers the routes of one path."""

    def initialize(  # type: ignore[override]  # with what the API shares
        self, team: Team, sign_in: SignIn, api: Api, routes: Mapping[str, Route]
    ) -> None:
        """Take the routes, by method."""
        super().initialize(team, sign_in)
        self.api, self.routes = api, routes

    def prepare(self) -> None:
        """Identify no caller yet: a token is looked up on a thread, by `_answer`."""

    def check_etag_header(self) -> bool:
        """Never answer 304: the ETag is the version of the plan, and a job goes on under the same plan."""
        return False

    def compute_etag(self) -> None:
        """Make no ETag of the text."""

    async def get(self, *path: str) -> None:
        """Answer a question."""
        await self._answer(path)

    async def post(self, *path: str) -> None:
        """Carry out a command."""
        await self._answer(path)

    async def _answer(self, path: tuple[str, ...]) -> None:
        try:
            person = await self._identified()
            route = self._route()
            call = self._call(route, person, path)
            result = await _on_a_thread(route.run, call)
        except RefusedError as refused:
            self._refuse(refused.problem, refused.headers)
        except DlroverError as error:
            await self._refuse_error(error)
        else:
            self._send(result)

    async def _identified(self) -> Person:
        """Return who asks, by the token alone where one is sent."""
        sent = self.request.headers.get("Authorization")
        name = "" if sent is None else credential_id(sent)
        person = await (self.door.identify(self.request) if sent is None else self._by_token(sent, name))
        if person is None:
            text = NOT_SIGNED_IN + (OR_SO if self.sign_in.way_in else "")
            raise RefusedError(HTTPStatus.UNAUTHORIZED, text, {"WWW-Authenticate": "Bearer"})
        self.person = person  # for the log
        if sent is None and self.request.method != "GET" and not self._has_our_token():
            raise RefusedError(HTTPStatus.FORBIDDEN, NOT_OUR_FORM)
        if wait_s := self.api.per_person.take(name or person.name, self.api.clock_s()):
            raise _too_often("you send too many requests", wait_s)
        return person

    async def _by_token(self, sent: str, name: str) -> Person | None:
        """Return who a token signs in.

        An address that has sent wrong ones waits, but not for a token that was good of late: behind one proxy
        or in one office, no client can keep the others out by guessing.
        """
        self.door.check_host(self.request)
        secret = sent.removeprefix(BEARER) if sent.startswith(BEARER) else ""
        if person := self.sign_in.by_secret(secret):  # no wait: all users of a machine have one address
            return person
        address, now_s = self.request.remote_ip or "", self.api.clock_s()
        if name not in self.api.good and (wait_s := self.api.failures.wait_s(address, now_s)):
            raise _too_often("this address sent too many wrong tokens", wait_s)
        person = await _on_a_thread(lambda each: self.api.tokens.person(each, self.sign_in.known), secret)
        if person is None:
            self.api.good.discard(name)
            self.api.failures.take(address, now_s)
        else:
            self.api.good.add(name)
        return person

    def _has_our_token(self) -> bool:
        sent = self.request.headers.get("X-CSRF-Token", "")
        return hmac.compare_digest(sent.encode(), self.csrf.encode())

    def _route(self) -> Route:
        if (route := self.routes.get(self.request.method or "")) is None:
            allowed = ", ".join(self.routes)
            text = f"the method must be {allowed}, got {self.request.method}; {DOCS}"
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, text, {"Allow": allowed})
        return route

    def _call(self, route: Route, person: Person, path: tuple[str, ...]) -> Call:
        headers = self.request.headers
        return Call(
            self.team,
            person,
            dict(zip(route.parameters, path, strict=True)),
            read_query(self.request.query_arguments, route.query),
            None if route.body is None else self._body(route.body),
            read_key(headers.get("Idempotency-Key")) if route.changes else "",
            read_seen(headers.get("If-Match")) if route.sees else "",
        )

    def _body(self, kind: Any) -> object:  # noqa: ANN401 - a union of types has no useful static type
        if len(self.request.body) > MOST_BYTES:
            text = f"a body must have at most {MOST_BYTES:,} bytes, got {len(self.request.body):,}; send less"
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        sent = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if sent != "application/json":
            text = f"a body must be application/json, got {sent or 'none'}; name it in Content-Type"
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        return read_body(self.request.body, kind)

    # answers

    def _send(self, result: Result) -> None:
        if result.version:
            self.set_header("ETag", f'"{result.version}"')
        self._write(HTTPStatus.OK, "application/json", result.answer)

    async def _refuse_error(self, error: DlroverError) -> None:
        status = problems.status_of(error)
        if isinstance(error, StaleDecisionError) and self.request.headers.get("If-Match") is not None:
            is_older = await self._saw_an_older_version()
            status = HTTPStatus.PRECONDITION_FAILED if is_older else status
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.warning("a request to the API failed: %s", error)
        self._refuse(problems.problem_of(error, status))

    async def _saw_an_older_version(self) -> bool:
        """Whether the plan, mode or pins have changed since the state that the caller named."""
        cluster, name = map(str, self.path_args[:2])
        version = read_seen(self.request.headers.get("If-Match"))
        try:
            now = await _on_a_thread(lambda key: self.team.cluster(key).job(name).snapshot(), cluster)
        except DlroverError:
            return False
        return now.version != version

    def _refuse(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        for name, value in (headers or {}).items():
            self.set_header(name, value)
        self._write(HTTPStatus(problem.status), problems.TYPE, problem)

    def _write(self, status: HTTPStatus, kind: str, record: object) -> None:
        self.set_status(status)
        self.set_header("Content-Type", kind)
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.finish(to_json(record))

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ANN401 - as Tornado calls it
        """Answer an error of the server itself as a problem: what it says to clients, and no traceback."""
        status = HTTPStatus(status_code)
        error = kwargs.get("exc_info", (None, None))[1]
        message = error.get_message() if isinstance(error, HTTPError) else None
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.set_header("Allow", ", ".join(self.routes))
        text = message or f"{status.phrase.lower()}; {DOCS}"
        self._refuse(problems.problem(status, text))


def _too_often(who: str, wait_s: float) -> RefusedError:
    seconds = max(1, math.ceil(wait_s))
    text = f"{who}; ask again in {seconds} s"
    return RefusedError(HTTPStatus.TOO_MANY_REQUESTS, text, {"Retry-After": str(seconds)})


async def _on_a_thread(function: Callable[[A], T], argument: A) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, function, argument)
