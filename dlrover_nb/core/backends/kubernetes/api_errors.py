"""What the answers of an API server mean: which error each one is, in one line that says what to do.

The status alone does not tell: 403 is what a user may not do, but also a quota that is used up, a limit of
the namespace, or an admission rule, each with another way out. The words that tell them apart are those of
Kubernetes' own sources, the same in all versions since 1.9 and with every authorizer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.rights import right_to, role_text

if TYPE_CHECKING:
    from dlrover_nb.core.manifests.kinds import Doc, Kind

_LONGEST = 600  # characters of a message that are passed on: a Pod's list of faults can be a page
_DENIED = re.compile(r'User "(?P<user>(?:[^"\\]|\\.)*)" cannot ')
_OVER_QUOTA = re.compile(r"exceeded quota: (?P<quota>[^,]+)")
_NOT_REACHED = re.compile("error trying to reach service", re.IGNORECASE)


class Asked(NamedTuple):
    """What was asked of the API server, in the words of its authorization.

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
        """As Roles write it: ``pods``, ``pods/proxy``."""
        plural = self.kind.plural if self.kind else ""
        return f"{plural}/{self.subresource}" if self.subresource else plural

    def __str__(self) -> str:
        """Return it as a part of a sentence."""
        what = f"{self.verb} {self.resource or self.name}"
        named = f" {self.name}" if self.kind and self.name else ""
        return what + named + (f" in namespace {self.namespace}" if self.namespace else "")


@dataclass(frozen=True, slots=True)
class Status:
    """What an answer of the API server itself says.

    Parameters
    ----------
    code
        As HTTP has it.
    reason
        One word of the API, such as ``AlreadyExists``; empty where it gives none.
    message
        One line, of a bounded length.
    """

    code: int
    reason: str = ""
    message: str = ""


class ApiError(BackendError):
    """The API server did not do what it was asked for.

    Parameters
    ----------
    text
        For people.
    status
        What it answered; code 0 when it did not.
    asked
        What it was asked for.
    """

    def __init__(self, text: str, status: Status, asked: Asked) -> None:
        super().__init__(text)
        self.status, self.reason, self.message = status.code, status.reason, status.message
        self.asked = asked


class Unreachable(ApiError):  # noqa: N818 - read as a word: `except Unreachable`
    """No answer of use: no connection, no answer in time, or a server that cannot answer now (5xx, 429).

    Nothing is known to be wrong with what was asked; it may be asked again later.
    """


class Unauthorized(ApiError):  # noqa: N818 - as above
    """The API server does not know who asks: the credentials are missing, expired or revoked."""


class Forbidden(ApiError):  # noqa: N818 - as above
    """The user has not the right to do that.

    Attributes
    ----------
    user
        As the API server calls who asked; empty when it does not tell.
    verb, group, resource, name, namespace
        The right that is missing, as Roles write it. A note on the error has the Role that gives it.
    """

    def __init__(self, text: str, status: Status, asked: Asked) -> None:
        super().__init__(text, status, asked)
        found = _DENIED.search(status.message)
        self.user = _unquoted(found["user"]) if found else ""
        self.verb, self.resource = asked.verb, asked.resource
        self.group = asked.kind.group if asked.kind else ""
        self.name, self.namespace = asked.name, asked.namespace
        if asked.kind is not None:
            right = replace(right_to(self.resource, self.group, self.verb), cluster=not asked.kind.namespaced)
            text = role_text([right], self.user, self.namespace)
            self.add_note(f"the Role to ask an administrator for:\n{text}")


class Refused(ApiError):  # noqa: N818 - as above
    """The API server does not take this object: it is not valid, or a rule of the namespace is against it."""


class OverQuota(Refused):
    """The namespace's quota has no room for this object now; it has when others end.

    Attributes
    ----------
    quota
        Name of the ResourceQuota.
    """

    def __init__(self, text: str, status: Status, asked: Asked) -> None:
        super().__init__(text, status, asked)
        found = _OVER_QUOTA.search(status.message)
        self.quota = found["quota"] if found else ""


class NotThere(ApiError):  # noqa: N818 - as above
    """There is no such object, or no such kind of objects."""


class Conflict(ApiError):  # noqa: N818 - as above
    """An object of that name is there already (reason ``AlreadyExists``), or was changed meanwhile."""


class Gone(ApiError):  # noqa: N818 - as above
    """The version from which on changes were asked for is no longer known; list again."""


class PodAnswered(ApiError):  # noqa: N818 - as above
    """The program in the pod answered, and not with success: the way to it is fine.

    Attributes
    ----------
    body
        Its answer.
    """

    def __init__(self, text: str, status: Status, asked: Asked, body: bytes = b"") -> None:
        super().__init__(text, status, asked)
        self.body = body


_REFUSED = "the API server does not {asked} ({code}): {message}"
_UNKNOWN = "the API server does not know the credentials{of}; they may have expired"
_MEANINGS: dict[int, tuple[type[ApiError], str]] = {
    401: (Unauthorized, _UNKNOWN + ": cannot {asked} ({message}); sign in again and connect again"),
    404: (NotThere, "cannot {asked}: {message}"),
    409: (Conflict, "cannot {asked}: {message}"),
    410: (Gone, "cannot {asked} from that version on: {message}; list again"),
    429: (Unreachable, "the API server has too much to do to {asked}: {message}; try again later"),
}


def error_of(asked: Asked, code: int, body: bytes, context: str = "") -> ApiError:
    """Return what an answer without success means, when the API server itself gave it.

    Parameters
    ----------
    asked, code, body
        What was asked, and the answer.
    context
        Whose credentials were used.
    """
    status = read_status(code, body)
    kind, text = _meaning(asked, status, f" of context {context}" if context else "")
    return kind(text, status, asked)


def proxy_error(asked: Asked, code: int, body: bytes) -> ApiError:
    """Return what an answer without success means that came through the pod proxy.

    The proxy's own errors are a Status, or a plain line where it could not reach the pod.
    """
    status = read_status(code, body)
    if _NOT_REACHED.match(status.message):
        return Unreachable(f"pod {asked.name} does not answer: {status.message}", status, asked)
    if is_status(body):
        return error_of(asked, code, body)
    return PodAnswered(f"pod {asked.name} answered {code}: {status.message}", status, asked, body)


def is_status(body: bytes) -> bool:
    """Whether an answer was written by the API server itself."""
    return _object(body).get("kind") == "Status"


def status_of(doc: Doc) -> Status:
    """Return what a Status object says."""
    code, reason, message = doc.get("code"), doc.get("reason"), doc.get("message")
    return Status(code if isinstance(code, int) else 0, str(reason or ""), _one_line(str(message or "")))


def read_status(code: int, body: bytes) -> Status:
    """Return what an answer says, be it a Status or any text."""
    doc = _object(body)
    if doc.get("kind") == "Status":
        told = status_of(doc)
        return Status(code, told.reason, told.message)
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


def _meaning(asked: Asked, status: Status, of: str) -> tuple[type[ApiError], str]:
    message = status.message or status.reason or "no reason given"
    if status.code == 403:
        return _forbidden(asked, status, message)
    if status.code >= 500:
        return Unreachable, f"the API server cannot {asked} now ({status.code}): {message}; try again later"
    kind, text = _MEANINGS.get(status.code, (Refused, _REFUSED))
    return kind, text.format(asked=asked, code=status.code, message=message, of=of)


def _forbidden(asked: Asked, status: Status, message: str) -> tuple[type[ApiError], str]:
    if denied := _DENIED.search(status.message):
        user = _unquoted(denied["user"])
        if user == "system:anonymous":
            return Unauthorized, f"the API server got no credentials with which to {asked}; sign in again"
        ask = "`connect kubernetes` shows all that is allowed, and the Role to ask an administrator for"
        return Forbidden, f"{user} may not {asked}; {ask}"
    if _OVER_QUOTA.search(status.message):
        return OverQuota, f"the quota of the namespace has no room to {asked}: {message}"
    return Refused, f"a rule of the cluster is against it to {asked}: {message}"
