"""Sign-in by the users file.

A password is checked on threads of its own, few of them: each check takes 64 MiB, and many at once must not
hold up the pages.

A client must wait before the next try, by name and by address. Tries are counted when they begin, so that
many at once gain nothing, and forgotten after a success. The first few are free. Then each doubles the wait:
per name up to a minute, so that no person is locked out for long by strangers who try their name, per address
up to a quarter of an hour. Memory is bounded: the tries that are longest ago are forgotten first. A lock of
an account after so many tries was rejected: with a name alone, an attacker could keep its owner out.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.dashboard.sign_in import WithoutSecret

if TYPE_CHECKING:
    from collections.abc import Callable

    from tornado.httputil import HTTPServerRequest

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.sign_in.sessions import Session, Sessions
    from dlrover_nb.dashboard.sign_in.users import Groups, User, UsersFile

logger = logging.getLogger(__name__)

PAGE = "/sign-in"
N_CHECK, MOST_WAITING = 2, 20  # passwords that are checked at once, and tries that wait for it


N_FREE = 4
FORGOTTEN_S = 3600.0  # after a last try
MOST_KNOWN = 10_000
NAME_S, ADDRESS_S = 60.0, 900.0  # the longest waits


@dataclass(frozen=True, slots=True)
class Tries:
    """Tries in a row without a success, and when the last one was."""

    n: int = 0
    at_s: float = 0.0

    def wait_s(self, now_s: float, longest_s: float) -> float:
        """Return for how long no further try is taken; 0: one is."""
        if self.n < N_FREE:
            return 0.0
        pause_s = min(2.0 ** min(self.n - N_FREE, 30), longest_s)
        return max(0.0, self.at_s + pause_s - now_s)


class Throttle:
    """Counts tries; for one thread. `now_s` passes monotonically."""

    def __init__(self, most_known: int = MOST_KNOWN) -> None:
        self._tries: OrderedDict[tuple[str, str], Tries] = OrderedDict()
        self._most = most_known

    def __len__(self) -> int:
        return len(self._tries)

    def begin(self, name: str, address: str, now_s: float) -> float:
        """Count a try and return 0, or return the seconds to wait where none may be made now."""
        keys = {("name", name.casefold()): NAME_S, ("address", address): ADDRESS_S}
        wait_s = max(self._of(key, now_s).wait_s(now_s, longest) for key, longest in keys.items())
        if wait_s > 0:
            return wait_s
        for key in keys:
            self._tries[key] = Tries(self._of(key, now_s).n + 1, now_s)
            self._tries.move_to_end(key)
        while len(self._tries) > self._most:
            self._tries.popitem(last=False)
        return 0.0

    def succeeded(self, name: str, address: str) -> None:
        """Forget the tries of a person who has signed in, but of the address this one alone.

        Else a person with an account could try the passwords of others, and sign in between.
        """
        self._tries.pop(("name", name.casefold()), None)
        key = ("address", address)
        if key in self._tries:
            self._tries[key] = replace(self._tries[key], n=self._tries[key].n - 1)

    def _of(self, key: tuple[str, str], now_s: float) -> Tries:
        tries = self._tries.get(key, Tries())
        return tries if now_s - tries.at_s < FORGOTTEN_S else Tries()


class PasswordSignIn(WithoutSecret):
    """People of the users file, who sign in on a page.

    Parameters
    ----------
    users
        The file.
    groups
        Roles of groups.
    sessions
        Of those who have signed in.
    address_of
        Returns the address that a request comes from, behind proxies too.
    """

    page = PAGE

    def __init__(
        self,
        users: UsersFile,
        groups: Groups,
        sessions: Sessions,
        address_of: Callable[[HTTPServerRequest], str],
    ) -> None:
        self.users, self.sessions, self.address_of = users, sessions, address_of
        self.throttle = Throttle()
        self.checks = ThreadPoolExecutor(N_CHECK, thread_name_prefix="dlrover-sign-in")
        self.n_waiting = 0
        self._groups = groups

    def identify(self, request: HTTPServerRequest) -> Person | None:
        """Return whose session it is, as they are in the file now; a change there ends it."""
        session = self.sessions.find(request)
        if session is None:
            return None
        name = session.record.person.name
        user = self.users.find(name)
        if user is None or user.stamp != session.record.stamp:
            self.sessions.end(session.secret)
            logger.info("a session of %s ends: the user was changed or removed", name)
            return None
        return user.person(name, self._groups)

    def known(self, name: str) -> Person | None:
        """Return a person in the file."""
        user = self.users.find(name)
        return None if user is None else user.person(name, self._groups)

    def form_key(self, request: HTTPServerRequest) -> str:
        """Return the secret of the session."""
        return self.sessions.cookie.of(request)

    def begin(self, name: str, user: User) -> str:
        """Begin a session and return its secret."""
        return self.sessions.start(user.person(name, self._groups), stamp=user.stamp)

    def leave(self, session: Session, back: str) -> str:  # noqa: ARG002 - as other ways take it
        """End a session; nothing else has to be left."""
        self.sessions.end(session.secret)
        return ""

    def close(self) -> None:
        """End the threads."""
        self.checks.shutdown(wait=True, cancel_futures=True)
