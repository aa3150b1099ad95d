"""`CredentialStore`: sessions and tokens in the history's database, so that all servers of a team know them.

A secret is 256 random bits that only its holder has: the database keeps its SHA-256, so that a reader of the
database or of a backup cannot sign in with it. A slow hash with salt, as for passwords, was rejected: it
protects what people choose, and would cost each request 50 ms to check what cannot be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.tables import credentials

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import ColumnElement

N_BYTE = 32  # of a secret
PERSON_LENGTH = 128


@dataclass(frozen=True, slots=True)
class Credential:
    """What a secret stands for.

    Parameters
    ----------
    id
        Of the secret, which cannot be told from it: for lists, and to end it.
    kind
        ``session`` or ``token``: one is never taken for the other.
    person
        Whose it is.
    expires_at_s
        From this time on it counts for nothing.
    record
        What its maker keeps with it, as text.
    """

    id: str
    kind: str
    person: str
    expires_at_s: float
    record: str


class CredentialStore(Store):
    """Sessions and tokens."""

    def add(self, kind: str, person: str, expires_at_s: float, record: str) -> str:
        """Keep a new credential and return its secret, which is kept nowhere.

        Raises
        ------
        InvalidValueError
            When the person's name does not fit: two long names must not become one.
        """
        if not 0 < len(person) <= PERSON_LENGTH:
            raise InvalidValueError(
                f"a person's name has 1 to {PERSON_LENGTH} characters, got {shown(person)}; use a shorter one"
            )
        secret = secrets.token_urlsafe(N_BYTE)
        row = {"kind": kind, "person": person, "expires_at_s": expires_at_s, "record": record}
        with self._database.writing() as connection:
            connection.execute(insert(credentials).values(id=credential_id(secret), **row))
        return secret

    def find(self, kind: str, secret: str, at_s: float) -> Credential | None:
        """Return what a secret stands for at a time; None: for nothing, or not any more."""
        rows = self._database.rows(select(credentials).where(_is(kind, secret)))
        valid = [_credential(row) for row in rows if row.expires_at_s > at_s]
        return valid[0] if valid else None

    def renew(self, kind: str, secret: str, expires_at_s: float) -> None:
        """Let a credential expire at another time, if it is there."""
        with self._database.writing() as connection:
            connection.execute(update(credentials).where(_is(kind, secret)).values(expires_at_s=expires_at_s))

    def of(self, kind: str, person: str | None = None) -> tuple[Credential, ...]:
        """Return the credentials of a kind, the first to expire first: of one person, or of all."""
        wanted = select(credentials).where(credentials.c.kind == kind)
        if person is not None:
            wanted = wanted.where(credentials.c.person == person)
        rows = self._database.rows(wanted.order_by(credentials.c.expires_at_s, credentials.c.id))
        return tuple(map(_credential, rows))

    def drop(self, kind: str, secret: str) -> bool:
        """End one by its secret; whether it was there."""
        return self._drop(_is(kind, secret)) > 0

    def drop_id(self, kind: str, id: str) -> bool:  # noqa: A002 - as `Credential` names it
        """End one by its id; whether it was there."""
        return self._drop((credentials.c.kind == kind) & (credentials.c.id == id)) > 0

    def drop_expired(self, at_s: float) -> int:
        """Remove those of all kinds that have expired, and return how many there were."""
        return self._drop(credentials.c.expires_at_s <= at_s)

    def _drop(self, which: ColumnElement[bool]) -> int:
        with self._database.writing() as connection:
            return connection.execute(delete(credentials).where(which)).rowcount


def credential_id(secret: str) -> str:
    """Return the id of a secret; whatever text a client sends has one."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _is(kind: str, secret: str) -> ColumnElement[bool]:
    return (credentials.c.kind == kind) & (credentials.c.id == credential_id(secret))


def _credential(row: Any) -> Credential:  # noqa: ANN401 - a row of a Select has no useful static type
    return Credential(row.id, row.kind, row.person, row.expires_at_s, row.record)
