"""People whom a provider of OpenID Connect has signed in; see `oidc`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotAllowedError
from dlrover_nb.dashboard.sign_in import WithoutSecret
from dlrover_nb.dashboard.sign_in.oidc import Flows, who_is
from dlrover_nb.dashboard.sign_in.users import check_name, with_groups

if TYPE_CHECKING:
    from tornado.httputil import HTTPServerRequest

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.sign_in.oidc import Flow, Provider
    from dlrover_nb.dashboard.sign_in.sessions import Session, Sessions
    from dlrover_nb.dashboard.sign_in.users import Groups

PAGE = "/sign-in"


class OidcSignIn(WithoutSecret):
    """People of a provider.

    Parameters
    ----------
    provider
        Which signs them in.
    groups
        Roles of groups, the only roles there are; the group ``*`` stands for everybody.
    sessions
        Of those who have signed in.
    """

    page = PAGE

    def __init__(self, provider: Provider, groups: Groups, sessions: Sessions) -> None:
        self.provider, self.sessions, self.flows = provider, sessions, Flows()
        self._groups = groups

    def identify(self, request: HTTPServerRequest) -> Person | None:
        """Return whose session it is, with the groups of the sign-in and what those may now."""
        session = self.sessions.find(request)
        return None if session is None else self._now(session.record.person)

    def known(self, name: str) -> Person | None:
        """Return a person by their newest session; None: they have none."""
        record = self.sessions.last_of(name)
        return None if record is None else self._now(record.person)

    def form_key(self, request: HTTPServerRequest) -> str:
        """Return the secret of the session."""
        return self.sessions.cookie.of(request)

    def finish(self, code: str, flow: Flow) -> tuple[str, str]:
        """Return the secret of a new session, and whose it is, for a code of the provider."""
        token, claims = self.provider.redeem(code, flow)
        name, groups = who_is(claims, self.provider.settings)
        try:
            check_name(name)
        except InvalidValueError as error:
            raise NotAllowedError(f"the provider did not say who is signed in: {error}") from error
        return self.sessions.start(with_groups(name, groups, (), self._groups), note=token), name

    def leave(self, session: Session, back: str) -> str:
        """End a session; return where the browser goes to leave the provider too, or empty."""
        self.sessions.end(session.secret)
        try:
            return self.provider.end_url(session.record.note, back)
        except DlroverError:
            return ""  # the provider is away; here the person is signed out

    def _now(self, person: Person) -> Person:
        return with_groups(person.name, person.groups, self._groups.get("*", ()), self._groups)
