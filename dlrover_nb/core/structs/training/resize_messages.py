"""Messages between master and node about a node that is resized in place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resize:
    """To any node: it may use this from now on; apply it, and answer Resized.

    `is_ahead` says that a smaller memory limit is about to come: keep within it, and do not answer.
    """

    cpu: float
    memory_mib: int
    is_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Resized:
    """A node has applied `Resize`; the rest are the limits that are enforced now."""

    node: str
    cpu: float
    memory_mib: int
    cpu_enforced: bool
    memory_enforced: bool
