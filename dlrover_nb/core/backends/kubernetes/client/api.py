"""Client of the API server for objects as plain JSON: one function per verb, no model classes.

Every call has a time limit and is thread-safe. A failure is an `ApiError`: its text is one line for people,
its class tells a program what to do (`api_errors`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import msgspec

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    Conflict,
    Forbidden,
    Gone,
    Inadmissible,
    NotThere,
    Operation,
    OverQuota,
    PodAnswered,
    Unauthorized,
    Unreachable,
    error_of,
    proxy_error,
)
from dlrover_nb.core.backends.kubernetes.client.http_transport import Connection, Request
from dlrover_nb.core.backends.kubernetes.client.login import load_login
from dlrover_nb.core.backends.kubernetes.client.stream import Lines, Watch, decode
from dlrover_nb.core.manifests.kinds import POD, Doc, Kind
from dlrover_nb.core.structs.decisions.call_rights import VERBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import urllib3

__all__ = [
    "Api",
    "Conflict",
    "Forbidden",
    "Gone",
    "Inadmissible",
    "Listing",
    "NotThere",
    "OverQuota",
    "PodAnswered",
    "Unauthorized",
    "Unreachable",
    "Watch",
    "connect_api",
]

CALL_LIMIT_S = 20.0
WATCH_S = 300.0  # after which the server ends a watch; the client begins the next
_SILENCE_S = 15.0  # that a server may take to end a watch whose time is over
_PAGE = 500  # objects to an answer
_TRIES = 5  # of a create that conflicts with another one on the same quota
_JSON = ("Content-Type", "application/json")
_APPLY = ("Content-Type", "application/apply-patch+yaml")  # JSON is YAML
_DRY = (("dryRun", "All"),)
_ACCEPT = ("Accept", "application/json")


class Listing(NamedTuple):
    """Objects, and their version in the store, from which a watch continues."""

    items: list[Doc]
    resource_version: str


def connect_api(
    context: str | None = None, namespace: str | None = None, kubeconfig: str | None = None
) -> Api:
    """Return an API client configured from a kubeconfig or the pod's own account; nothing is sent.

    Parameters
    ----------
    context
        In the kubeconfig; None: its current one.
    namespace
        To work in; None: the context's.
    kubeconfig
        Path or paths; None: ``KUBECONFIG``, ``~/.kube/config``, else the account of the pod that this is.

    Raises
    ------
    BackendError
        When there is no configuration, or it is unusable.
    """
    connection = Connection(lambda: load_login(context, kubeconfig))
    return Api(connection, namespace or connection.login.namespace)


class Api:
    """The API server, at one namespace; thread-safe.

    Parameters
    ----------
    connection
        The connection to it.
    namespace
        Of namespaced kinds; empty: lists and watches span all namespaces.
    limit_s
        Seconds that one call may take.
    """

    def __init__(self, connection: Connection, namespace: str, *, limit_s: float = CALL_LIMIT_S) -> None:
        self._connection, self.namespace, self._limit_s = connection, namespace, limit_s
        self._served: dict[str, frozenset[str]] = {}

    def __repr__(self) -> str:
        return f"Api({self.host}, context={self.context}, namespace={self.namespace})"

    @property
    def host(self) -> str:
        """URL of the API server."""
        return self._connection.host

    @property
    def context(self) -> str:
        """Name of the kubeconfig's context; ``in-cluster`` in a pod."""
        return self._connection.login.context

    @property
    def user(self) -> str:
        """Name of the kubeconfig's user; the user's name in the cluster may differ."""
        return self._connection.login.user

    @property
    def date_s(self) -> float:
        """The server's clock at its last answer, which the times in its documents are of; NaN: not told."""
        return self._connection.date_s

    @property
    def n_request(self) -> int:
        """How many requests were sent over this connection, by all that share it."""
        return self._connection.n_request

    def acting_as(self, user: str, groups: Sequence[str] = ()) -> Api:
        """Return the same namespace as another user sees it; see `login.impersonating`."""
        return Api(self._connection.acting_as(user, groups), self.namespace, limit_s=self._limit_s)

    def within(self, namespace: str) -> Api:
        """Return the same connection, at another namespace."""
        return self._like(namespace, self._limit_s)

    def with_short_timeout(self, limit_s: float) -> Api:
        """Return the same connection with another time limit per call."""
        return self._like(self.namespace, limit_s)

    def _like(self, namespace: str, limit_s: float) -> Api:
        other = Api(self._connection, namespace, limit_s=limit_s)
        other._served = self._served
        return other

    def close(self) -> None:
        """Close idle connections; a later call opens new ones."""
        self._connection.close()

    def get(self, kind: Kind, name: str, *, subresource: str = "") -> Doc:
        """Return one object.

        Raises
        ------
        NotThere
            When there is none of that name.
        """
        return self._call("GET", self._operation("get", kind, name, subresource))

    def list(self, kind: Kind, *, selector: str = "", fields: str = "") -> Listing:
        """Return all objects that match a label selector and a field selector."""
        items: list[Doc] = []
        page = self._page(kind, selector, fields, ("limit", str(_PAGE)))
        while more := page["metadata"].get("continue"):
            items += page["items"]
            try:
                page = self._page(kind, selector, fields, ("limit", str(_PAGE)), ("continue", more))
            except Gone:  # it took too long: the store has forgotten that version
                items, page = [], self._page(kind, selector, fields)
        return Listing(items + (page["items"] or []), page["metadata"]["resourceVersion"])

    def create(self, kind: Kind, doc: Doc, *, dry_run: bool = False) -> Doc:
        """Create an object and return it as it is stored.

        Raises
        ------
        Conflict
            When there is one of that name.
        OverQuota
            When the quota of the namespace has no room for it now.
        Inadmissible
            When it is not valid, or a rule of the cluster is against it.
        """
        operation = self._operation("create", kind)._replace(name=doc.get("metadata", {}).get("name", ""))
        path = kind.path(self.namespace)
        for left in reversed(range(_TRIES)):
            try:
                return self._call(
                    "POST", operation, _JSON, body=doc, query=_DRY if dry_run else (), path=path
                )
            except Conflict as error:  # two creates at once, and the quota counted the other one
                if error.reason == "AlreadyExists" or not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def patch(self, kind: Kind, name: str, doc: Doc, *, subresource: str = "", form: str = "merge") -> Doc:
        """Merge fields into an object: None removes one; lists replace, or merge (`strategic-merge`)."""
        operation = self._operation("patch", kind, name, subresource)
        return self._call("PATCH", operation, ("Content-Type", f"application/{form}-patch+json"), body=doc)

    def apply(self, kind: Kind, name: str, doc: Doc) -> Doc:
        """Make an object as `doc` says, also where there is none: a Role can allow that for one name."""
        query = (("fieldManager", "dlrover-nb"), ("force", "true"))
        return self._call("PATCH", self._operation("patch", kind, name), _APPLY, body=doc, query=query)

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        grace_s: int | None = None,
        propagation: str | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete an object; one that is gone already is fine.

        Parameters
        ----------
        kind, name
            Which.
        grace_s
            Seconds that its program has to end; None: as the object says.
        propagation
            What becomes of all that it owns: ``Foreground``, ``Background``, ``Orphan``.
        uid
            Of the very object that is meant: another one of the same name is left alone.
        """
        options = {
            "gracePeriodSeconds": grace_s,
            "propagationPolicy": propagation,
            "preconditions": {"uid": uid} if uid else None,
        }
        body = {key: value for key, value in options.items() if value is not None}
        try:
            self._call("DELETE", self._operation("delete", kind, name), _JSON, body=body)
        except NotThere:
            return
        except Conflict as error:
            if uid is None or "UID" not in error.message:
                raise

    def watch(
        self,
        kind: Kind,
        *,
        selector: str = "",
        resource_version: str = "",
        timeout_s: float = WATCH_S,
    ) -> Watch:
        """Return the events of objects from a version on, until `timeout_s` is over.

        Raises
        ------
        Gone
            Here or from the iterator, when that version is too old: list again.
        Unreachable
            From the iterator, when the connection breaks.
        """
        query = [
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(max(1, round(timeout_s)))),
        ]
        if selector:
            query.append(("labelSelector", selector))
        operation = self._operation("watch", kind)
        response = self._stream(operation, kind.path(self.namespace), query, CALL_LIMIT_S)
        socket = getattr(response.connection, "sock", None)
        if socket is not None:  # it answered in time; now it may be silent for as long as nothing happens
            socket.settimeout(timeout_s + _SILENCE_S)
        return Watch(response, operation)

    def proxy(  # noqa: PLR0913 - a whole HTTP request
        self,
        pod: str,
        port: int,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = CALL_LIMIT_S,
        *,
        method: str = "",
    ) -> bytes:
        """Send an HTTP request to a program in a pod through the API server; only a GET is repeated.

        Parameters
        ----------
        method
            Decides which verb on ``pods/proxy`` the user needs. Empty: POST with a body, else GET.

        Raises
        ------
        PodAnswered
            When the program answers without success.
        Unreachable
            When it, or the API server, does not answer.
        """
        method = method or ("GET" if body is None else "POST")
        operation = self._operation(VERBS[method], POD, pod, "proxy")
        at = f"{POD.path(self.namespace)}/http:{pod}:{port}/proxy/{path.lstrip('/')}"
        sent_headers, once = tuple((headers or {}).items()), method != "GET"
        request = Request(method, at, operation, (), body, sent_headers, timeout_s, once)
        answer = self._connection.send(request)
        if answer.code >= 300:
            raise proxy_error(operation, answer.code, answer.body)
        return answer.body

    def log(
        self,
        pod: str,
        *,
        follow: bool = False,
        since_s: int | None = None,
        since: str = "",
        timestamps: bool = False,
        timeout_s: float = WATCH_S,
    ) -> Iterator[str]:
        """Yield the lines of a pod's log; with `follow` until none comes for `timeout_s`.

        Parameters
        ----------
        since_s, since
            Older lines are left out: so many seconds ago, or before this second (``2026-01-31T23:59:59Z``).
        timestamps
            Whether each line begins with its time, to the nanosecond.
        """
        operation = self._operation("get", POD, pod, "log")
        query = [("follow", "true")] if follow else []
        if since_s is not None:
            query.append(("sinceSeconds", str(max(1, since_s))))
        query += [("sinceTime", since)] if since else []
        query += [("timestamps", "true")] if timestamps else []
        lines = Lines(
            self._stream(operation, POD.path(self.namespace, pod, "log"), query, timeout_s), operation
        )
        for line in lines:
            yield line.decode(errors="replace")

    def version(self) -> str:
        """Return the API server's version, such as ``v1.31.2``."""
        operation = Operation("get", None, name="/version")
        return str(self._call("GET", operation, path="/version")["gitVersion"])

    def has(self, kind: Kind, *, subresource: str = "") -> bool:
        """Whether the API server serves a kind, or a subresource of it, such as ``resize`` of pods."""
        wanted = f"{kind.plural}/{subresource}" if subresource else kind.plural
        if wanted in self._served.get(kind.root, ()):
            return True
        try:
            answer = self._call("GET", Operation("get", None, name=kind.root), path=kind.root)
        except NotThere:
            return False
        self._served[kind.root] = frozenset(each["name"] for each in answer["resources"])
        return wanted in self._served[kind.root]

    def _operation(self, verb: str, kind: Kind, name: str = "", subresource: str = "") -> Operation:
        return Operation(verb, kind, self.namespace if kind.namespaced else "", name, subresource)

    def _page(self, kind: Kind, selector: str, fields: str, *more: tuple[str, str]) -> Doc:
        query = [("labelSelector", selector), ("fieldSelector", fields), *more]
        operation = self._operation("list", kind)
        return self._call("GET", operation, query=tuple(pair for pair in query if pair[1]))

    def _call(
        self,
        method: str,
        operation: Operation,
        *headers: tuple[str, str],
        path: str = "",
        query: tuple[tuple[str, str], ...] = (),
        body: Doc | None = None,
    ) -> Doc:
        if not path:
            assert operation.kind is not None
            path = operation.kind.path(self.namespace, quote(operation.name, safe=""), operation.subresource)
        sent = None if body is None else msgspec.json.encode(body)
        request = Request(method, path, operation, query, sent, (_ACCEPT, *headers), self._limit_s)
        answer = self._connection.send(request)
        if answer.code >= 300:
            raise error_of(operation, answer.code, answer.body, self.context)
        return decode(answer.body, operation)

    def _stream(
        self, operation: Operation, path: str, query: Sequence[tuple[str, str]], silence_s: float
    ) -> urllib3.BaseHTTPResponse:
        request = Request("GET", path, operation, tuple(query), None, (), silence_s)
        answer = self._connection.send(request, stream=True)
        if answer.stream is None:
            raise error_of(operation, answer.code, answer.body, self.context)
        return answer.stream
