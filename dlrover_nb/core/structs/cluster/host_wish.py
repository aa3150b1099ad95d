"""The preferred host of a new node, and the one that it got."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostWish:
    """What a master asked the cluster's scheduler for, which decides.

    Parameters
    ----------
    host
        The name of the preferred one.
    why
        Why that one; a clause.
    got
        Where the node stands; empty: nowhere yet, or it is not known.
    """

    host: str
    why: str
    got: str = ""

    @property
    def words(self) -> str:
        """In one clause, with where the node stands if that is another host."""
        elsewhere = f"; the cluster placed it on {self.got}" if self.got and self.got != self.host else ""
        return f"wished on {self.host}: {self.why}{elsewhere}"
