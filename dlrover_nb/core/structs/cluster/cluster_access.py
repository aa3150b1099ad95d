"""Facts about a cluster and the rights of the user, shown when a client connects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowed:
    """One kind of operation on a cluster, and whether the user may do it.

    Parameters
    ----------
    what
        Half a sentence: ``start, list and end jobs``.
    right
        As the cluster names it: ``jobs``.
    missing
        The refused rights; empty: allowed.
    optional
        Whether jobs work without it, with less information.
    """

    what: str
    right: str
    missing: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Facts and rights beside the capacity.

    Parameters
    ----------
    facts
        Names with their values, such as the server's version.
    allowed
        The operations; empty where all users have all rights.
    ask
        YAML for an administrator that grants missing rights.
    """

    facts: tuple[tuple[str, str], ...] = ()
    allowed: tuple[Allowed, ...] = ()
    ask: str = ""


NOTHING = ClusterAccess()
