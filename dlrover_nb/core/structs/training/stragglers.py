"""What the monitor answers about a slow node: one record, which all solutions read.

A finding says how slow a node was and for how long, never what should be done: the same straggler is answered
by another batch size, a restart or nothing, depending on the job and the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import Role


class Pace(StrEnum):
    """Over which window a node is slow."""

    TRANSIENT = "transient"  # the short one
    PERSISTENT = "persistent"  # the long one


@dataclass(frozen=True, slots=True)
class Straggler:
    """One node that is slower than the other nodes of its role.

    Parameters
    ----------
    node
        Its name.
    role
        Its role; a node is compared with nodes of this role alone.
    pace
        Over which window it is slow.
    iter_s
        Mean of its own work in one iteration over the window, for a PS in one request; without waiting.
    peers_s
        The same of the other nodes of its role, as a mean over nodes.
    window_s
        Length of the window.
    since_s
        When the work began that was found slow.
    rule
        Which rule found it, in words.
    by_rows
        Whether both times are of as many rows as its peers have in a step: its own batch was made smaller, so
        a step of it takes no longer than one of theirs, and all of them together train slower.
    """

    node: str
    role: Role
    pace: Pace
    iter_s: float
    peers_s: float
    window_s: float
    since_s: float
    rule: str
    by_rows: bool = False

    def __post_init__(self) -> None:
        for name in ("iter_s", "peers_s", "window_s"):
            _check.above_zero(name, getattr(self, name))
        _check.finite("since_s", self.since_s)

    @property
    def ratio(self) -> float:
        """How many times as long as its peers it takes."""
        return self.iter_s / self.peers_s


@dataclass(frozen=True, slots=True)
class NodeErrors:
    """Errors by which one node has ended recently; a node that is ended on purpose has none.

    Parameters
    ----------
    node, role
        Which node; it may be gone.
    n_retryable
        After which another node may go on, such as an eviction, a lost connection or a crash.
    n_unretryable
        That another node would repeat, such as data that cannot be read.
    window_s
        Length of the window that they are of.
    """

    node: str
    role: Role
    n_retryable: int
    n_unretryable: int
    window_s: float


LEAST_SPREAD = 1.2  # of the slowest worker over the fastest: less is not worth other batch sizes


@dataclass(frozen=True, slots=True)
class Spread:
    """Workers that differ for good, as on machines of several kinds: none of them is a straggler.

    Parameters
    ----------
    fastest, slowest
        Names of the two workers that differ most.
    ratio
        How many times as long the slowest takes for its own work.
    window_s
        Over which each of them kept its pace.
    """

    fastest: str
    slowest: str
    ratio: float
    window_s: float

    @property
    def words(self) -> str:
        """It as a sentence."""
        return (
            f"workers differ for good: over {self.window_s:.0f} s {self.slowest} took {self.ratio:.2f} times "
            f"as long as {self.fastest} for its own part of a step"
        )
