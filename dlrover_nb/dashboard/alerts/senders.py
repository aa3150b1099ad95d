"""What carries alerts out: a signed webhook, and whatever apprise knows (mail, chat, pagers).

The webhook's signature covers the time and the body, so that its receiver can tell a forged call and refuse
an old one that is played again: ``X-Dlrover-Signature: t=TIME,v1=HEX`` is HMAC-SHA256 of ``TIME.BODY``. A
redirect is not followed: it would send the alert to an address that the settings do not name.

URLs of apprise hold passwords. They are never logged nor shown: a destination is called by its place in the
settings and its kind. Apprise itself logs a URL that it cannot read, and its HTTP client logs paths; while
something is sent, both are silenced, and what went wrong is told in our words.
"""

from __future__ import annotations

import hmac
import logging
import ssl
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.structs.views.alerts import Alert, AlertKind
from dlrover_nb.dashboard.alerts.links import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

TIMEOUT_S = 10.0
SIGNATURE = "X-Dlrover-Signature"


_TELLTALES = ("apprise", "urllib3.connectionpool")
_sends = threading.local()


def _is_harmless(_: logging.LogRecord) -> bool:
    return not getattr(_sends, "now", False)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what the libraries of apprise log on this thread out of the log: it may hold a URL."""
    for name in _TELLTALES:
        logging.getLogger(name).addFilter(_is_harmless)  # a filter that is there already is not added again
    _sends.now = True
    try:
        yield
    finally:
        _sends.now = False


class Message(Struct, frozen=True):
    """The body of a webhook's call."""

    id: str
    event: str  # begun, or ended
    kind: AlertKind
    title: str
    text: str
    cluster: str
    namespace: str
    job: str
    owner: str
    subject: str
    at_s: float
    ended_at_s: float | None
    link: str


def message_of(alert: Alert, base_url: str) -> Message:
    """Return an alert as it is sent; `base_url` is where people reach the dashboard."""
    about = alert.about
    return Message(
        alert.id,
        "begun" if alert.ended_at_s is None else "ended",
        alert.kind,
        alert.title,
        alert.text,
        about.cluster,
        about.namespace,
        about.job,
        about.owner,
        alert.subject,
        alert.at_s,
        alert.ended_at_s,
        f"{base_url.rstrip('/')}{path_of(alert)}",
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow nowhere: the answer is an error, as its status says."""


@dataclass(frozen=True)
class Webhook:
    """POSTs each alert as JSON, signed.

    Parameters
    ----------
    url
        Of the receiver; ``https``, or ``http`` within this machine.
    secret
        Key of the signature, known to the receiver.
    base_url
        Where people reach the dashboard, for links.
    now_s
        The time, for the signature.
    timeout_s
        For connecting, and for each answer.
    """

    url: str = field(repr=False)
    secret: str = field(repr=False)
    base_url: str
    now_s: Callable[[], float]
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_near = parts.scheme == "http" and parts.hostname in {"127.0.0.1", "::1", "localhost"}
        if not parts.hostname or not (parts.scheme == "https" or is_near):
            raise InvalidValueError(
                f"the webhook's URL must be https://…, got {parts.scheme or 'none'}://…; http only goes to "
                "this machine"
            )
        if not self.secret:
            raise InvalidValueError(
                "the webhook needs a secret, got none; set one that its receiver knows too"
            )

    @property
    def name(self) -> str:
        """The host alone: paths of webhooks are secrets, too."""
        return f"the webhook at {urlsplit(self.url).hostname}"

    def send(self, alert: Alert) -> None:
        """Send an alert; `BackendError` when it is not taken."""
        body = to_json(message_of(alert, self.base_url))
        headers = {"Content-Type": "application/json", SIGNATURE: signature(self.secret, self.now_s(), body)}
        request = urllib.request.Request(self.url, body, headers, method="POST")  # noqa: S310 - checked above
        opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.HTTPSHandler(context=ssl.create_default_context())
        )
        try:
            with opener.open(request, timeout=self.timeout_s):
                return
        except urllib.error.HTTPError as error:
            with error:
                raise BackendError(f"{self.name} answered with {error.code}, expected 2xx") from error
        except (OSError, HTTPException) as error:
            raise BackendError(f"{self.name} cannot be reached: {type(error).__name__}") from error


def signature(secret: str, at_s: float, body: bytes) -> str:
    """Return the value of the header for a body sent at a time."""
    timestamp = f"{at_s:.0f}"
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, "sha256").hexdigest()
    return f"t={timestamp},v1={digest}"


@dataclass(frozen=True)
class Apprise:
    """Sends each alert through one URL of apprise.

    Parameters
    ----------
    place
        Which of the settings' URLs it is, from 1 on.
    url
        Of apprise, with its secrets.
    base_url
        Where people reach the dashboard, for links.
    """

    place: int
    url: str = field(repr=False)
    base_url: str

    def __post_init__(self) -> None:
        with _silence():
            service = self._opened()
        if service is None:
            raise InvalidValueError(
                f"apprise does not know the service of URL {self.place}; see its list of services"
            )

    @property
    def name(self) -> str:
        """Its place and kind, without what the URL holds."""
        return f"apprise {self.place} ({self.url.partition(':')[0]})"

    def send(self, alert: Alert) -> None:
        """Send an alert; `BackendError` when it is not taken."""
        message = message_of(alert, self.base_url)
        with _silence():
            service = self._opened()
            body = f"{message.text}\n{message.link}"
            is_sent = service is not None and service.notify(body=body, title=message.title)
        if not is_sent:
            raise BackendError(f"{self.name} did not accept the alert; check whether its service is up")

    def _opened(self) -> Any:  # noqa: ANN401 - apprise has no types
        import apprise  # noqa: PLC0415 - of an extra, and it loads a hundred services

        return apprise.Apprise.instantiate(self.url, suppress_exceptions=True)
