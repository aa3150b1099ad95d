"""A request to the API after its parsing: who asks, for what, with which values; and what it is answered."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.errors import NotAllowedError
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.common.team import Team

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Parameters
    ----------
    team
        What the server shares.
    person
        Who asks.
    path
        Values of the route's path, decoded.
    query, body
        Records of the route's kinds; None: the route has none.
    key
        Idempotency key as it was sent; empty: none.
    version
        Version that the caller saw, by ``If-Match``; empty: whichever it is.
    """

    team: Team
    person: Person
    path: Mapping[str, str] = field(default_factory=dict)
    query: object = None
    body: object = None
    key: str = ""
    version: str = ""

    @property
    def asker(self) -> Asker:
        """Who asks, through this entry."""
        return Asker(self.person, Entry.API)

    @property
    def own_key(self) -> str:
        """The idempotency key as the audit knows it: of this person alone, and as long as a key may be."""
        if not self.key:
            return ""
        return hashlib.sha256(f"{Entry.API}\n{self.person.name}\n{self.key}".encode()).hexdigest()

    def job(self) -> JobHandle:
        """Return the job of the path, as the person who asks."""
        return self.team.job(self.path["cluster"], self.path["name"], self.asker)

    def asked(self, kind: type[T]) -> T:
        """Return the query as the record that the route declares."""
        assert isinstance(self.query, kind)
        return self.query

    def sent(self, kind: type[T]) -> T:
        """Return the body as the record that the route declares."""
        assert isinstance(self.body, kind)
        return self.body

    def visible(self) -> tuple[str, ...]:
        """Return the keys of the clusters that the person may see."""
        return tuple(key for key in self.team.clusters if self.team.may(self.person, Action.VIEW, key))

    def only_visible(self, key: str) -> tuple[str, ...]:
        """Return one key if the person may see that cluster, all visible ones for an empty key.

        Raises
        ------
        NotAllowedError
            When they may not.
        NotFoundError
            When there is no such cluster.
        """
        if not key:
            return self.visible()
        self.team.cluster(key)
        if key not in self.visible():
            raise NotAllowedError(f"you have no role on cluster {key}; ask an administrator for one")
        return (key,)


@dataclass(frozen=True, slots=True)
class Result:
    """What a call is answered with; `version` is sent as the ``ETag`` where there is one."""

    answer: object
    version: str = ""
