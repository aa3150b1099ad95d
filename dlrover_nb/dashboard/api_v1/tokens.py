"""Tokens: what a program signs in with.

A token has an owner, a role, perhaps a namespace, and an end. What it may do is decided anew with each
request, from what its owner has at that moment: who is taken out of a group takes their tokens along.
The secret is shown once; the database keeps its hash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.decisions.people import ANY, AccessRole, Grant

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.history.stores.credentials import Credential, CredentialStore
    from dlrover_nb.core.structs.decisions.people import Person

KIND = "token"
PREFIX = "dlnb_"  # so that scanners of secrets and people know one when they see it
DAY_S = 86_400.0
MOST_DAYS = 366


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a token may do, whatever its owner may."""

    role: AccessRole
    namespace: str = ANY


@dataclass(frozen=True, slots=True)
class Token:
    """A token as lists show it."""

    id: str
    person: str
    role: AccessRole
    namespace: str
    expires_at_s: float


class Tokens:
    """The tokens of a team.

    Parameters
    ----------
    store
        Where they are kept.
    now_s
        The time.
    """

    def __init__(self, store: CredentialStore, now_s: Callable[[], float]) -> None:
        self._store, self._now_s = store, now_s

    def add(self, person: str, limits: Limits, days: float) -> str:
        """Make a token for a person and return its secret, which is kept nowhere.

        Raises
        ------
        InvalidValueError
            When it would last for ever, or not at all.
        """
        if not 0 < days <= MOST_DAYS:
            raise InvalidValueError(
                f"days of a token must be above 0 and at most {MOST_DAYS}, got {days:g}; renew it in time"
            )
        expires_at_s = self._now_s() + days * DAY_S
        return PREFIX + self._store.add(KIND, person, expires_at_s, to_json(limits).decode())

    def all(self, person: str | None = None) -> tuple[Token, ...]:
        """Return the tokens of a person, or of all, the first to expire first; expired ones too."""
        return tuple(map(_token, self._store.of(KIND, person)))

    def remove(self, name: str) -> Token:
        """End a token by its id, or the beginning of it, and return it.

        Raises
        ------
        NotFoundError
            When none begins so, or several do.
        """
        matches = [each for each in self._store.of(KIND) if name and each.id.startswith(name)]
        if len(matches) != 1:
            which = "several tokens have" if matches else "no token has"
            raise NotFoundError(
                f"{which} an id that begins with {shown(name)}; `server tokens list` shows them"
            )
        self._store.drop_id(KIND, matches[0].id)
        return _token(matches[0])

    def person(self, secret: str, person_of: Callable[[str], Person | None]) -> Person | None:
        """Return who a secret signs in, with the roles of both now; None: it signs no person in.

        Parameters
        ----------
        person_of
            Returns a person by name as they are now; None: there is no such person any more.
        """
        if not secret.startswith(PREFIX):
            return None
        credential = self._store.find(KIND, secret.removeprefix(PREFIX), self._now_s())
        owner = person_of(credential.person) if credential is not None else None
        if credential is None or owner is None:
            return None
        return narrowed(owner, from_json(credential.record, Limits))


def narrowed(owner: Person, limits: Limits) -> Person:
    """Return a person who is nowhere more than limits allow.

    The limit stands beside the grants and is not worked into them: a cluster that knows people grants them
    roles later on, and would else give a token all that its owner is there.
    """
    return replace(owner, limit=Grant(limits.role, limits.namespace))


def _token(credential: Credential) -> Token:
    limits = from_json(credential.record, Limits)
    return Token(credential.id, credential.person, limits.role, limits.namespace, credential.expires_at_s)
