"""The controller's view: the decision part of a job's snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from dlrover_nb.core.planner import Analysis
    from dlrover_nb.core.structs.bounds import Pins
    from dlrover_nb.core.structs.deadline import DeadlineOutlook
    from dlrover_nb.core.structs.decisions import Candidate, Decision, Outcome, ParetoFront, Proposal
    from dlrover_nb.core.structs.job import Mode
    from dlrover_nb.core.structs.samples import ProfileSample
    from dlrover_nb.core.structs.snapshot import Curve, FitReport, MemoryLine, PlanMarker


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A frozen state; the fields are those of `JobSnapshot` of the same names."""

    mode: Mode
    proposals: tuple[Proposal, ...]
    decisions: tuple[Decision, ...]
    outcomes: tuple[Outcome, ...]
    markers: tuple[PlanMarker, ...]
    fit: FitReport | None
    curves: tuple[Curve, ...]
    samples: tuple[ProfileSample, ...]
    front: ParetoFront | None
    memory: tuple[MemoryLine, ...]
    story: tuple[str, ...]
    pins: Pins
    undo: Decision | None
    memory_needs: tuple[str, ...]
    under_way: str
    measuring: str
    deadline: DeadlineOutlook | None


@dataclass(frozen=True, slots=True)
class DecisionBrief:
    """The part of a published state that a list of jobs shows; `opened` waits for a decision."""

    mode: Mode
    opened: Proposal | None
    current: Candidate | None
    memory: tuple[MemoryLine, ...]
    deadline: DeadlineOutlook | None

    @classmethod
    def of(
        cls, mode: Mode, opened: Proposal | None, shown: Analysis | None, memory: tuple[MemoryLine, ...]
    ) -> Self:
        """Return it by the published analysis; None: nothing was measured."""
        current, deadline = (None, None) if shown is None else (shown.current, shown.deadline)
        return cls(mode, opened, current, memory, deadline)
