"""A job at a moment in its past: what was measured, known and advised then."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.structs.decisions.candidates import ParetoFront
from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Outcome, Proposal
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan
from dlrover_nb.core.structs.training.stragglers import Straggler
from dlrover_nb.core.structs.views.fit import FitReport
from dlrover_nb.core.structs.views.past_jobs import FitSummary
from dlrover_nb.core.structs.views.snapshot import MemoryLine


class HappeningKind(StrEnum):
    """Kind of what happened to a job."""

    PHASE = "phase"
    PROPOSAL = "proposal"
    DECISION = "decision"
    PLAN = "plan"  # it began to run, or could not
    LOSS = "loss"  # a node was missing
    MEMORY = "out of memory"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to a job, and when."""

    at_s: float
    kind: HappeningKind
    words: str


class Source(StrEnum):
    """What a moment is read from."""

    JOURNAL = "journal"
    DATABASE = "history database"


@dataclass(frozen=True, slots=True)
class Moment:
    """A job at a moment; what is None, or empty, was not known then, or is not in the source.

    Parameters
    ----------
    at_s
        The moment that was asked for.
    target, running
        The plan that should run, and the one that does; None while nodes are missing.
    speeds
        Throughput up to then, as (end of a span, samples per second).
    front, fit, memory
        Of the analysis as it was published then; the database has `fit_kept` instead.
    outcomes
        Of plans that were measured by then.
    stragglers, mitigations
        Nodes that were slow then, and the actions against them so far; in a journal alone.
    missing
        What the source does not have, in words; empty: nothing.
    """

    at_s: float
    source: Source
    target: ResourcePlan
    running: ResourcePlan | None = None
    phase: JobPhase | None = None
    message: str = ""
    mode: Mode | None = None
    samples_per_s: float | None = None
    n_sample_done: int | None = None
    n_sample_total: int | None = None
    speeds: tuple[tuple[float, float], ...] = ()
    proposals: tuple[Proposal, ...] = ()
    decisions: tuple[Decision, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    front: ParetoFront | None = None
    fit: FitReport | None = None
    fit_kept: FitSummary | None = None
    memory: tuple[MemoryLine, ...] = ()
    story: tuple[str, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    mitigations: tuple[Mitigation, ...] = ()
    missing: str = ""

    @property
    def open_mitigation(self) -> Mitigation | None:
        """The action against stragglers that waited for a decision then."""
        return next((each for each in reversed(self.mitigations) if each.is_open), None)

    @property
    def open_proposal(self) -> Proposal | None:
        """The proposal that waited for a decision then."""
        return next((p for p in reversed(self.proposals) if p.status == "pending"), None)
