"""When to look again at what was measured, and what to do with the advice."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.auto_policy import over_budget
from dlrover_nb.core.controller.protection import Protection
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.planner import Situation, analyse, auto_scale, break_even_of, fitted, post_scale
from dlrover_nb.core.structs.decisions import Prediction, ProposalKind, ProposalStatus
from dlrover_nb.core.structs.events import Remember

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.controller.book import ProposalBook
    from dlrover_nb.core.controller.measurement import Measurement
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.planner import Advice, Analysis, Limits
    from dlrover_nb.core.structs.decisions import BreakEven, Proposal
    from dlrover_nb.core.structs.events import JobSubmitted
    from dlrover_nb.core.structs.resources import ResourcePlan

logger = logging.getLogger(__name__)


class Advisor:
    """Keeps the newest analysis of a job and the open proposal in step with it.

    What planning looks at is frozen when an event calls for it; the analysis itself is made when somebody
    needs it, once. So a view does not depend on when it was asked for, and manual mode without
    viewers fits nothing.

    Attributes
    ----------
    job, pins
        The job with the room that it has now, and what of its plans is fixed.
    protection
        What is known of its need of memory.
    n_explored
        Experiments proposed since the last improvement or the user's own plan.
    n_fit
        Fits so far: most of what a job costs its master.
    """

    def __init__(
        self, settings: ControllerSettings, job: JobSubmitted, measured: Measurement, book: ProposalBook
    ) -> None:
        self._settings = settings
        self._measured = measured
        self._book = book
        self._situation: Situation | None = None
        self._seen: frozenset[ResourcePlan] = frozenset()  # plans with samples in it
        self._cache: Analysis | None = None
        self._flip: Callable[[], BreakEven | None] | None = None
        self._looked_at_s = self._since_s = job.at_s
        self._n_looked = 0
        self.job, self.pins = job, job.spec.pins
        self.protection = Protection(settings, measured)
        self.n_explored = 0
        self.n_fit = 0

    def is_due(self, plan: ResourcePlan, at_s: float) -> bool:
        """Whether new windows of a plan deserve another fit."""
        growth = self._settings.refit_growth
        return (
            self._situation is None
            or plan not in self._seen
            or self._measured.n_seen >= self._n_looked * (1 + growth)
            or at_s >= self._looked_at_s + max(self._settings.refit_s, growth * (at_s - self._since_s))
        )

    def look(self, plan: ResourcePlan, at_s: float) -> None:
        """Freeze what planning looks at, with `plan` as the present one.

        With fits of similar jobs that is possible before anything was measured.
        """
        samples = self._measured.samples
        if self._situation is None or self._situation.plan != plan:
            self._since_s = at_s
        if not samples and self.job.prior is None:
            return
        self._looked_at_s, self._n_looked = at_s, self._measured.n_seen
        self._seen = frozenset(sample.plan for sample in samples)
        self.protection.look(at_s)
        deadline_s = self.job.spec.deadline_s
        self._situation = Situation(
            spec=self.job.spec,
            capacity=self.job.capacity,
            dense_bytes=self.job.dense_bytes,
            embedding_dim=self.job.embedding_dim,
            plan=plan,
            samples=samples,
            n_sample_left=self._measured.n_left,
            pauses=self._measured.pauses,
            memory_mib=self.protection.floors(plan, self.pins),
            pins=self.pins,
            prior=self.job.prior,
            deadline_left_s=None if deadline_s is None else self.job.at_s + deadline_s - at_s,
        )

    @property
    def analysis(self) -> Analysis | None:
        """The newest analysis, None before anything was measured."""
        if self._situation is None:
            return None
        if self._cache is None or self._cache.situation is not self._situation:
            self._cache = analyse(self._situation, model=self._model(self._situation))
        return self._cache

    def _model(self, situation: Situation) -> ThroughputModel:
        """Return the last fit where it is of the same samples, else a new one."""
        if self._cache is not None and self._cache.situation.samples == situation.samples:
            return self._cache.model
        self.n_fit += 1
        return fitted(situation)

    @property
    def has_analysis(self) -> bool:
        """Whether anything was measured, so that plans can be predicted."""
        return self._situation is not None

    def adopt(self, at_s: float) -> str:
        """Begin with what similar jobs knew; return why it is left out where that cannot be."""
        self.look(self.job.spec.plan, at_s)
        try:
            self.analysis  # noqa: B018 - made here, where a prior of another version can still be left out
        except InvalidValueError as error:
            self.job, self._situation = replace(self.job, prior=None), None
            return str(error)
        return ""

    def predict(self, plan: ResourcePlan) -> Prediction | None:
        """Predict a plan; None before anything was measured."""
        return self.analysis.predict(plan) if self.analysis else None

    def summary(self, at_s: float) -> tuple[Remember, ...]:
        """Return what the fit knows, for the history; nothing before anything was measured."""
        if self.analysis is None:
            return ()
        return (Remember(at_s, self.analysis.model.summary(at_s)),)

    def reconsider(
        self, target: ResourcePlan, at_s: float, *, limits: Limits | None, may_replace: bool = False
    ) -> tuple[Remember, ...]:
        """Propose, keep, replace or withdraw, by the newest analysis of the plan that should run.

        Parameters
        ----------
        limits
            Of auto mode; None where a user decides.
        may_replace
            Auto mode will never apply the open proposal: any that it may apply is better.
        """
        self._refresh(target, at_s)
        analysis, proposal = self.analysis, self._book.open
        is_protected = proposal is not None and proposal.kind is ProposalKind.PROTECT
        if analysis is None or is_protected or not self._is_current(analysis, target):
            return ()

        decide = self.decide(limits)
        advice = decide(analysis)
        closed = self._close_open(analysis, advice, at_s, may_replace=may_replace)
        if advice is None or self._book.open is not None:
            return closed
        self.n_explored = self.n_explored + 1 if advice.kind is ProposalKind.EXPLORE else 0
        proposed = self._propose(advice, analysis, at_s)
        self._flip = partial(break_even_of, analysis, advice, decide)
        explained = self.explain(at_s) if limits is None else ()
        return (*closed, *(explained or (proposed,)))

    def decide(
        self, limits: Limits | None, *, may_explore: bool = True
    ) -> Callable[[Analysis], Advice | None]:
        """Return how advice is made at this moment: of an analysis, or of a supposed one.

        Parameters
        ----------
        may_explore
            False leaves out experiments, also where another may be proposed.
        """
        return partial(
            auto_scale,
            settings=self._settings.planner,
            rejected_plans=dict(self._book.rejected_plans),
            may_explore=may_explore and self.may_explore,
            limits=limits,
        )

    @property
    def may_explore(self) -> bool:
        """Whether another experiment may be proposed."""
        return self.n_explored < self._settings.max_explore

    def is_measured(self, target: ResourcePlan) -> bool:
        """Whether the newest analysis is about the plan that should run, and that plan was measured."""
        return self.analysis is not None and self._is_current(self.analysis, target)

    def explain(self, at_s: float) -> tuple[Remember, ...]:
        """Say of the newest proposal what would change the planner's mind: for people, so not in auto mode.

        That asks for advice a hundred times over, which is too much for a plan that nobody looks at.
        """
        flip, self._flip = self._flip, None
        return self._book.explain(flip(), at_s) if flip is not None else ()

    def protect(self, target: ResourcePlan, at_s: float) -> tuple[Remember, ...]:
        """Propose more memory where nodes need it, before all other advice, or withdraw it."""
        self.protection.look(at_s)
        self.protection.advised()
        needs, proposal = self.protection.needs(target), self._book.open
        is_protected = proposal is not None and proposal.kind is ProposalKind.PROTECT
        if not needs:
            lost = proposal is not None and is_protected
            return self._expire(at_s, "memory is no longer running out") if lost else ()
        self._refresh(target, at_s)
        analysis = self.analysis
        advice = post_scale(analysis, needs, rejected_plans=self._book.rejected_plans) if analysis else None
        if analysis is None or advice is None:
            return ()
        if (
            proposal is not None
            and is_protected
            and _suffices(proposal.candidate.plan, advice.candidate.plan)
        ):
            return ()
        closed = self._supersede(at_s, "memory comes first") if proposal is not None else ()
        return (*closed, self._propose(advice, analysis, at_s))

    def _refresh(self, target: ResourcePlan, at_s: float) -> None:
        """Look again where plan, pins or room are no longer those of the newest analysis."""
        s = self._situation
        if s is None or (s.plan, s.pins, s.capacity) != (target, self.pins, self.job.capacity):
            self.look(target, at_s)

    def _propose(self, advice: Advice, analysis: Analysis, at_s: float) -> Remember:
        logger.info("%s: proposes %s: %s", self.job.spec.name, advice.candidate.plan.short, advice.why)
        note, self._flip = over_budget(advice.candidate.cost_per_hour, self.job.spec), None
        return self._book.add(advice, analysis.current, at_s, note=note)

    def _is_current(self, analysis: Analysis, target: ResourcePlan) -> bool:
        """Whether the analysis is about the plan that runs and should run, and that plan was measured."""
        plan = analysis.situation.plan
        return plan == self._measured.plan == target and self._measured.samples_per_s(plan) is not None

    def _close_open(
        self, analysis: Analysis, advice: Advice | None, at_s: float, *, may_replace: bool
    ) -> tuple[Remember, ...]:
        """Close the open proposal if it lost its point or a materially better one is there."""
        proposal = self._book.open
        if proposal is None:
            return ()
        now, then = analysis.current, analysis.predict(proposal.candidate.plan)
        is_dearer = proposal.candidate.cost >= now.cost
        keeps_pins = not self.pins.allows(now.plan)  # proposed for the pins, not for its speed
        if then.high < now.prediction.samples_per_s and is_dearer and not keeps_pins:
            return self._expire(at_s, "it would be slower than what runs now")
        if advice is None or advice.candidate.plan == proposal.candidate.plan:
            return ()
        if may_replace:
            return self._supersede(at_s, f"{advice.candidate.plan.short} may be applied by auto mode")
        is_better = self._is_better(advice, proposal, then)
        return self._supersede(at_s, f"{advice.candidate.plan.short} is better") if is_better else ()

    def _is_better(self, advice: Advice, proposal: Proposal, then: Prediction) -> bool:
        """Whether advice is worth more than a click that is perhaps on its way."""
        if advice.kind is ProposalKind.EXPLORE:
            return False
        enough = (1 + self._settings.supersede_gain) * then.samples_per_s
        return proposal.kind is not ProposalKind.IMPROVE or advice.candidate.prediction.low >= enough

    def _expire(self, at_s: float, note: str) -> tuple[Remember, ...]:
        return self._book.close_open(ProposalStatus.EXPIRED, at_s, note)

    def _supersede(self, at_s: float, note: str) -> tuple[Remember, ...]:
        return self._book.close_open(ProposalStatus.SUPERSEDED, at_s, note)


def _suffices(open_plan: ResourcePlan, wanted: ResourcePlan) -> bool:
    """Whether an open proposal gives at least the memory that is needed now."""
    return (
        open_plan.worker.memory_mib >= wanted.worker.memory_mib
        and open_plan.ps.memory_mib >= wanted.ps.memory_mib
    )
