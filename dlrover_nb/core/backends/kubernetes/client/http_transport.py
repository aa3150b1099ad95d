"""HTTP transport to an API server over the Kubernetes client's connection pool, with time limits.

Added here is what that client lacks: a busy server is retried after the pause that it requests, within the
limit; an idle connection that the server closed is opened again; and refused credentials are read once more,
since they may have been renewed on disk.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as LateError

from dlrover_nb.core.backends.kubernetes.client.api_errors import Operation, Status, Unreachable, is_status
from dlrover_nb.core.backends.kubernetes.client.login import credentials, impersonating

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.backends.kubernetes.client.login import Login

CONNECT_LIMIT_S = 5.0
_AGENT = ("User-Agent", "dlrover-nb")
_CHUNK = 1 << 16
_PAUSE_S = 1.0  # before the next try, where a server that is too busy does not say how long
_SAFE_TWICE = {"GET", "DELETE", "PATCH"}  # a create whose answer was lost may have been done


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `limit_s` holds for all of it, in a stream for each pause between chunks.

    One that is sent `once` is not repeated where it may have arrived, whatever its method is.
    """

    method: str
    path: str
    operation: Operation
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # some are secret
    limit_s: float = 20.0
    once: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The response: the whole body, or an open stream."""

    code: int
    body: bytes = field(default=b"", repr=False)
    stream: urllib3.BaseHTTPResponse | None = None


class Connection:
    """Sends requests; thread-safe.

    Parameters
    ----------
    load
        Reads the configuration; called again when the credentials that it gave are refused.

    Attributes
    ----------
    login
        The credentials in use.
    date_s
        The server's clock at its last answer; NaN before the first, or where it tells none.
    """

    def __init__(self, load: Callable[[], Login]) -> None:
        self._load, self._lock = load, threading.Lock()
        self._n_request = 0
        self.login, self.date_s = load(), float("nan")

    @property
    def n_request(self) -> int:
        """How many requests were sent."""
        return self._n_request

    @property
    def host(self) -> str:
        """URL of the API server."""
        return str(self.login.client.configuration.host)

    def send(self, request: Request, *, stream: bool = False) -> Answer:
        """Send a request and return the answer, successful or not; retry while the server is busy.

        Raises
        ------
        Unreachable
            When no answer comes in time.
        BackendError
            When the credentials cannot be read any more.
        """
        end_s, is_fresh = time.monotonic() + request.limit_s, False
        while True:
            login = self.login
            response = self._open(login, request)
            self.date_s = _date_s(response)
            if stream and response.status < 300:
                return Answer(response.status, stream=response)
            answer = Answer(response.status, _read(response, request, end_s))
            if answer.code == 401 and not is_fresh and is_status(answer.body):
                is_fresh = True
                self._sign_in_again(login)
                continue
            pause_s = _pause_s(response)
            if answer.code != 429 or time.monotonic() + pause_s > end_s:
                return answer
            time.sleep(pause_s)

    def acting_as(self, user: str, groups: Sequence[str] = ()) -> Connection:
        """Return a connection of its own that acts as another user; see `login.impersonating`."""
        return Connection(lambda: impersonating(self._load(), user, groups))

    def close(self) -> None:
        """Close all idle connections."""
        self.login.client.close()

    def _open(self, login: Login, request: Request) -> urllib3.BaseHTTPResponse:
        try:
            return self._exchange(login, request)
        except ProtocolError as error:  # an idle connection, closed by a restarted server
            if request.once or request.method not in _SAFE_TWICE:
                raise _silence(login, request, error) from error
        except (HTTPError, OSError) as error:
            raise _silence(login, request, error) from error
        try:
            return self._exchange(login, request)
        except (HTTPError, OSError) as error:
            raise _silence(login, request, error) from error

    def _exchange(self, login: Login, request: Request) -> urllib3.BaseHTTPResponse:
        headers = urllib3.HTTPHeaderDict((_AGENT, *login.headers, *request.headers))  # names may come twice
        with self._lock:  # credentials are refreshed by one thread
            self._n_request += 1
            headers.update(credentials(login))
        url = login.client.configuration.host + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        return login.client.rest_client.pool_manager.request(  # type: ignore[no-any-return]
            request.method,
            url,
            body=request.body,
            headers=headers,
            timeout=urllib3.Timeout(connect=_connect_limit_s(request), read=request.limit_s),
            preload_content=False,
            retries=False,
            redirect=False,
        )

    def _sign_in_again(self, refused: Login) -> None:
        """Reload the configuration, unless another thread has just done so."""
        with self._lock:
            if self.login is refused:
                self.login = self._load()
                refused.client.close()


def _read(response: urllib3.BaseHTTPResponse, request: Request, end_s: float) -> bytes:
    parts = []
    try:
        for part in response.stream(_CHUNK):
            parts.append(part)
            if time.monotonic() > end_s:
                raise LateError(f"more than {request.limit_s:g} s")
    except (HTTPError, OSError) as error:
        response.close()
        text = f"the answer to {request.operation} broke off ({reason_of(error)}); try again"
        raise Unreachable(text, Status(0), request.operation) from error
    response.release_conn()
    return b"".join(parts)


def _date_s(response: urllib3.BaseHTTPResponse) -> float:
    try:
        return parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
    except ValueError:
        return float("nan")


def _pause_s(response: urllib3.BaseHTTPResponse) -> float:
    try:
        return max(0.0, float(response.headers.get("Retry-After", _PAUSE_S)))
    except ValueError:  # a date; none of Kubernetes' servers writes one
        return _PAUSE_S


def _connect_limit_s(request: Request) -> float:
    return min(CONNECT_LIMIT_S, request.limit_s)


def _silence(login: Login, request: Request, error: Exception) -> Unreachable:
    host, why = login.client.configuration.host, reason_of(error)
    if isinstance(error, SSLError):
        what = f"the API server {host} is not trusted, or does not accept this client's certificate ({why})"
        advice = "check the certificates of this context in the kubeconfig"
    elif isinstance(error, LateError) and not isinstance(error, NewConnectionError):  # a kind of the former
        limit_s = _connect_limit_s(request) if isinstance(error, ConnectTimeoutError) else request.limit_s
        what = f"the API server {host} did not answer within {limit_s:g} s"
        advice = "check the network and whether it is overloaded"
    else:
        what, advice = (
            f"the API server {host} cannot be reached ({why})",
            "check that it is running, the network and the VPN",
        )
    text = f"{what}: cannot {request.operation}; {advice} (context {login.context})"
    return Unreachable(text, Status(0), request.operation)


def reason_of(error: BaseException) -> str:
    """Return the innermost cause in a few words."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if type(error) is ValueError:  # of a part of an answer, where its length should stand
        return "it was cut off"
    text = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
    return " ".join(str(text).split())[:200] or type(error).__name__
