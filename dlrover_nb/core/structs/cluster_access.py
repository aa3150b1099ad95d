"""What somebody is told of a cluster when he connects: facts about it, and what he may do there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowed:
    """One thing that people do on a cluster, and whether this user may.

    Parameters
    ----------
    what
        Half a sentence: ``start, list and end jobs``.
    right
        As the cluster names it: ``jobs``.
    missing
        What of it is refused; empty: it is allowed.
    optional
        Whether all works without it, with less to show.
    """

    what: str
    right: str
    missing: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """What there is to say beside capacity.

    Parameters
    ----------
    facts
        Names with their values, such as the server's version.
    allowed
        What may be done; empty where everybody may do all.
    ask
        What to hand to an administrator, as YAML, when something is missing that jobs need.
    """

    facts: tuple[tuple[str, str], ...] = ()
    allowed: tuple[Allowed, ...] = ()
    ask: str = ""


NOTHING = ClusterAccess()
