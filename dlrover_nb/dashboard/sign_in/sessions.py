"""Sessions: who has signed in, by a cookie that only says which row of the database.

A cookie that says itself who somebody is, signed, was rejected: it cannot be ended before it expires. The
secret of a session is new with each sign-in, whatever cookie the browser had before (session fixation). A
session ends when it was not used for a while, at the latest after a day, and at once when its person has left
or has changed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.decisions.people import Person  # noqa: TC001 - records are decoded by their annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from tornado.httputil import HTTPServerRequest
    from tornado.web import RequestHandler

    from dlrover_nb.core.history.stores.credentials import CredentialStore
    from dlrover_nb.dashboard.settings import ServeSettings

KIND = "session"
RENEWED = 0.05  # part of the idle time after which a use of the session is written down
SKEW_S = 120.0  # by which the clocks of several servers may differ


@dataclass(frozen=True, slots=True)
class Cookie:
    """The cookie of sessions: its name, whether it goes over TLS alone, and the path that it is sent to.

    ``__Host-`` makes browsers refuse one that another host, or a page without TLS, has set; with a path it is
    ``__Secure-``. On loopback without TLS the port that the browser asks is in the name, as cookies know no
    ports: that of the settings may be 0.
    """

    name: str
    is_secure: bool
    path: str = "/"
    lasts_s: int | None = None  # None: for as long as the browser runs

    def named(self, name: str, lasts_s: int) -> Cookie:
        """Return one of a further name, for a while."""
        return replace(self, name=f"{self.name}-{name}", lasts_s=lasts_s)

    def all_named(self, request: HTTPServerRequest) -> tuple[str, ...]:
        """Return the further names of those that a request has."""
        first, last = f"{self.name}-", self._name_at(request).removeprefix(self.name)
        own = (name for name in request.cookies if name.startswith(first) and name.endswith(last))
        return tuple(rest for name in own if (rest := name.removeprefix(first).removesuffix(last)))

    def of(self, request: HTTPServerRequest) -> str:
        """Return its value in a request; empty: it is not there."""
        morsel = request.cookies.get(self._name_at(request))
        return "" if morsel is None else morsel.value

    def set(self, handler: RequestHandler, value: str) -> None:
        """Give it to a browser: never to a script, never to another site's form."""
        name = self._name_at(handler.request)
        handler.set_cookie(
            name,
            value,
            path=self.path,
            secure=self.is_secure,
            httponly=True,
            samesite="Lax",
            max_age=self.lasts_s,
        )

    def clear(self, handler: RequestHandler) -> None:
        """Take it away from a browser."""
        name = self._name_at(handler.request)
        handler.clear_cookie(name, path=self.path, secure=self.is_secure, httponly=True, samesite="Lax")

    def _name_at(self, request: HTTPServerRequest) -> str:
        port = request.host.rpartition(":")[2]
        return f"{self.name}-{port}" if port.isdecimal() and not self.is_secure else self.name


def cookie_of(settings: ServeSettings, what: str = "session") -> Cookie:
    """Return the cookie of a server."""
    name = f"dlrover-{what}"
    if not settings.is_https:
        return Cookie(name, is_secure=False, path=settings.prefix or "/")
    if settings.prefix:
        return Cookie(f"__Secure-{name}", is_secure=True, path=settings.prefix)
    return Cookie(f"__Host-{name}", is_secure=True)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What the database has of a session.

    Parameters
    ----------
    person
        As they signed in.
    ends_s
        At the latest.
    stamp
        Of what the sign-in was checked against; one that has changed ends the session.
    note
        What the way of signing in needs when the person leaves.
    """

    person: Person
    ends_s: float
    stamp: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A session that a request belongs to."""

    secret: str
    record: SessionRecord


class Sessions:
    """The sessions of a server, in the database that all servers of the team share.

    Parameters
    ----------
    store
        Of credentials.
    cookie
        Which has their secrets.
    now_s
        The time.
    idle_s, absolute_s
        For how long one lasts that is not used, and at all.
    """

    def __init__(
        self,
        store: CredentialStore,
        cookie: Cookie,
        now_s: Callable[[], float],
        *,
        idle_s: float,
        absolute_s: float,
    ) -> None:
        self._store, self.cookie, self._now_s = store, cookie, now_s
        self._idle_s, self._absolute_s = idle_s, absolute_s

    def start(self, person: Person, *, stamp: str = "", note: str = "") -> str:
        """Begin a session of a person who has signed in, and return its secret."""
        now_s = self._now_s()
        self._store.drop_expired(now_s)
        record = SessionRecord(person, now_s + self._absolute_s, stamp, note)
        ends_s = min(now_s + self._idle_s, record.ends_s)
        return self._store.add(KIND, person.name, ends_s, to_json(record).decode())

    def find(self, request: HTTPServerRequest) -> Session | None:
        """Return the session of a request, and note that it is used; None: there is none."""
        secret = self.cookie.of(request)
        now_s = self._now_s()
        row = self._store.find(KIND, secret, now_s) if secret else None
        if row is None:
            return None
        record = from_json(row.record, SessionRecord)
        if record.ends_s > now_s + self._absolute_s + SKEW_S:
            return None  # it began in the future: the clock was set back, and its age is unknown
        ends_s = min(now_s + self._idle_s, record.ends_s)
        if not -SKEW_S <= ends_s - row.expires_at_s <= RENEWED * self._idle_s:
            with suppress(BackendError):  # a database that takes nothing now must not sign people out
                self._store.renew(KIND, secret, ends_s)
        return Session(secret, record)

    def last_of(self, name: str) -> SessionRecord | None:
        """Return the record of a person's newest session, used or not; None: there is none."""
        rows = self._store.of(KIND, name)
        return max(
            (from_json(each.record, SessionRecord) for each in rows),
            key=lambda record: record.ends_s,
            default=None,
        )

    def end(self, secret: str) -> None:
        """End a session, on all servers."""
        if secret:
            self._store.drop(KIND, secret)
