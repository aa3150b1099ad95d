"""What to propose: the open proposal is kept consistent with the newest analysis and the need of memory.

Where a user decides, advice also says what would change it. That computes advice a hundred times, so auto
mode omits it until it refuses a proposal.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.auto_policy import REPLACEABLE, over_budget, over_rest
from dlrover_nb.core.controller.plans.bound_policy import BoundPolicy
from dlrover_nb.core.planner.advising.sensitivity import break_even_of
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.planner.finish_chance import rescues_deadline
from dlrover_nb.core.planner.plan_memory import lacks_memory
from dlrover_nb.core.planner.policies.policy import PolicyContext
from dlrover_nb.core.planner.policies.stages import post_scale
from dlrover_nb.core.planner.predictions.quality import over_bound
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.training.shards import BatchChoice
from dlrover_nb.core.structs.views.events import Mitigate, Remember

if TYPE_CHECKING:
    from dlrover_nb.core.controller.analyst import Analyst
    from dlrover_nb.core.controller.measured.measurement import Measurement
    from dlrover_nb.core.controller.plans.auto_mode import AutoMode
    from dlrover_nb.core.controller.plans.book import ProposalBook
    from dlrover_nb.core.controller.plans.questions import KnownAdvice
    from dlrover_nb.core.controller.plans.rollouts import Rollouts
    from dlrover_nb.core.controller.protection import Protection
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.planner.advising.advice import Advice, Limits
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.planner.policies.policy import Policy
    from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
    from dlrover_nb.core.structs.decisions.decisions import BreakEven, Proposal
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

logger = logging.getLogger(__name__)

Remembered = tuple[Remember, ...]
Advised = tuple[Remember | Mitigate, ...]


@dataclass(frozen=True, slots=True)
class _Advised:
    """Advice for which it was not yet computed what would change it."""

    analysis: Analysis
    advice: Advice
    decide: BoundPolicy
    known: tuple[BreakEven | None, ...] = ()  # the result, where another process has computed it

    def break_even(self) -> BreakEven | None:
        return self.known[0] if self.known else break_even_of(self.analysis, self.advice, self.decide)


class Advisor:
    """Proposes plans of one job.

    Parameters
    ----------
    settings
        When a plan is worth a proposal.
    state, rollouts, auto
        The job, its plans through time, and what auto mode may do.
    measured, analyst, protection
        Measurements of its workers, its speed, and its need of memory.
    book
        Its proposals.
    policy
        Chooses the plan to propose.
    """

    def __init__(  # noqa: PLR0913 - the parts that it reads, all by keyword
        self,
        settings: ControllerSettings,
        *,
        state: JobState,
        rollouts: Rollouts,
        auto: AutoMode,
        measured: Measurement,
        analyst: Analyst,
        protection: Protection,
        book: ProposalBook,
        policy: Policy,
    ) -> None:
        self._settings, self._state, self._rollouts, self._auto = settings, state, rollouts, auto
        self._measured, self._analyst = measured, analyst
        self._protection, self._book = protection, book
        self._policy = policy
        self._unexplained: _Advised | None = None
        self._batches: tuple[tuple[str, int], ...] = ()  # the last that were ordered
        self._n_explored = 0  # experiments proposed since the last improvement or the user's own plan

    @property
    def may_change(self) -> bool:
        """Whether a change of plan is possible now."""
        return self._rollouts.current is None and not self._state.is_over

    @property
    def n_explored(self) -> int:
        """Experiments in a row, where that is the maximum; else 0, as in auto mode: their value ends them."""
        return 0 if self._may_explore else self._n_explored

    def allow_experiments(self) -> None:
        """Reset the count of experiments: a user has set a plan or asked for advice."""
        self._n_explored = 0

    def prepare(self, at_s: float) -> BoundPolicy | None:
        """Return what `reconsider` would ask now, on a situation that is made up to date; None: nothing.

        Nothing is proposed in manual mode, and while no change of plan is possible.
        """
        if self._state.mode is Mode.MANUAL or not self.may_change:
            return None
        self._analyst.refresh(self._rollouts.target, at_s)
        return self.decide(self._auto.bounds(at_s))

    def reconsider(
        self, at_s: float, policy: BoundPolicy | None = None, advice: KnownAdvice | None = None
    ) -> Advised:
        """Propose, keep, replace or withdraw a plan, by the newest analysis of the target plan.

        Where auto mode will never apply the open proposal, any that it may apply is better.

        Parameters
        ----------
        policy
            What `prepare` returned when the advice was requested; None: it is called now.
        advice
            The advice; None: it is computed here.
        """
        decide = policy or self.prepare(at_s)
        if decide is None:
            return ()
        proposal = self._book.open
        refusal = self._auto.refusal(proposal, at_s) if proposal and self._auto.is_on else None
        may_replace = refusal is not None and refusal.rule in REPLACEABLE
        analysis = self._analyst.analysis
        is_protected = proposal is not None and proposal.kind is ProposalKind.PROTECT
        if analysis is None or is_protected or not self._analyst.is_measured(self._rollouts.target):
            return ()
        return self._renew(analysis, decide, advice, at_s, may_replace=may_replace)

    def _renew(
        self,
        analysis: Analysis,
        decide: BoundPolicy,
        computed: KnownAdvice | None,
        at_s: float,
        *,
        may_replace: bool,
    ) -> Advised:
        advice = decide(analysis) if computed is None else computed.advice
        if advice is not None and advice.batches:
            return self._mitigate(advice)
        closed = self._close_open(analysis, advice, at_s, may_replace=may_replace)
        if advice is None or self._book.open is not None:
            return closed
        self._n_explored = self._n_explored + 1 if advice.kind is ProposalKind.EXPLORE else 0
        proposed = self._propose(advice, analysis, at_s)
        self._unexplained = _Advised(
            analysis, advice, decide, () if computed is None else computed.break_even
        )
        explained = () if self._auto.is_on else self.explain(at_s)
        return (*closed, *(explained or (proposed,)))

    def _mitigate(self, advice: Advice) -> tuple[Mitigate, ...]:
        """Order other batch sizes in auto mode, each once; an external job sets its own batch sizes."""
        is_ordered = advice.batches == self._batches
        if not self._auto.is_on or is_ordered or self._state.spec.foreign is not None:
            return ()
        self._batches = advice.batches
        return (Mitigate(BatchChoice(advice.batches, "auto", advice.why)),)

    def decide(self, limits: Limits | None, *, may_explore: bool = True) -> BoundPolicy:
        """Return the function that makes advice now, from the analysis or from a hypothetical one.

        Parameters
        ----------
        may_explore
            False excludes experiments, also where another may be proposed.
        """
        context = PolicyContext(
            self._book.rejected_plans,
            may_explore and self._may_explore,
            limits,
            self._measured.worker_samples_per_s,
            self._measured.use,
        )
        return BoundPolicy(self._policy, self._settings.planner, context)

    @property
    def _may_explore(self) -> bool:
        return self._auto.is_on or self._n_explored < self._settings.max_explore

    def explain(self, at_s: float) -> Remembered:
        """Add to the newest proposal what would change the advice, once."""
        advised, self._unexplained = self._unexplained, None
        return self._book.explain(advised.break_even(), at_s) if advised is not None else ()

    def protect(self, at_s: float) -> Remembered:
        """Propose more memory where nodes need it, before all other advice, or withdraw it."""
        target, proposal = self._rollouts.target, self._book.open
        self._protection.forecast(at_s)
        self._protection.advised()
        needs = self._protection.needs(target)
        is_protected = proposal is not None and proposal.kind is ProposalKind.PROTECT
        if not needs:
            return self.expire(at_s, "memory is no longer running out") if is_protected else ()
        self._analyst.refresh(target, at_s)
        analysis = self._analyst.analysis
        advice = post_scale(analysis, needs, rejected_plans=self._book.rejected_plans) if analysis else None
        if analysis is None or advice is None:
            return ()
        if (
            proposal is not None
            and is_protected
            and _suffices(proposal.candidate.plan, advice.candidate.plan)
        ):
            return ()
        closed = self._supersede(at_s, "more memory is needed first") if proposal is not None else ()
        return (*closed, self._propose(advice, analysis, at_s))

    def check_open(self, at_s: float) -> Remembered:
        """Close the open proposal if it no longer fits, or breaks a pin."""
        proposal = self._book.open
        if proposal is None:
            return ()
        plan, job = proposal.candidate.plan, self._state.job
        if not self._state.pins.allows(plan):
            return self.expire(at_s, f"it conflicts with the pins ({self._state.pins})")
        beside = self._rollouts.running if job.must_move else None
        if not has_room(plan, job.capacity, job.spec.bounds, beside=beside):
            return self.expire(at_s, "there is no room for it any more")
        return ()

    def expire(self, at_s: float, why: str) -> Remembered:
        """Close the open proposal because of another event."""
        return self._book.close_open(ProposalStatus.EXPIRED, at_s, why)

    def _supersede(self, at_s: float, why: str) -> Remembered:
        return self._book.close_open(ProposalStatus.SUPERSEDED, at_s, why)

    def _propose(self, advice: Advice, analysis: Analysis, at_s: float) -> Remember:
        logger.info("%s: proposes %s: %s", self._state.name, advice.candidate.plan.short, advice.why)
        candidate, spec, left = advice.candidate, self._state.spec, self._state.money_to_end
        note = over_budget(candidate.cost_per_hour, spec)
        if advice.kind is not ProposalKind.PROTECT:
            note = note or over_rest(candidate, analysis.current, left, spec.prices.currency)
            note = note or over_bound(candidate, analysis.current, spec)
        self._unexplained = None
        n_plan = analysis.model.report_.n_plan
        return self._book.add(advice, analysis.current, at_s, n_plan=n_plan, note=note)

    def _close_open(
        self, analysis: Analysis, advice: Advice | None, at_s: float, *, may_replace: bool
    ) -> Remembered:
        """Close the open proposal if it has no benefit any more, or there is a materially better one."""
        proposal = self._book.open
        if proposal is None:
            return ()
        if advice is not None and advice.candidate.plan == proposal.candidate.plan:
            return ()
        candidate = analysis.candidate(proposal.candidate.plan)
        if (why := self._lost(analysis, proposal, candidate)) or advice is None:
            return self.expire(at_s, why) if why else ()
        if may_replace:
            return self._supersede(at_s, f"{advice.candidate.plan.short} is one that auto mode may apply")
        is_better = self._is_better(advice, proposal, candidate.prediction) or rescues_deadline(
            advice.candidate, candidate
        )
        return self._supersede(at_s, f"{advice.candidate.plan.short} is better") if is_better else ()

    def _lost(self, analysis: Analysis, proposal: Proposal, candidate: Candidate) -> str:
        """Say why a proposal has no benefit any more, its plan now a `candidate`; empty where it has."""
        now = analysis.current
        if lacks_memory(analysis.situation, candidate.plan):
            return "by the latest forecast its nodes would run out of memory"
        if self._state.pins.allows(now.plan) and (worse := over_bound(candidate, now, self._state.spec)):
            return worse
        is_dearer = proposal.candidate.cost >= now.cost
        must_change = not self._state.pins.allows(now.plan) or self._state.quota.ends(now.plan)
        is_no_gain = candidate.prediction.possibly_over(now.prediction) < 1 and is_dearer and not must_change
        return "it would be slower than the current plan" if is_no_gain else ""

    def _is_better(self, advice: Advice, proposal: Proposal, then: Prediction) -> bool:
        """Whether advice is so much better that it replaces a proposal that a user may be about to accept."""
        if advice.kind is ProposalKind.EXPLORE:
            return False
        gain = advice.candidate.prediction.surely_over(then) - 1
        return proposal.kind is not ProposalKind.IMPROVE or gain >= self._settings.supersede_gain


def _suffices(open_plan: ResourcePlan, needed: ResourcePlan) -> bool:
    """Whether an open proposal gives at least the memory that is needed now."""
    return (
        open_plan.worker.memory_mib >= needed.worker.memory_mib
        and open_plan.ps.memory_mib >= needed.ps.memory_mib
    )
