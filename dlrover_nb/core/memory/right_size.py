"""How much memory a node should have where it has far more than it will ever hold.

Users ask for too much: over 80 % of the jobs that DLRover-RM found used less than half of what they had
reserved (section 2.2). A smaller request must not kill a node, so it rests on the most that it can hold by
the end: the upper end of the forecast, and never less than `ceiling`, which is above every law. On top come
a margin for peaks between two reports and for what no report has shown yet (an evaluation), and on a
parameter server room for a copy of its parameters, without which a checkpoint stops training until it is
written.

Parameter servers share what they hold: with fewer of them each holds more. What part of it is each one's own
is not known, so with more of them none is counted on to hold less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.memory.line import step_up
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.structs.resources import RolePlan

MARGIN = 1.2  # times the most that is expected
LEAST_MIB = 1024  # of a node: a Python process with its libraries takes some hundred MiB before any work
LESS = 0.75  # of what a node has: a request that is not this much smaller is no change


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What each node of a role holds, measured and expected.

    Parameters
    ----------
    n_node
        Nodes of the role when it was measured.
    used_mib
        The most that one of them held so far.
    most_mib
        The most that one of them will hold by the end of the job.
    copy_mib
        A copy of its parameters by then, for checkpoints.
    least_mib
        The least that one may be given, by other evidence: OOM kills, the user's refusal.
    """

    role: Role
    n_node: int
    used_mib: float
    most_mib: float
    copy_mib: float = 0.0
    least_mib: int = LEAST_MIB

    def __post_init__(self) -> None:
        _check.at_least("n_node", self.n_node, 1)
        _check.at_least("used_mib", self.used_mib, 0)
        _check.at_least("most_mib", self.most_mib, self.used_mib)
        _check.at_least("copy_mib", self.copy_mib, 0)

    @property
    def shared_mib(self) -> int:
        """What all parameter servers should have together, however few; 0 of workers, which share nothing."""
        return step_up(self.n_node * self._each_mib) if self.role is Role.PS else 0

    @property
    def wanted_mib(self) -> int:
        """What each of as many nodes should have."""
        return step_up(max(self._each_mib, self.least_mib))

    def held_by(self, n_node: int) -> float:
        """Return the most that each of `n_node` nodes will hold."""
        return self.most_mib * (max(self.n_node / n_node, 1.0) if self.role is Role.PS else 1.0)

    def lowered(self, now: RolePlan) -> int | None:
        """Return the memory for each of as many nodes as `now` has; None where that is not clearly less."""
        wanted = max(self.wanted_mib, step_up(self.shared_mib / now.count))
        return wanted if wanted <= LESS * now.memory_mib else None

    @property
    def _each_mib(self) -> float:
        return MARGIN * self.most_mib + self.copy_mib

    def words(self, before: RolePlan, after: RolePlan) -> str:
        """Say why each node gets less."""
        name = "PS" if self.role is Role.PS else "worker"
        copy = f", and {self.copy_mib:,.0f} MiB for a copy of its parameters" if self.copy_mib >= 1 else ""
        of = "" if after.count >= self.n_node or self.role is Role.WORKER else f" with {self.n_node} of them"
        return (
            f"Each {name} gets {after.memory_mib:,} instead of {before.memory_mib:,} MiB: it used "
            f"{self.used_mib:,.0f} at most{of}, will use at most {self.most_mib:,.0f} by the end, and keeps "
            f"a margin of {MARGIN - 1:.0%}{copy}."
        )
