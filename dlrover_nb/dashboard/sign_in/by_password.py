"""Sign-in by the users file.

A password is checked on threads of its own, few of them: each check takes 64 MiB, and many at once must not
hold up the pages.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from dlrover_nb.dashboard.sign_in import WithoutSecret
from dlrover_nb.dashboard.sign_in.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tornado.httputil import HTTPServerRequest

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.sign_in.sessions import Session, Sessions
    from dlrover_nb.dashboard.sign_in.users import Groups, User, UsersFile

logger = logging.getLogger(__name__)

PAGE = "/sign-in"
N_CHECK, MOST_WAITING = 2, 20  # passwords that are checked at once, and tries that wait for it


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
