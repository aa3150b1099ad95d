"""The clusters as each person sees them: a cluster that knows people decides itself what each of them may.

The server's own account may read, and act as the people whom its cluster lets it name; it may change nothing
in its own name. Rejected: one account with the rights of the strongest person, and this server's table of
rights in front of it. One forgotten check would then be everybody's right to everything (a confused
deputy).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.client.cluster import KnowsPeople
from dlrover_nb.core.structs.decisions.people import Grant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.structs.decisions.people import AccessRole, Person

KEPT_S = 60.0  # an answer about a person's rights; the cluster checks each command anyway
N_KEPT = 256


@dataclass(frozen=True, slots=True)
class _Acting:
    """A cluster as one person sees it, and what they are there."""

    cluster: Cluster
    role: AccessRole | None
    asked_s: float


class ActingClusters:
    """One cluster as each person sees it.

    Parameters
    ----------
    core
        The cluster as the server's account.
    groups
        The groups that this account may name; others of a person are left out.
    monotonic
        A clock that is never set back.
    """

    def __init__(
        self,
        core: KnowsPeople,
        groups: Collection[str] = (),
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core, self._groups, self._monotonic = core, frozenset(groups), monotonic
        self._known: dict[tuple[str, tuple[str, ...]], _Acting] = {}
        self._lock = threading.Lock()

    def cluster(self, person: Person) -> Cluster:
        """Return the cluster for the commands of a person.

        Raises
        ------
        BackendError
            When it does not answer, or does not let the server act as this person.
        """
        return self._acting(person).cluster

    def known(self, person: Person, namespace: str) -> Person:
        """Return a person with the role that the cluster gives them; where a grant is weaker, with that.

        Raises
        ------
        BackendError
            As `cluster`.
        """
        role, granted = self._acting(person).role, person.role_in(namespace)
        if role is not None and granted is not None and granted.rank < role.rank:
            role = granted
        return replace(person, grants=() if role is None else (Grant(role, namespace),))

    def _acting(self, person: Person) -> _Acting:
        groups = tuple(group for group in person.groups if group in self._groups)
        key, now_s = (person.name, groups), self._monotonic()
        with self._lock:
            cached = self._known.get(key)
        if cached is not None and now_s - cached.asked_s < KEPT_S:
            return cached
        cluster = self._core.acting_as(replace(person, groups=groups)) if cached is None else cached.cluster
        acting = _Acting(cluster, _role(cluster), now_s)
        with self._lock:
            self._known[key] = acting
            for oldest in [*self._known][: max(0, len(self._known) - N_KEPT)]:
                del self._known[oldest]
        return acting


def _role(cluster: Cluster) -> AccessRole | None:
    assert isinstance(cluster, KnowsPeople)
    return cluster.role_of_user()
