"""Maps answers of an API server to errors, each with one line that says what to do.

The status alone is ambiguous: 403 means a missing right, but also an exhausted quota, a limit of the
namespace, or an admission rule, each with another remedy. The texts that distinguish them are those of
Kubernetes' own sources, the same in all versions since 1.9 and with every authorizer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dlrover_nb.core.errors import AwayError, BackendError, NotAllowedError
from dlrover_nb.core.manifests.kinds import ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from dlrover_nb.core.manifests.role_rules import right_to, role_text
from dlrover_nb.core.structs.decisions.call_rights import METHODS, VERBS

if TYPE_CHECKING:
    from dlrover_nb.core.manifests.kinds import Doc, Kind

_LONGEST = 600  # characters of a message that are passed on: a Pod's list of errors can be a page
_DENIED = re.compile(r'User "(?P<user>(?:[^"\\]|\\.)*)" cannot ')
_IMPERSONATED = re.compile(
    r'^(?P<kind>user|group)s "(?P<name>(?:[^"\\]|\\.)*)" is forbidden: .* cannot impersonate '
)
_OVER_QUOTA = re.compile(r"(?:exceeded|status unknown for) quota: (?P<quota>[^,]+)")  # of a new one
_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[^"]+)": (?P<fields>.*)')
_NOT_REACHED = re.compile("error trying to reach service", re.IGNORECASE)
_NO_ADDRESS = "address not allowed"  # said of a pod that runs while its status does not hold its address yet


class Operation(NamedTuple):
    """A request to the API server, in the terms of its authorization.

    Parameters
    ----------
    verb
        ``get``, ``list``, ``watch``, ``create``, ``patch``, ``delete``; for what is no object the method.
    kind
        None for what is no object: versions, discovery.
    namespace, name, subresource
        Empty where there is none.
    """

    verb: str
    kind: Kind | None
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """In the form of Roles: ``pods``, ``pods/proxy``."""
        plural = self.kind.plural if self.kind else ""
        return f"{plural}/{self.subresource}" if self.subresource else plural

    def __str__(self) -> str:
        """Return it as a part of a sentence."""
        what = f"{self.verb} {self.resource or self.name}"
        named = f" {self.name}" if self.kind and self.name else ""
        return what + named + (f" in namespace {self.namespace}" if self.namespace else "")


@dataclass(frozen=True, slots=True)
class Status:
    """An error answer of the API server itself.

    Parameters
    ----------
    code
        HTTP status.
    reason
        One word of the API, such as ``AlreadyExists``; empty where it gives none.
    message
        One line, of a bounded length.
    """

    code: int
    reason: str = ""
    message: str = ""


class ApiError(BackendError):
    """A request to the API server failed.

    Parameters
    ----------
    text
        For people.
    status
        Its answer; code 0 when there was none.
    operation
        The request.
    """

    def __init__(self, text: str, status: Status, operation: Operation) -> None:
        super().__init__(text)
        self.status, self.reason, self.message = status.code, status.reason, status.message
        self.operation = operation


class Unreachable(ApiError, AwayError):  # noqa: N818 - read as a word: `except Unreachable`
    """No usable answer: no connection, no answer in time, or a server that cannot answer now (5xx, 429).

    Nothing is known to be wrong with the request; it may be repeated later.
    """


class Unauthorized(ApiError):  # noqa: N818 - as above
    """The API server rejects the credentials: they are missing, expired or revoked."""


class Forbidden(ApiError, NotAllowedError):  # noqa: N818 - as above
    """The user lacks the right for this request: nothing was changed.

    Attributes
    ----------
    user
        The user's name at the API server; empty when unknown.
    verb, group, resource, name, namespace
        The missing right, in the form of Roles. A note on the error has the Role that grants it.
    """

    def __init__(self, text: str, status: Status, operation: Operation) -> None:
        super().__init__(text, status, operation)
        match = _DENIED.search(status.message)
        self.user = _unquoted(match["user"]) if match else ""
        self.verb, self.resource = operation.verb, operation.resource
        self.group = operation.kind.group if operation.kind else ""
        self.name, self.namespace = operation.name, operation.namespace
        if operation.kind is not None:
            right = replace(
                right_to(self.resource, self.group, self.verb), cluster=not operation.kind.namespaced
            )
            text = role_text([right], self.user, self.namespace)
            self.add_note(f"the Role to ask an administrator for:\n{text}")


class Inadmissible(ApiError):  # noqa: N818 - as above
    """The API server rejects this object: it is invalid, or violates a rule of the namespace."""


class OverQuota(Inadmissible):
    """The namespace's quota has no room for this object until others end.

    Attributes
    ----------
    quota
        Name of the ResourceQuota.
    """

    def __init__(self, text: str, status: Status, operation: Operation) -> None:
        super().__init__(text, status, operation)
        match = _OVER_QUOTA.search(status.message)
        self.quota = match["quota"] if match else ""


class NotThere(ApiError):  # noqa: N818 - as above
    """There is no such object, or no such kind of objects."""


class Conflict(ApiError):  # noqa: N818 - as above
    """An object of that name is there already (reason ``AlreadyExists``), or was changed meanwhile."""


class Gone(ApiError):  # noqa: N818 - as above
    """The version from which changes were requested is no longer known; list again."""


class PodAnswered(ApiError):  # noqa: N818 - as above
    """The program in the pod answered without success; the connection to it works.

    Attributes
    ----------
    body
        Its answer.
    """

    def __init__(self, text: str, status: Status, operation: Operation, body: bytes = b"") -> None:
        super().__init__(text, status, operation)
        self.body = body


_REJECTED = "the API server does not {operation} ({code}): {message}"
_UNKNOWN = "the API server does not accept the credentials{of}; they may have expired"
_MEANINGS: dict[int, tuple[type[ApiError], str]] = {
    401: (Unauthorized, _UNKNOWN + ": cannot {operation} ({message}); sign in again and connect again"),
    404: (NotThere, "cannot {operation}: {message}"),
    409: (Conflict, "cannot {operation}: {message}"),
    410: (Gone, "cannot {operation} from that version on: {message}; list again"),
    429: (Unreachable, "the API server is too busy to {operation}: {message}; try again later"),
}


def error_of(operation: Operation, code: int, body: bytes, context: str = "") -> ApiError:
    """Return the error for an unsuccessful answer of the API server itself.

    Parameters
    ----------
    operation, code, body
        The request, and the answer.
    context
        Whose credentials were used.
    """
    status = read_status(code, body)
    kind, text = _meaning(operation, status, f" of context {context}" if context else "")
    return kind(text, status, operation)


def proxy_error(operation: Operation, code: int, body: bytes) -> ApiError:
    """Return the error for an unsuccessful answer that came through the pod proxy.

    The proxy's own errors are a Status, or a plain line where it could not reach the pod.
    """
    status = read_status(code, body)
    if _NOT_REACHED.match(status.message):
        return Unreachable(f"pod {operation.name} does not answer: {status.message}", status, operation)
    if is_status(body) and status.message == _NO_ADDRESS:
        return Unreachable(f"pod {operation.name} has no address yet", status, operation)
    if is_status(body):
        return error_of(operation, code, body)
    return PodAnswered(f"pod {operation.name} answered {code}: {status.message}", status, operation, body)


def is_status(body: bytes) -> bool:
    """Whether an answer was written by the API server itself."""
    return _object(body).get("kind") == "Status"


def status_of(doc: Doc) -> Status:
    """Parse a Status object."""
    code, reason, message = doc.get("code"), doc.get("reason"), doc.get("message")
    return Status(code if isinstance(code, int) else 0, str(reason or ""), _one_line(str(message or "")))


def read_status(code: int, body: bytes) -> Status:
    """Parse an answer: a Status or any text."""
    doc = _object(body)
    if doc.get("kind") == "Status":
        return replace(status_of(doc), code=code)
    return Status(code, "", _one_line(body[: 4 * _LONGEST].decode(errors="replace")))


def _object(body: bytes) -> Doc:
    if body.lstrip()[:1] != b"{":
        return {}
    try:
        doc = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return doc if isinstance(doc, dict) else {}


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def _unquoted(text: str) -> str:
    """Return a name as it was before it was quoted; those of directories hold a backslash."""
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.DecodeError:  # an escape that JSON does not have
        return text


def _meaning(operation: Operation, status: Status, of: str) -> tuple[type[ApiError], str]:
    message = status.message or status.reason or "no reason given"
    if status.code == 403:
        return _forbidden(operation, status, message)
    if status.code >= 500:
        return (
            Unreachable,
            f"the API server cannot {operation} now ({status.code}): {message}; try again later",
        )
    kind, text = _MEANINGS.get(status.code, (Inadmissible, _REJECTED))
    return kind, text.format(operation=operation, code=status.code, message=message, of=of)


def _forbidden(operation: Operation, status: Status, message: str) -> tuple[type[ApiError], str]:
    if denied := _DENIED.search(status.message):
        user = _unquoted(denied["user"])
        if user == "system:anonymous":
            return Unauthorized, f"the API server received no credentials to {operation}; sign in again"
        if other := _IMPERSONATED.search(status.message):
            name = f"{other['kind']} {_unquoted(other['name'])}"
            ask = "name it in the ClusterRole that lets the dashboard impersonate people"
            return Inadmissible, f"{user} may not act as the {name}; {ask}"
        ask = "`connect kubernetes` shows what you may do, and the Role to ask an administrator for"
        is_read = operation.namespace and operation.verb in {"get", "list", "watch"}
        gone = (
            f", unless namespace {operation.namespace} was deleted, and its roles with it" if is_read else ""
        )
        return Forbidden, f"{user} may not {operation}{_which(operation)}; {ask}{gone}{_way_out(operation)}"
    if _OVER_QUOTA.search(status.message):
        return OverQuota, f"the quota of the namespace has no room to {operation}: {message}"
    if security := _SECURITY.search(message):
        return Inadmissible, (
            f"namespace {operation.namespace} takes only pods of the security standard {security['level']}, "
            f"and this one has {security['fields']}; of our pods only a host_path in kubernetes.volumes "
            "breaks it: mount a claim, or ask an administrator for the standard of the namespace"
        )
    return (
        Inadmissible,
        f"a policy of the cluster does not let us {operation}: {message}{_way_out(operation)}",
    )


def _which(operation: Operation) -> str:
    """Return which right to a job a verb of the proxy is."""
    rights = {verb: METHODS[method].name.lower() for method, verb in VERBS.items()}
    return (
        f", which is the right to {rights[operation.verb]} jobs" if operation.resource == "pods/proxy" else ""
    )


def _way_out(operation: Operation) -> str:
    """Return how to do without what was refused: only for what makes an account for a job's master."""
    if operation.verb != "create" or operation.kind not in {SERVICE_ACCOUNT, ROLE, ROLE_BINDING}:
        return ""
    return "; or name an account that exists as kubernetes.service_account, and none is made"
