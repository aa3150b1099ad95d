"""People and their roles: who asks for something, and as what, in which namespace.

Identity comes from the entry (a signed-in session, a token, an account of this machine), never from the body
of a request. What a role may do is a table, `core.commands.rights`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ANY = "*"  # every namespace


class AccessRole(StrEnum):
    """What a person is to the jobs of a namespace; each role includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Its place in the order of roles."""
        return [*AccessRole].index(self)


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in a namespace, or in all (`ANY`)."""

    role: AccessRole
    namespace: str = ANY

    def holds_in(self, namespace: str) -> bool:
        """Whether it is for jobs of this namespace; clusters without namespaces have the empty one."""
        return self.namespace in {ANY, namespace}


@dataclass(frozen=True, slots=True)
class Person:
    """A person who asks, as the entry has identified them.

    Parameters
    ----------
    name
        Recorded as the author of what they ask for.
    groups
        Of the identity provider, or of the users file.
    grants
        Roles; none: they may see nothing, but where a cluster knows them itself.
    limit
        The most that they may be, and where alone, whatever they are granted here or by a cluster: of a
        token, which is weaker than its owner. None: no limit.
    """

    name: str
    groups: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    limit: Grant | None = None

    def role_in(self, namespace: str) -> AccessRole | None:
        """Return the strongest role in a namespace; None: none."""
        roles = [grant.role for grant in self.grants if grant.holds_in(namespace)]
        strongest = max(roles, key=lambda role: role.rank, default=None)
        if self.limit is None or strongest is None:
            return strongest
        return (
            min(strongest, self.limit.role, key=lambda r: r.rank) if self.limit.holds_in(namespace) else None
        )


def local_person(name: str) -> Person:
    """Return the user of an account of this machine, whom the cluster bounds: by RBAC, or by file modes."""
    return Person(name, grants=(Grant(AccessRole.ADMIN),))
