"""The controller's view: the decision part of a job's snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.cluster.host_load import HostLoad
    from dlrover_nb.core.structs.decisions.candidates import Candidate, ParetoFront
    from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Outcome, Proposal
    from dlrover_nb.core.structs.job.early_stopping import StopForecast
    from dlrover_nb.core.structs.job.spec_choices import Mode
    from dlrover_nb.core.structs.plan.bounds import Pins
    from dlrover_nb.core.structs.plan.budget import BudgetOutlook
    from dlrover_nb.core.structs.plan.deadline import DeadlineOutlook
    from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace
    from dlrover_nb.core.structs.training.samples import ProfileSample
    from dlrover_nb.core.structs.training.stragglers import NodeErrors, Straggler
    from dlrover_nb.core.structs.views.fit import Curve, FitReport
    from dlrover_nb.core.structs.views.snapshot import MemoryLine, PlanMarker


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
    stragglers: tuple[Straggler, ...]
    mitigations: tuple[Mitigation, ...]
    node_errors: tuple[NodeErrors, ...]
    queue: QueuePlace | None = None
    stop: StopForecast | None = None
    host: HostLoad | None = None
    budget: BudgetOutlook | None = None
    budget_total: float | None = None  # as it was changed last


@dataclass(frozen=True, slots=True)
class DecisionBrief:
    """The part of a state that is at hand; `opened` and `mitigation` wait for answers."""

    mode: Mode
    opened: Proposal | None
    analysis: Analysis | None  # None: nothing was measured
    memory: tuple[MemoryLine, ...]
    undo: Decision | None
    mitigation: Mitigation | None = None
    measuring: str = ""
    budget: BudgetOutlook | None = None

    @property
    def current(self) -> Candidate | None:
        """The plan of the newest fit."""
        return None if self.analysis is None else self.analysis.current

    @property
    def deadline(self) -> DeadlineOutlook | None:
        """What can be promised of the deadline."""
        return None if self.analysis is None else self.analysis.deadline
