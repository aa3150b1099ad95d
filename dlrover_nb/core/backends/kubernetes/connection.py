"""The way to an API server: who asks, over which connections, within which time.

The Kubernetes client reads the configuration (contexts, certificates, plugins that give credentials, a pod's
own account) and refreshes tokens; requests go through its pool of connections, without its thousands of
model classes. What it does not do is done here: a limit of time on each request, `as` of a kubeconfig,
credentials that were renewed on disk since they were read (asked for once more after a 401), and errors that
hold nothing of a kubeconfig's content: the client's own texts print whole entries, tokens included.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import urllib3
import yaml
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as LateError

from dlrover_nb.core.backends.kubernetes.answers import Asked, Status, Unreachable, is_status
from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

CONNECT_LIMIT_S = 5.0
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_AGENT = ("User-Agent", "dlrover-nb")
_CHUNK = 1 << 16
_PAUSE_S = 1.0  # before the next try, where a server that is too busy does not say how long
_SAFE_TWICE = {"GET", "DELETE", "PATCH"}  # a create that was lost on the way may have been done


@dataclass(frozen=True, slots=True)
class Login:
    """Who asks, where, and how that is shown.

    Parameters
    ----------
    client
        The Kubernetes client's ApiClient.
    context, user
        Names in the kubeconfig; in a pod ``in-cluster`` and the account's.
    namespace
        Where that user works unless told otherwise.
    headers
        For acting as another user.
    """

    client: Any = field(repr=False)
    context: str
    user: str
    namespace: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `limit_s` is for all of it, but a stream's for each silence in it."""

    method: str
    path: str
    asked: Asked
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    limit_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the whole body, or a stream that goes on."""

    code: int
    body: bytes = b""
    stream: urllib3.BaseHTTPResponse | None = None


class Connection:
    """Sends requests; safe from several threads.

    Parameters
    ----------
    load
        Reads the configuration; called again when the credentials that it gave are refused.
    """

    def __init__(self, load: Callable[[], Login]) -> None:
        self._load, self._lock = load, threading.Lock()
        self._n_request = 0
        self.login = load()

    @property
    def n_request(self) -> int:
        """How many requests were sent."""
        return self._n_request

    @property
    def host(self) -> str:
        """URL of the API server."""
        return str(self.login.client.configuration.host)

    def send(self, request: Request, *, stream: bool = False) -> Answer:
        """Send a request and return the answer, with success or without; wait where the server is too busy.

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

    def close(self) -> None:
        """Close all connections that are at rest."""
        self.login.client.close()

    def _open(self, login: Login, request: Request) -> urllib3.BaseHTTPResponse:
        try:
            return self._exchange(login, request)
        except ProtocolError as error:  # a connection that was at rest, cut by a server that started anew
            if request.method not in _SAFE_TWICE:
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
            headers.update(_credentials(login))
        url = login.client.configuration.host + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        return login.client.rest_client.pool_manager.request(  # type: ignore[no-any-return]
            request.method,
            url,
            body=request.body,
            headers=headers,
            timeout=urllib3.Timeout(connect=min(CONNECT_LIMIT_S, request.limit_s), read=request.limit_s),
            preload_content=False,
            retries=False,
            redirect=False,
        )

    def _sign_in_again(self, refused: Login) -> None:
        """Read the configuration once more, unless another thread has just done so."""
        with self._lock:
            if self.login is refused:
                self.login = self._load()
                refused.client.close()


def _credentials(login: Login) -> dict[str, str]:
    try:
        settings = login.client.configuration.auth_settings()
    except Exception as error:
        raise _no_credentials(login.context) from error
    return {each["key"]: each["value"] for each in settings.values() if each["value"]}


def _read(response: urllib3.BaseHTTPResponse, request: Request, end_s: float) -> bytes:
    parts = []
    try:
        for part in response.stream(_CHUNK):
            parts.append(part)
            if time.monotonic() > end_s:
                raise LateError(f"more than {request.limit_s:g} s")
    except (HTTPError, OSError) as error:
        response.close()
        text = f"the answer to {request.asked} broke off ({reason_of(error)}); try again"
        raise Unreachable(text, Status(0), request.asked) from error
    response.release_conn()
    return b"".join(parts)


def _pause_s(response: urllib3.BaseHTTPResponse) -> float:
    try:
        return max(0.0, float(response.headers.get("Retry-After", _PAUSE_S)))
    except ValueError:  # a date; none of Kubernetes' servers writes one
        return _PAUSE_S


def _silence(login: Login, request: Request, error: Exception) -> Unreachable:
    host, why = login.client.configuration.host, reason_of(error)
    if isinstance(error, SSLError):
        what = f"the API server {host} cannot be trusted, or does not trust us ({why})"
        advice = "check the certificates of this context in the kubeconfig"
    elif isinstance(error, LateError) and not isinstance(error, NewConnectionError):  # a kind of the former
        what = f"the API server {host} did not answer within {request.limit_s:g} s"
        advice = "check the network and whether it is overloaded"
    else:
        what, advice = (
            f"the API server {host} cannot be reached ({why})",
            "check that it runs, network and VPN",
        )
    text = f"{what}: cannot {request.asked}; {advice} (context {login.context})"
    return Unreachable(text, Status(0), request.asked)


def reason_of(error: BaseException) -> str:
    """Return the innermost cause in a few words."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    told = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
    return " ".join(str(told).split())[:200] or type(error).__name__


def load_login(context: str | None, kubeconfig: str | None) -> Login:
    """Read a kubeconfig, or a pod's own account where there is none.

    Parameters
    ----------
    context
        In the kubeconfig; None: its current one.
    kubeconfig
        One path or several, as in ``KUBECONFIG``, which is read when this is None.

    Raises
    ------
    BackendError
        When there is no configuration, or it is of no use: what is wrong with it, and where.
    """
    paths = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    found = [path for path in paths.split(os.pathsep) if path and Path(path).expanduser().is_file()]
    if found:
        return _from_kubeconfig(os.pathsep.join(found), context)
    if kubeconfig or context or not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise BackendError(f"there is no kubeconfig at {paths}; set KUBECONFIG to the path of yours")
    return _in_cluster()


def _from_kubeconfig(paths: str, wanted: str | None) -> Login:
    from kubernetes import client, config  # noqa: PLC0415 - needs the extra, and takes 0.3 s
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger  # noqa: PLC0415 - as above

    where = f"kubeconfig {paths}"
    try:
        merged = KubeConfigMerger(paths)
        entries = _entries(merged.config.value)
    except (OSError, yaml.YAMLError, config.ConfigException, AttributeError, TypeError, KeyError) as error:
        raise BackendError(f"{where} is no kubeconfig ({_place(error)}); write it anew") from error
    context = wanted or merged.config.value.get("current-context") or ""
    cluster_and_user = _context(entries, context, where)
    user = entries["users"].get(str(cluster_and_user.get("user")), {})
    configuration = client.Configuration()
    configuration.keep_alive = True  # a watch whose other end vanished is noticed
    told: list[str] = []
    try:
        with _told_apart() as told:
            KubeConfigLoader(
                merged.config,
                active_context=context,
                config_base_path=None,
                config_persister=merged.save_changes,
            ).load_and_set(configuration)
    except Exception as error:
        if str(error).startswith("File does not exist"):
            raise BackendError(f"context {context} of {where}: {error}") from error
        raise _no_credentials(context, told) from error
    if ("exec" in user or "auth-provider" in user) and not (configuration.api_key or configuration.cert_file):
        raise _no_credentials(context, told)
    return Login(
        client.ApiClient(configuration),
        context,
        str(cluster_and_user.get("user") or "nobody"),
        str(cluster_and_user.get("namespace") or "default"),
        tuple(_impersonation(user)),
    )


def _entries(config: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the named entries of a merged kubeconfig, by list and name."""
    return {
        plural: {node.value["name"]: node.value[plural[:-1]] or {} for node in config[plural]}
        for plural in ("clusters", "users", "contexts")
    }


def _context(entries: Mapping[str, Mapping[str, dict[str, Any]]], name: str, where: str) -> dict[str, Any]:
    there = entries["contexts"]
    if name not in there:
        known = ", ".join(sorted(map(str, there))) or "none"
        got = f"has no context {name}" if name else "names no current context"
        raise BackendError(f"{where} {got}; choose one of its contexts: {known}")
    context = there[name]
    for plural in ("clusters", "users"):
        asked = context.get(plural[:-1])
        if asked not in entries[plural] and (asked or plural == "clusters"):
            raise BackendError(
                f"context {name} of {where} names the {plural[:-1]} {asked}, which is not there"
            )
    if not entries["clusters"][context["cluster"]].get("server"):
        raise BackendError(f"cluster {context['cluster']} of {where} has no server; add its URL")
    return context


def _impersonation(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers for acting as another user; the client leaves these fields out."""
    if user.get("as"):
        yield "Impersonate-User", str(user["as"])
    if user.get("as-uid"):
        yield "Impersonate-Uid", str(user["as-uid"])
    for group in user.get("as-groups") or ():
        yield "Impersonate-Group", str(group)
    for key, values in (user.get("as-user-extra") or {}).items():
        yield from ((f"Impersonate-Extra-{quote(key, safe='')}", str(value)) for value in values)


def _in_cluster() -> Login:
    from kubernetes import client, config  # noqa: PLC0415 - as above

    configuration = client.Configuration()
    configuration.keep_alive = True
    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = (_ACCOUNT / "namespace").read_text().strip()
    except (OSError, config.ConfigException) as error:
        text = f"this pod has no service account to ask the API server with ({error})"
        raise BackendError(f"{text}; set automountServiceAccountToken") from error
    return Login(client.ApiClient(configuration), "in-cluster", "its service account", namespace)


def _place(error: Exception) -> str:
    """Return what is wrong with a file without a word of its content: that may be a token."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"no YAML at line {error.problem_mark.line + 1}"
    if isinstance(error, OSError):
        return error.strerror or "it cannot be read"
    return "expected clusters, users and contexts, each with a name"


def _no_credentials(context: str, told: Sequence[str] = ()) -> BackendError:
    why = " ".join(" ".join(told).split())[:300] or "they are missing, or not as a kubeconfig has them"
    return BackendError(f"context {context} gives no credentials ({why}); sign in again and connect again")


@contextlib.contextmanager
def _told_apart() -> Iterator[list[str]]:
    """Collect what the client says to the root logger: why a plugin gave no credentials."""
    root, told = logging.getLogger(), list[str]()

    def keep(record: logging.LogRecord) -> bool:
        if record.pathname.endswith("kube_config.py"):
            told.append(record.getMessage())
            return False
        return True

    quiet = logging.NullHandler()  # with no handler at all the client would set one up
    root.addHandler(quiet)
    root.addFilter(keep)
    try:
        yield told
    finally:
        root.removeFilter(keep)
        root.removeHandler(quiet)
