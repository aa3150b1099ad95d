"""Queries on a controller's state: the effect of a plan, and why one is proposed.

A `PlanQueries` is frozen, and taken together with a snapshot: the analysis that the controller had already
made, and the state of the job. So a query costs the controller nothing, changes nothing, and can be made in
any thread while the job runs or after its end. Rejected: querying the controller itself, which a moving
slider would block.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.controller.checks import check_change, check_plan
from dlrover_nb.core.errors import DlroverError, NotFoundError
from dlrover_nb.core.pareto.space import MAX_PLANS
from dlrover_nb.core.planner.advising.advice import Advice
from dlrover_nb.core.planner.advising.explain import AdviceContext, binding, evidence, marginals, runner_up
from dlrover_nb.core.planner.advising.improvement import probe
from dlrover_nb.core.planner.advising.sensitivity import break_even_of, break_even_of_staying
from dlrover_nb.core.planner.bid import bid
from dlrover_nb.core.planner.policies.nearchus import diagnosis_of
from dlrover_nb.core.planner.predictions.quality import over_bound
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus
from dlrover_nb.core.structs.decisions.query_answers import Explanation, Weighed
from dlrover_nb.core.structs.job.fixed_roles import fixed_needs
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.offers import NoOffer, Offer
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace, WaitingOffer
from dlrover_nb.core.structs.plan.resources import sizes_and_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dlrover_nb.core.bottleneck import JobUse
    from dlrover_nb.core.controller.checks import DecisionContext
    from dlrover_nb.core.planner.advising.advice import Limits, PlannerSettings
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.decisions import BreakEven, Proposal
    from dlrover_nb.core.structs.plan.bounds import Quota
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class MeasurementProgress:
    """How far the plan that runs is measured.

    Parameters
    ----------
    is_measured
        Whether the analysis is about it, and it was steady.
    n_window
        Its windows so far, while none counts.
    n_stable, n_patience
        `n_stable` windows count once they agree; after `n_patience` windows the last ones count in any case.
    """

    is_measured: bool
    n_window: int
    n_stable: int
    n_patience: int

    def __str__(self) -> str:
        windows = f"{self.n_window} window{'s' * (self.n_window != 1)}"
        return f"{windows} so far; it takes {self.n_stable} in a row that agree, or {self.n_patience} in all"


@dataclass(frozen=True, slots=True)
class PlanQueries:
    """The state at one moment, and queries on it.

    Parameters
    ----------
    analysis
        The newest one; None before anything was measured.
    context
        The state of the job.
    proposals
        All so far, oldest first.
    waiting
        How far the plan that runs is measured.
    settings, barred, quota, limits
        When a plan is worth a proposal, rejected plans, what other jobs leave free, and the limits of auto
        mode (None: a user decides).
    n_explored
        Experiments in a row, where that is the maximum; else 0.
    decide, improve
        Functions that make advice, with and without experiments.
    use
        What the nodes of the present plan use of it; None: unknown.
    may_change
        Whether a change of plan is possible now.
    allotted
        Why other jobs leave it no more than its quota; empty: no planner says so.
    queue
        Where it waits in the queue of its cluster; None: it does not.
    at_s
        The moment.
    """

    analysis: Analysis | None
    context: DecisionContext
    proposals: tuple[Proposal, ...]
    waiting: MeasurementProgress
    settings: PlannerSettings
    rejected_plans: Mapping[ResourcePlan, float]
    quota: Quota
    limits: Limits | None
    n_explored: int
    decide: Callable[[Analysis], Advice | None]
    improve: Callable[[Analysis], Advice | None]
    use: JobUse | None = None
    may_change: bool = False
    allotted: str = ""
    queue: QueuePlace | None = None
    at_s: float = 0.0

    def offer(self) -> Offer:
        """Return the plans that the job could use, for a choice among jobs; or why it takes no part in it.

        A job that waits in the queue says what it asks for.
        """
        if self.queue is not None:
            return self._asked()
        if self.context.mode is Mode.MANUAL:
            return NoOffer("it is in manual mode, so a user decides on its plan")
        if not self.may_change:
            return NoOffer("its plan is changing, or it is about to end")
        if self.analysis is None:
            return NoOffer("none of its plans is measured yet")
        if self.analysis.grid.n_plan > MAX_PLANS:
            return NoOffer(f"its bounds allow more than {MAX_PLANS:,} plans")
        own = bid(self.analysis.situation, self.analysis.model).offer()
        beside, gpus = sizes_and_gpus(fixed_needs(self.context.job.spec))
        return replace(own, asks=self.context.mode is not Mode.AUTO, beside=beside, beside_gpus=gpus)

    def _asked(self) -> WaitingOffer:
        job, prior = self.context.job, self.analysis
        spec, due_s = job.spec, job.spec.due_s(job.at_s)
        beside, gpus = sizes_and_gpus(fixed_needs(spec))
        usual = job.usual_samples_per_s if prior is None else prior.current.prediction.samples_per_s
        return WaitingOffer(
            job=spec.name,
            owner=spec.owner,
            plan=self.context.target,
            since_s=job.at_s,
            n_sample=job.n_sample_total,
            bounds=spec.bounds,
            pins=self.context.pins,
            samples_per_s=usual,
            deadline_left_s=None if due_s is None else due_s - self.at_s,
            priority=spec.priority,
            beside=beside,
            beside_gpus=gpus,
        )

    def weigh(self, plans: Sequence[ResourcePlan]) -> tuple[Weighed, ...]:
        """Return the predicted effect of each plan, and why a decision for it would be refused."""
        candidates = self.analysis.candidates(plans) if self.analysis else (None,) * len(plans)
        return tuple(
            Weighed(plan, candidate, self.refusal(plan), self._caution(candidate))
            for plan, candidate in zip(plans, candidates, strict=True)
        )

    def _caution(self, candidate: Candidate | None) -> str:
        """Return what a person should know before a decision for a plan."""
        if candidate is None or self.analysis is None:
            return ""
        return over_bound(candidate, self.analysis.current, self.context.job.spec)

    def refusal(self, plan: ResourcePlan) -> str:
        """Return why the controller would refuse a user's decision for this plan; empty if it would not."""
        return _refusal(check_change, plan, self.context)

    def explain(self, proposal: str | None) -> Explanation:
        """Say why a proposal was made (None: the open one; where none is, why there is none).

        A closed proposal keeps its original candidate; the rest of the explanation is of now.

        Raises
        ------
        NotFoundError
            When there is no proposal of that id.
        """
        subject = self._find(proposal)
        if self.analysis is None:
            return self._bare(subject)
        if subject is None:
            now = self.analysis.current
            explanation = Explanation(
                now.plan, None, now, now, self._why_waits() or self._why_none(self.analysis)
            )
        else:
            explanation = self._bare(subject)
            if subject.status is ProposalStatus.PENDING:
                fresh = self.analysis.candidate(explanation.plan)
                explanation = replace(explanation, candidate=fresh, baseline=self.analysis.current)
        return self._surrounded(explanation, subject, self.analysis)

    def _bare(self, proposal: Proposal | None) -> Explanation:
        """Return the explanation without a present analysis."""
        if proposal is None:
            return Explanation(self.context.target, None, None, None, self._why_waits())
        p, note = proposal, proposal.note and f" ({proposal.note})"
        is_open = p.status is ProposalStatus.PENDING
        why = p.why + note if is_open else f"{p.why} It is {p.status}{note}."
        return Explanation(p.candidate.plan, p.id, p.candidate, p.baseline, why, flip=p.flip)

    def _surrounded(
        self, explanation: Explanation, proposal: Proposal | None, analysis: Analysis
    ) -> Explanation:
        """Add the context of a plan: constraints, next steps, measurements, other plans."""
        here = analysis.candidate(explanation.plan)
        around = replace(
            explanation,
            binding=binding(analysis, here, self.quota) + ((self.allotted,) if self.allotted else ()),
            marginals=marginals(analysis, explanation.plan, self.refusal),
            evidence=evidence(analysis, explanation.plan),
            bottleneck=self._bottleneck(analysis),
            min_gain=self.settings.min_gain,
            min_saving=self.settings.min_saving,
        )
        return around if self._is_over else self._with_others(around, proposal, analysis)

    def _bottleneck(self, analysis: Analysis) -> str:
        """Name what limits the job, while it runs."""
        diagnosis = None if self._is_over else diagnosis_of(analysis, self.use)
        return "" if diagnosis is None else diagnosis.words

    def _with_others(
        self, explanation: Explanation, proposal: Proposal | None, analysis: Analysis
    ) -> Explanation:
        """Add the alternatives: the break-even, the next best plan, the next experiment."""
        unfit = partial(_refusal, check_plan, now=self.context)
        rival, lacks = runner_up(
            analysis, explanation.plan, AdviceContext(self.settings, unfit, self.rejected_plans, self.quota)
        )
        probed = probe(analysis, self.settings, rejected_plans=self.rejected_plans, limits=self.limits)
        return replace(
            explanation,
            flip=explanation.flip or self._flip(analysis, proposal, rival),
            runner_up=rival,
            runner_up_why=lacks,
            probe=probed.candidate if probed else None,
            probe_why=probed.why if probed else "",
        )

    def _flip(
        self, analysis: Analysis, proposal: Proposal | None, rival: Candidate | None
    ) -> BreakEven | None:
        """Return what would change the advice, where that is not known already.

        Where nothing is proposed, only better plans count: an experiment that would pay is no argument
        against the running plan, and computing one a hundred times takes seconds.
        """
        if proposal is None:
            return break_even_of_staying(analysis, rival, self.improve) if rival else None
        is_open = proposal.status is ProposalStatus.PENDING
        if not is_open or proposal.kind is ProposalKind.PROTECT or self.context.mode is not Mode.AUTO:
            return None  # where a user decides it was searched when the proposal was made
        fresh = analysis.candidate(proposal.candidate.plan)
        return break_even_of(analysis, Advice(proposal.kind, fresh, proposal.why), self.decide)

    # reasons for no proposal

    def _why_none(self, analysis: Analysis) -> str:
        """Say why no plan is better, where nothing is waited for."""
        left_s = analysis.current.finish_s
        if left_s is not None and left_s < self.settings.min_left_s:
            return f"The job will be done in {left_s:.0f} s, so a change would not pay off."
        if why_empty := analysis.why_empty:
            return f"No plan is allowed: {why_empty}."
        gain, saving = self.settings.min_gain, self.settings.min_saving
        return (
            f"No other plan is surely better: we look for a gain of {percent(gain)} at the low end of the "
            f"band, or {percent(saving)} lower cost at the same speed. {self._why_no_experiment()}."
        )

    def _why_no_experiment(self) -> str:
        if self.n_explored:
            return f"{self.n_explored} experiments in a row were proposed; ask if you want more"
        return "No experiment would pay off either"

    def _why_waits(self) -> str:
        """Say what has to happen before anything is proposed; empty where nothing has."""
        now = self.context
        if self._is_over:
            return self._why_over()
        if not now.is_running:
            return "The job is still starting. Advice comes once it has trained for a while."
        if now.mode is Mode.MANUAL:
            return (
                f"There are no proposals in manual mode; turn them on with %dlrover mode {now.name} suggest."
            )
        if now.under_way:
            return f"A change is under way ({now.under_way}). Advice follows once it is measured."
        if not self.waiting.is_measured:
            return f"Measuring {now.target.short}: {self.waiting}."
        return ""

    def _why_over(self) -> str:
        now = self.context
        if now.phase is JobPhase.BLOCKED:
            line = f"%dlrover show {now.name} --rows"
            return f"Some rows need your decision ({line}). Planning resumes with training."
        return (
            f"The job {'has' if now.phase.is_final else 'is'} {now.phase}, so there is nothing left to plan."
        )

    @property
    def _is_over(self) -> bool:
        return not self.context.phase.trains

    def _find(self, name: str | None) -> Proposal | None:
        """Return the proposal of that id, or the open one."""
        if name is None:
            return next((p for p in self.proposals if p.status is ProposalStatus.PENDING), None)
        proposal = next((p for p in self.proposals if p.id == name), None)
        if proposal is None:
            raise NotFoundError(f"{self.context.name} has no proposal {name} ({self._near(name)})")
        return proposal

    def _near(self, name: str) -> str:
        ids = [p.id for p in self.proposals]
        if not ids:
            return "there are none yet"
        opened = [p.id for p in self.proposals if p.status is ProposalStatus.PENDING]
        near = difflib.get_close_matches(name, ids, n=3, cutoff=0.4) or ids[-3:]
        return f"open: {opened[0]}" if opened else f"none is open; did you mean {' or '.join(near)}?"


def _refusal(
    check: Callable[[ResourcePlan, DecisionContext], None], plan: ResourcePlan, now: DecisionContext
) -> str:
    """Return why a check refuses a plan; empty where it does not."""
    try:
        check(plan, now)
    except DlroverError as error:
        return str(error)
    return ""
