"""When to look again at what was measured, and what to do with the advice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.planner import Advice, Analysis, Situation, advise, analyse
from dlrover_nb.core.structs.decisions import Prediction, ProposalKind, ProposalStatus

if TYPE_CHECKING:
    from dlrover_nb.core.controller.book import ProposalBook
    from dlrover_nb.core.controller.measurement import Measurement
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.structs.events import JobSubmitted, Remember
    from dlrover_nb.core.structs.resources import ResourcePlan

logger = logging.getLogger(__name__)


class Advisor:
    """Keeps the newest analysis of a job and the open proposal in step with it.

    What planning looks at is frozen when an event calls for it; the analysis itself is made when somebody
    needs it, once. So a view does not depend on when it was asked for, and manual mode without
    viewers fits nothing.

    Attributes
    ----------
    n_explored
        Experiments proposed since the last improvement or the user's own plan.
    """

    def __init__(
        self, settings: ControllerSettings, job: JobSubmitted, measured: Measurement, book: ProposalBook
    ) -> None:
        self._settings = settings
        self._job = job
        self._measured = measured
        self._book = book
        self._situation: Situation | None = None
        self._cache: Analysis | None = None
        self._looked_at_s = 0.0
        self._n_looked = 0
        self.n_explored = 0

    def is_due(self, plan: ResourcePlan, at_s: float) -> bool:
        """Whether new windows of a plan deserve another fit."""
        return (
            self._situation is None
            or all(s.plan != plan for s in self._situation.samples)
            or self._measured.n_seen >= self._n_looked * (1 + self._settings.refit_growth)
            or at_s >= self._looked_at_s + self._settings.refit_s
        )

    def look(self, plan: ResourcePlan, at_s: float) -> None:
        """Freeze what planning looks at, with `plan` as the present one."""
        samples = self._measured.samples
        if not samples:
            return
        self._looked_at_s, self._n_looked = at_s, self._measured.n_seen
        self._situation = Situation(
            spec=self._job.spec,
            capacity=self._job.capacity,
            dense_bytes=self._job.dense_bytes,
            embedding_dim=self._job.embedding_dim,
            plan=plan,
            samples=samples,
            n_sample_left=self._measured.n_left,
            pauses=self._measured.pauses,
            memory_mib=self._measured.memory_needs(at_s),
        )

    @property
    def analysis(self) -> Analysis | None:
        """The newest analysis, None before anything was measured."""
        if self._situation is None:
            return None
        if self._cache is None or self._cache.situation is not self._situation:
            self._cache = analyse(self._situation)
        return self._cache

    def predict(self, plan: ResourcePlan) -> Prediction | None:
        """Predict a plan; None before anything was measured."""
        return self.analysis.predict(plan) if self.analysis else None

    def reconsider(self, target: ResourcePlan, at_s: float) -> tuple[Remember, ...]:
        """Propose, keep, replace or withdraw, by the newest analysis of the plan that should run."""
        analysis = self.analysis
        if analysis is None or not self._is_current(analysis, target):
            return ()
        advice = advise(
            analysis,
            self._settings.planner,
            barred=self._book.barred,
            may_explore=self.n_explored < self._settings.max_explore,
        )
        closed = self._close_open(analysis, advice, at_s)
        if advice is None or self._book.open is not None:
            return closed
        self.n_explored = self.n_explored + 1 if advice.kind is ProposalKind.EXPLORE else 0
        logger.info("%s: proposes %s: %s", self._job.spec.name, advice.candidate.plan.short, advice.why)
        return (*closed, self._book.add(advice, analysis.current, at_s))

    def _is_current(self, analysis: Analysis, target: ResourcePlan) -> bool:
        """Whether the analysis is about the plan that runs and should run, and that plan was measured."""
        plan = analysis.situation.plan
        return plan == self._measured.plan == target and self._measured.samples_per_s(plan) is not None

    def _close_open(self, analysis: Analysis, advice: Advice | None, at_s: float) -> tuple[Remember, ...]:
        """Close the open proposal if it lost its point or a materially better one is there."""
        proposal = self._book.open
        if proposal is None:
            return ()
        now, then = analysis.current, analysis.predict(proposal.candidate.plan)
        is_dearer = proposal.candidate.cost_per_hour >= now.cost_per_hour
        if then.high < now.prediction.samples_per_s and is_dearer:
            note = "it would be slower than what runs now"
            return (self._book.move(proposal.id, ProposalStatus.EXPIRED, at_s, note),)
        if advice is None or advice.candidate.plan == proposal.candidate.plan:
            return ()
        if advice.kind is ProposalKind.EXPLORE:
            return ()
        enough = (1 + self._settings.supersede_gain) * then.samples_per_s
        if proposal.kind is ProposalKind.IMPROVE and advice.candidate.prediction.low < enough:
            return ()
        note = f"{advice.candidate.plan.short} is better"
        return (self._book.move(proposal.id, ProposalStatus.SUPERSEDED, at_s, note),)
