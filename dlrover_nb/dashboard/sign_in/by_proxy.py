"""Sign-in by a proxy that names the person in a header.

Anybody can send a header, so it counts only where the connection comes from the proxy. From anywhere else it
is an error and not ignored: it is either an attack, or a proxy that the settings do not know, and both must
be noticed. A request of the proxy without the header signs no person in.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError, NotAllowedError
from dlrover_nb.dashboard.sign_in import WithoutSecret
from dlrover_nb.dashboard.sign_in.users import check_name, with_groups

if TYPE_CHECKING:
    from tornado.httputil import HTTPServerRequest

    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.settings import ProxySettings
    from dlrover_nb.dashboard.sign_in.users import Groups

MOST_SEEN = 10_000


class ProxySignIn(WithoutSecret):
    """People whom a proxy names.

    Parameters
    ----------
    settings
        The headers, and who may send them.
    groups
        Roles of groups, the only roles there are; the group ``*`` stands for everybody.
    is_socket
        Whether the server listens on a unix socket: only the proxy reaches it, and it has no address.
    """

    page = ""

    def __init__(self, settings: ProxySettings, groups: Groups, *, is_socket: bool = False) -> None:
        self._settings, self._groups, self._is_socket = settings, groups, is_socket
        self._key = secrets.token_bytes(32)
        self._seen: dict[str, Person] = {}  # as the proxy named them last

    def identify(self, request: HTTPServerRequest) -> Person | None:
        """Return whom the proxy names."""
        settings = self._settings
        named, groups = (
            request.headers.get_list(name) if name else []
            for name in (settings.header, settings.groups_header)
        )
        peer = request.remote_ip or ""
        if not self._is_socket and not settings.is_trusted(peer):
            if named or groups:
                raise NotAllowedError(f"{peer} may not say who is signed in: it is not a trusted proxy")
            return None
        if not named:
            return None
        if len(named) > 1 or len(groups) > 1:
            raise NotAllowedError(
                f"{settings.header} must be sent once; let the proxy replace what clients send"
            )
        person = self._person(named[0], groups[0] if groups else "")
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen[person.name] = person
        return person

    def _person(self, name: str, groups: str) -> Person:
        try:
            check_name(name)
        except InvalidValueError as error:
            raise NotAllowedError(f"the proxy did not say who is signed in: {error}") from error
        of = tuple(each.strip() for each in groups.split(",") if each.strip())
        return with_groups(name, of, self._groups.get("*", ()), self._groups)

    def known(self, name: str) -> Person | None:
        """Return a person as the proxy named them last, since this server began; None: it did not."""
        return self._seen.get(name)

    def form_key(self, request: HTTPServerRequest) -> str:
        """Return a secret of this process for the person that the proxy names."""
        name = request.headers.get(self._settings.header, "")
        return hmac.new(self._key, name.encode(), "sha256").hexdigest()
