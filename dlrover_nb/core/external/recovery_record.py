"""State of the master of an external job for its restart in another pod."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.external import StepsDone  # noqa: TC001 - a record is decoded by its annotations
from dlrover_nb.core.structs.failures import CountedError  # noqa: TC001 - as above
from dlrover_nb.core.structs.job import JobPhase  # noqa: TC001 - as above
from dlrover_nb.core.structs.resources import ResourcePlan, Role  # noqa: TC001 - as above


@dataclass(frozen=True, slots=True)
class ExternalNodeRecord:
    """A live node, as `core.external.node_set.ExternalNode`."""

    id: str
    role: Role
    cpu: float
    memory_mib: int
    since_s: float
    address: str
    is_finished: bool
    has_worked: bool


@dataclass(frozen=True, slots=True)
class ExternalRecord:
    """The lasting state of an `ExternalMaster`."""

    target: ResourcePlan
    applied: ResourcePlan | None
    change_since_s: float | None  # None: the target runs
    is_fallback: bool
    pause_s: float
    meeting: int
    members: tuple[str, ...]
    heard: tuple[str, ...]
    met_at_s: float
    phase: JobPhase
    message: str
    n_named: tuple[tuple[Role, int], ...]
    nodes: tuple[ExternalNodeRecord, ...]
    n_done: int
    told: tuple[StepsDone, ...]
    errors: tuple[CountedError, ...] = ()

    @property
    def latest_s(self) -> float:
        """The latest time that it mentions; the journal may end earlier, on a full disk."""
        since_s = [node.since_s for node in self.nodes]
        if self.change_since_s is not None:
            since_s.append(self.change_since_s)
        return max([self.met_at_s, *since_s])
