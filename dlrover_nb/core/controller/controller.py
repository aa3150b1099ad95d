"""Events in, orders out: which plan is proposed, what a decision does, and its measured outcome.

The controller reads no clock, opens no file and starts no thread: `handle` changes its state by one event and
returns instructions. So a journal of events replays to the same state, and a test is a sequence of events and
orders. This module passes each event to the parts that it concerns; each part owns its state, and the others
read it or call it. The queries (`view`, `queries`) read the state after the last event.

Two rules keep decisions valid. At most one proposal is open, and it is replaced only by a materially better
one, so that a proposal does not become stale while a user decides (more memory for nodes at risk is always
better). And changes are never queued, as a queued one would run on outdated information: a decision of a user
replaces the change under way at once, and its undo cancels it; auto mode waits until it has ended.

Most events are node reports, and most of those change nothing: each costs some microseconds, whatever the
job's size and age. Fits and forecasts are made at intervals (`ControllerSettings` bounds how often), in
`handle` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

from dlrover_nb.core.controller.analyst import Analyst
from dlrover_nb.core.controller.budget_watch import BudgetWatch
from dlrover_nb.core.controller.decision_handler import DecisionHandler, Orders
from dlrover_nb.core.controller.decision_view import DecisionBrief, DecisionView
from dlrover_nb.core.controller.measured.batch_costs import CostsOfBatches
from dlrover_nb.core.controller.measured.measurement import Measurement
from dlrover_nb.core.controller.measured.rollup import Rollup
from dlrover_nb.core.controller.mitigations.mitigation_book import MitigationBook
from dlrover_nb.core.controller.mitigations.mitigations import Mitigations
from dlrover_nb.core.controller.mitigations.node_cores import NodeCores
from dlrover_nb.core.controller.mitigations.slow_nodes import SlowNodes
from dlrover_nb.core.controller.plan_queries import MeasurementProgress, PlanQueries
from dlrover_nb.core.controller.plans.advisor import Advisor
from dlrover_nb.core.controller.plans.allotted import Allotted
from dlrover_nb.core.controller.plans.auto_mode import AutoMode
from dlrover_nb.core.controller.plans.book import ProposalBook
from dlrover_nb.core.controller.plans.plan_changes import PlanChanges
from dlrover_nb.core.controller.plans.reviews import Reviews
from dlrover_nb.core.controller.plans.rollouts import Rollouts
from dlrover_nb.core.controller.protection import Protection
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.controller.state.job_state import JobState
from dlrover_nb.core.controller.state.story import Story
from dlrover_nb.core.controller.state.undo_log import UndoLog
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.planner.analysis import fitted
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.straggler.methods import shipped
from dlrover_nb.core.structs.job.job import DEFAULT_POLICY
from dlrover_nb.core.structs.views.events import (
    BatchSizesSet,
    Computed,
    CostChanged,
    CurvesMeasured,
    Decided,
    Event,
    JobSubmitted,
    MitigationEnded,
    NodeLeft,
    NodeOutOfMemory,
    NodeReported,
    NodeSizesSet,
    NodeStarted,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
    QualityMeasured,
    QuotaChanged,
    Remember,
    RoomChanged,
    Ticked,
)
from dlrover_nb.core.structs.views.snapshot import PlanMarker

if TYPE_CHECKING:
    from dlrover_nb.core.controller.analyst import Fit
    from dlrover_nb.core.planner.policies.policy import Policy
    from dlrover_nb.core.straggler.methods import StragglerMethods
    from dlrover_nb.core.structs.decisions.actions import MitigationChoice
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


class Dependencies(NamedTuple):
    """What a controller depends on beside the job; no snapshot holds it."""

    settings: ControllerSettings
    policy: Policy
    fit: Fit
    stragglers: StragglerMethods


class Controller:
    """The decision side of one job.

    Parameters
    ----------
    job
        The first event of a job; all others go to `handle`.
    settings
        Durations and thresholds.
    policy
        Chooses the plan to propose. It is an argument, and not looked up by `JobSpec.policy`: other packages'
        policies are found in files, which the controller does not read.
    fit
        Fits the throughput model to a situation.
    stragglers
        How slow nodes are found and answered, an argument as the policy is; None: the shipped methods that
        the job names.

    Attributes
    ----------
    first_orders
        The orders that follow from the submission.
    dependencies
        Its settings, policy and fit.
    reviews
        Has the question that is to be answered beside the job's loop, and takes the answer.
    """

    def __init__(
        self,
        job: JobSubmitted,
        settings: ControllerSettings | None = None,
        *,
        policy: Policy = POLICIES[DEFAULT_POLICY],
        fit: Fit = fitted,
        stragglers: StragglerMethods | None = None,
    ) -> None:
        self._settings = s = settings or ControllerSettings()
        self.dependencies = own = Dependencies(s, policy, fit, stragglers or shipped(job.spec))
        self.at_s = job.at_s  # of the last event
        self._state, self._story, self._costs = JobState(job), Story(), CostsOfBatches(job)
        self._rollup, self._measured = Rollup(s.row_s, job.at_s), Measurement(s, job.spec, job.n_sample_total)
        self._rollouts = Rollouts(job.spec.plan, self._story)
        self._allotted = Allotted(self._state, self._story, self._rollouts)
        self._book, self._undo = ProposalBook(job.spec.name, self._story), UndoLog()
        self._protection = Protection(s, self._measured, job.spec)
        self._analyst = Analyst(s, self._state, self._measured, self._protection, fit)
        self._auto = AutoMode(s, self._state, self._rollouts)
        self._advisor = Advisor(
            s,
            state=self._state,
            rollouts=self._rollouts,
            auto=self._auto,
            measured=self._measured,
            analyst=self._analyst,
            protection=self._protection,
            book=self._book,
            policy=policy,
        )
        self._budget = BudgetWatch(
            state=self._state,
            story=self._story,
            rollouts=self._rollouts,
            measured=self._measured,
            analyst=self._analyst,
            advisor=self._advisor,
        )
        self.reviews = Reviews(self._state, self._story, self._analyst, self._advisor, self._book)
        self._plans = PlanChanges(
            self._state,
            story=self._story,
            rollouts=self._rollouts,
            book=self._book,
            undo=self._undo,
            measured=self._measured,
            analyst=self._analyst,
            protection=self._protection,
        )
        self._nodes = SlowNodes(s, job.spec, own.stragglers.rule)
        self._actions = MitigationBook(job.spec.name, self._story)
        self._cores = NodeCores(self._state, self._auto, self._measured, self._nodes)
        self._mitigations = Mitigations(
            state=self._state,
            story=self._story,
            undo=self._undo,
            nodes=self._nodes,
            cores=self._cores,
            book=self._actions,
            solution=own.stragglers.solution,
        )
        self._decisions = DecisionHandler(
            state=self._state,
            story=self._story,
            measured=self._measured,
            rollouts=self._rollouts,
            book=self._book,
            undo=self._undo,
            analyst=self._analyst,
            protection=self._protection,
            auto=self._auto,
            advisor=self._advisor,
            plans=self._plans,
            actions=self._actions,
            mitigations=self._mitigations,
            budget=self._budget,
        )
        self.first_orders = self._submitted(job)
        self._analyst.tell_deadline(self._story, job.at_s)

    @property
    def submitted_at_s(self) -> float:
        """Time of the first event."""
        return self._state.job.at_s

    def handle(self, event: Event) -> Orders:
        """Handle one event and return the orders that follow from it.

        Raises
        ------
        StaleDecisionError, InvalidValueError, CapacityError, NotFoundError
            When a decision is invalid; then nothing has changed.
        """
        if not isinstance(event, CostChanged):
            self._budget.pass_time(event.at_s)
        orders = self._dispatch(event)
        self.at_s = at_s = event.at_s
        self._allotted.expire(at_s)
        orders += self._rollup.close(self._rollouts.target, at_s)
        if self._measured.publish_memory(at_s):
            self._protection.hasten(at_s)
        if self.reviews.question is None:
            orders += self._decisions.by_itself(at_s)
        orders += self._budget.review(at_s)
        orders += self._actions.changed(at_s)
        self.reviews.publish()
        self._analyst.tell_deadline(self._story, at_s)
        return orders

    def _dispatch(self, event: Event) -> Orders:  # noqa: C901, PLR0911, PLR0912 - one case per event
        match event:
            case NodeReported():
                return self._reported(event)
            case ProgressMade(n_sample_done=n_sample_done):
                self._measured.progress(n_sample_done)
                return ()
            case QualityMeasured():
                self._measured.quality.add(event)
                return ()
            case CurvesMeasured():
                return self._curves_measured(event)
            case Computed():
                return self.reviews.computed(event)
            case Ticked():
                return ()  # only auto mode and memory depend on time, and both are checked after every event
            case Decided(at_s, decision):
                return self._decisions.decided(decision, at_s)
            case PlanApplied():
                self._mitigations.plan_applied(event, self._rollouts)
                return self._plans.applied(event)
            case PlanFailed():
                return self._plans.failed(event)
            case CostChanged():
                self._budget.cost_changed(event)
                return ()
            case PhaseChanged():
                return self._phase_changed(event)
            case NodeOutOfMemory():
                return self._out_of_memory(event)
            case RoomChanged():
                return self._capacity_changed(event)
            case QuotaChanged():
                return self._quota_changed(event)
            case NodeStarted() | NodeLeft() | BatchSizesSet() | NodeSizesSet() | MitigationEnded():
                self._mitigations.observe(event)
                return ()
            case JobSubmitted(spec=spec):
                raise InvalidValueError(
                    f"a controller serves one job, here {self._state.name}; got {spec.name}; make one per job"
                )
            case _:
                assert_never(event)

    # queries

    @property
    def job(self) -> JobSubmitted:
        """The submission, with the present capacity."""
        return self._state.job

    @property
    def is_ended(self) -> bool:
        """Whether the job has ended, so that nothing is decided any more."""
        return self._state.phase.is_final

    @property
    def target(self) -> ResourcePlan:
        """The plan that is in place or was ordered, by the decisions so far."""
        return self._rollouts.target

    @property
    def under_way(self) -> ResourcePlan | None:
        """The plan that was ordered and is not in place yet; None while there is none."""
        rollout = self._rollouts.current
        return None if rollout is None else rollout.target

    @property
    def acting(self) -> MitigationChoice | None:
        """The action against stragglers that was ordered and has not ended."""
        return self._mitigations.under_way

    @property
    def spent(self) -> float:
        """The money that the job has spent, with the runs whose rows it goes on with."""
        return self._state.spending.spent

    @property
    def cost_per_hour(self) -> float:
        """What its nodes cost now, as last known."""
        return self._state.spending.per_hour

    @property
    def ending(self) -> str:
        """Why the job was ordered to stop, by its budget; empty: it was not."""
        return self._budget.ending

    def brief(self) -> DecisionBrief:
        """Return what a list of jobs shows of the published state, without laying anything out."""
        shown, memory = self._analyst.published, self._measured.published_memory
        opened, undo, measuring = self._book.open, self._undo.undo, self._rollouts.measuring
        return DecisionBrief(
            self._state.mode,
            opened,
            shown,
            memory,
            undo,
            self._actions.open,
            measuring,
            self._budget.outlook,
        )

    @property
    def memory_needs(self) -> tuple[str, ...]:
        """Why nodes are likely to run out of memory, by the last forecast."""
        return tuple(need.why for need in self._protection.needs(self._rollouts.target))

    def view(self) -> DecisionView:
        """Return the state after the last event, as published: nothing is fitted or forecast here.

        Front and curves of an analysis are laid out by the first view that shows them.
        """
        shown = self._analyst.published
        return DecisionView(
            mode=self._state.mode,
            proposals=self._book.all,
            decisions=self._decisions.all,
            outcomes=tuple(self._rollouts.outcomes),
            markers=tuple(self._rollouts.markers),
            fit=None if shown is None else shown.model.report_,
            curves=() if shown is None else shown.curves,
            samples=self._measured.samples,
            front=None if shown is None else shown.front,
            memory=self._measured.published_memory,
            story=self._story.lines,
            pins=self._state.pins,
            undo=self._undo.undo,
            memory_needs=self.memory_needs,
            under_way="" if self._rollouts.current is None else self._rollouts.current.decision,
            measuring=self._rollouts.measuring,
            deadline=None if shown is None else shown.deadline,
            stragglers=self._nodes.findings,
            mitigations=self._actions.all,
            node_errors=self._nodes.errors(self.at_s),
            queue=self._state.queue,
            stop=None if shown is None else shown.situation.stop,
            host=self._measured.host,
            budget=self._budget.outlook,
            budget_total=self._state.spec.budget_total,
        )

    def queries(self) -> PlanQueries:
        """Return the queries on the job's present state."""
        s, advisor, bounds = self._settings, self._advisor, self._auto.bounds(self.at_s)
        is_measured = self._analyst.is_measured(self._rollouts.target)
        return PlanQueries(
            analysis=self._analyst.published,
            context=self._decisions.context,
            proposals=self._book.all,
            waiting=MeasurementProgress(is_measured, self._measured.n_waiting, s.n_stable, s.n_patience),
            settings=s.planner,
            rejected_plans=self._book.rejected_plans,
            quota=self._state.quota,
            limits=self._auto.limits(self.at_s),
            n_explored=advisor.n_explored,
            decide=advisor.decide(bounds),
            improve=advisor.decide(bounds, may_explore=False),
            use=self._measured.use,
            may_change=self._advisor.may_change,
            allotted=self._allotted.words,
            queue=self._state.queue,
            at_s=self.at_s,
        )

    def story(self) -> tuple[str, ...]:
        """Return what happened, one line per fact, oldest first."""
        return self._story.lines

    # events that concern several parts

    def _submitted(self, event: JobSubmitted) -> Orders:
        spec = event.spec
        self._story.add(
            event.at_s, f"job {spec.name} submitted by {spec.owner or 'an unnamed user'}: {spec.plan}"
        )
        if event.why:
            self._story.add(event.at_s, event.why)
        self._analyst.adopt_prior(self._story, event.at_s)
        first: Orders = (Remember(event.at_s, spec),)
        return first if event.traits is None else (*first, Remember(event.at_s, event.traits))

    def _phase_changed(self, event: PhaseChanged) -> Orders:
        at_s, phase = event.at_s, event.phase
        self._state.enter(phase)
        message = event.message and f": {event.message}"
        verb = "has" if phase.is_final else "is"
        if self._state.is_over:
            self._mitigations.expire(at_s, f"the job {verb} {phase}")
        self._story.add(at_s, f"the job {verb} {phase}{message}")
        orders: Orders = (Remember(at_s, event),)
        return orders + self._ended(at_s, f"the job has {phase}") if phase.is_final else orders

    def _ended(self, at_s: float, why: str) -> Orders:
        self._mitigations.give_way(at_s, why)
        orders: Orders = self._plans.give_up(at_s, why)
        orders += self._rollouts.conclude(at_s, least=1) + self._advisor.expire(at_s, why)
        if self._measured.plan is not None:
            self._analyst.observe(self._measured.plan, at_s)
        self.reviews.drop()
        last = self._rollup.close(self._rollouts.target, at_s, is_last=True)
        return orders + self._analyst.summary(at_s) + last

    def _reported(self, event: NodeReported) -> Orders:
        at_s = event.at_s
        self._rollup.add(event.sample)
        self._nodes.reported(event)
        if event.plan != self._measured.plan:
            self._measured.restart(event.plan, at_s)
            if event.plan is not None and not self._rollouts.markers:
                self._rollouts.mark(PlanMarker(at_s, event.plan, 0.0, None))
        costs: Orders = self._costs.add(event.sample, at_s)
        windows = self._measured.add(event.sample, at_s)
        if not windows:
            return costs
        self._rollouts.measured(windows)
        scored = self._rollouts.score(at_s, least=self._settings.n_outcome)
        return costs + scored + self.reviews.review(windows[0].plan, at_s, is_scored=bool(scored))

    def _out_of_memory(self, event: NodeOutOfMemory) -> Orders:
        at_mib = f"{event.memory_mib:,.0f} MiB"
        self._story.add(event.at_s, f"{event.role} {event.node} was killed for lack of memory at {at_mib}")
        self._protection.killed(event, self._rollouts.target)
        return ()

    def _quota_changed(self, event: QuotaChanged) -> Orders:
        before = self._state.quota
        admitted = self._allotted.changed(event)
        quota, plan = self._state.quota, self._rollouts.target
        is_new_invitation = quota.invites(plan) and quota != before
        if not (quota.ends(plan) or is_new_invitation):
            return admitted
        return admitted + self._advisor.reconsider(event.at_s)

    def _curves_measured(self, event: CurvesMeasured) -> Orders:
        """Plan with other curves from now on; the open proposal may cost too much by them."""
        self._state.curves = event.curves
        ways = ", ".join(sorted({curve.way for curve in event.curves})) or "none"
        self._story.add(event.at_s, f"what old gradients cost the model is measured (ways: {ways})")
        if not self._analyst.has_analysis or self._state.is_over:
            return ()
        self._analyst.observe(self._rollouts.target, event.at_s)
        return self._advisor.check_open(event.at_s) + self._advisor.reconsider(event.at_s)

    def _capacity_changed(self, event: RoomChanged) -> Orders:
        plan = self._rollouts.target
        if not has_room(plan, event.capacity, self._state.spec.bounds):
            self._story.add(
                event.at_s, f"the cluster has no room any more for the current plan, {plan.short}"
            )
        self._state.change_capacity(event.capacity)
        self._protection.request_advice()
        return self._advisor.check_open(event.at_s)
