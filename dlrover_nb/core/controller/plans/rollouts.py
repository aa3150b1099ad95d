"""Changes of plan: the one under way, the one being scored, and all that ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import exp, log
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent, signed_percent
from dlrover_nb.core.controller.measured.startup import RunStart
from dlrover_nb.core.controller.state.record_lists import append
from dlrover_nb.core.planner.advising.advice import axes_key
from dlrover_nb.core.structs.cluster.host_load import FELT_SHARE
from dlrover_nb.core.structs.decisions.decisions import Outcome, ProposalKind
from dlrover_nb.core.structs.views.events import Remember
from dlrover_nb.core.structs.views.snapshot import PlanMarker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.plan.resources import Axes, ResourcePlan
    from dlrover_nb.core.structs.training.samples import ProfileSample


@dataclass(frozen=True, slots=True)
class Rollout:
    """A change under way, with the prediction that its decider saw."""

    decision: str
    before: ResourcePlan
    target: ResourcePlan
    proposal: str | None
    predicted: Prediction | None
    before_samples_per_s: float | None
    kind: ProposalKind | None = None  # of the proposal; None for a plan of the user's own

    def __str__(self) -> str:
        return f"{self.decision}: to {self.target.short}"


@dataclass(slots=True)
class _SpeedSums:
    """Steady windows of one run: its first ones, and sums of the log speeds of the later ones.

    The sums are all that a snapshot of an older release has, of all windows.
    """

    n: int = 0
    log_seen: float = 0.0  # measured
    log_plan: float = 0.0  # of the plan without other load
    start: RunStart = field(default_factory=RunStart)

    def add(self, window: ProfileSample) -> None:
        """Add a window."""
        if self.start.add(window):
            return
        self.n += 1
        self.log_seen += log(window.samples_per_s)
        self.log_plan += log(window.plan_samples_per_s)

    @property
    def n_counted(self) -> int:
        """Windows but those of the nodes' start."""
        return len(self.start.started) + self.n

    @property
    def speeds(self) -> tuple[float, float]:
        """Mean samples per second of those that count: measured, and of the plan without other load."""
        actual = self.log_seen + sum(log(w.samples_per_s) for w in self.start.started)
        plan = self.log_plan + sum(log(w.plan_samples_per_s) for w in self.start.started)
        return exp(actual / self.n_counted), exp(plan / self.n_counted)


@dataclass(slots=True)
class _Trial:
    """An applied change whose outcome is being measured."""

    rollout: Rollout
    applied_at_s: float
    pause_s: float
    sums: _SpeedSums = field(default_factory=_SpeedSums)
    n_scored: int = 0  # windows behind its last recorded outcome; 0: none was recorded

    def outcome(self) -> Outcome:
        """Return what its windows so far say."""
        actual, plan = self.sums.speeds
        return Outcome(
            decision=self.rollout.decision,
            plan=self.rollout.target,
            predicted=self.rollout.predicted,
            measured_samples_per_s=actual,
            before_samples_per_s=self.rollout.before_samples_per_s,
            n_sample=self.sums.n_counted,
            applied_at_s=self.applied_at_s,
            pause_s=self.pause_s,
            host_share=max(1 - actual / plan, 0.0),
        )


class Rollouts:
    """Plans of one job through time.

    Attributes
    ----------
    target
        The plan that should run.
    current
        The change under way, None while there is none.
    changed_at_s
        When the last change was decided, applied or given up.
    markers, outcomes
        When each plan started to run, and the outcome of each decided change: the newest of both.
    left
        How often users replaced each plan by one of their own.
    replaced
        How often each plan was replaced by a proposed one; experiments and changes of memory do not count.
    experiments
        Decisions that began an experiment.
    """

    def __init__(self, plan: ResourcePlan, story: Story) -> None:
        self._story = story
        self._trial: _Trial | None = None
        self.target = plan
        self.current: Rollout | None = None
        self.changed_at_s = 0.0
        self.markers: list[PlanMarker] = []
        self.outcomes: list[Outcome] = []
        self.left: Counter[Axes] = Counter()
        self.replaced: Counter[Axes] = Counter()
        self.experiments: set[str] = set()

    @property
    def running(self) -> ResourcePlan:
        """The plan before the change under way; the target while there is none."""
        return self.target if self.current is None else self.current.before

    @property
    def measuring(self) -> str:
        """The decision whose applied plan has no outcome yet; empty: none is."""
        trial = self._trial
        return "" if trial is None or trial.n_scored else trial.rollout.decision

    def start(self, rollout: Rollout, at_s: float) -> tuple[Remember, ...]:
        """Begin a change; the one before is scored by its measurements, if they suffice."""
        scored = self.conclude(at_s, least=2)
        self.current, self.target, self.changed_at_s = rollout, rollout.target, at_s
        return scored

    def applied(self, at_s: float, pause_s: float) -> Rollout:
        """Record that the change under way is in place, and score it from now on.

        That of a cancelled change leads back to the plan before it: there is nothing to score.
        """
        rollout = self._end(at_s)
        self.mark(PlanMarker(at_s, rollout.target, pause_s, rollout.predicted))
        if rollout.before == rollout.target:  # a change was cancelled
            return rollout
        self._trial = _Trial(rollout, at_s, pause_s)
        before = axes_key(rollout.before)
        if rollout.kind is ProposalKind.EXPLORE:
            self.experiments.add(rollout.decision)
        is_try = rollout.kind in (ProposalKind.EXPLORE, ProposalKind.PROTECT)
        if before != axes_key(rollout.target) and not is_try:
            (self.left if rollout.kind is None else self.replaced)[before] += 1
        return rollout

    def failed(self, at_s: float) -> Rollout:
        """Record that the change under way is given up: the plan before is the target again."""
        rollout = self._end(at_s)
        self.target = rollout.before
        return rollout

    def appeared(self, plan: ResourcePlan, at_s: float) -> None:
        """Record that a plan that was not ordered is in place: it is the new target."""
        self.target, self.changed_at_s = plan, at_s

    def mark(self, marker: PlanMarker) -> None:
        """Record that a plan started to run; a repetition is ignored."""
        if self.markers and self.markers[-1].plan == marker.plan:
            return
        append(self.markers, marker)
        self._story.add(marker.at_s, f"plan {marker.plan.short} runs")

    def measured(self, samples: Iterable[ProfileSample]) -> None:
        """Add steady windows to the score of the last change; an outcome that stands follows them."""
        trial = self._trial
        if trial is None:
            return
        for sample in samples:
            if sample.plan == trial.rollout.target:
                trial.sums.add(sample)
        if trial.n_scored:
            self.outcomes[-1] = trial.outcome()

    def score(self, at_s: float, *, least: int) -> tuple[Remember, ...]:
        """Compare the last change with its prediction, once it has `least` steady windows."""
        trial = self._trial
        if trial is None or trial.n_scored or trial.sums.n_counted < least:
            return ()
        outcome = trial.outcome()
        trial.n_scored = outcome.n_sample
        append(self.outcomes, outcome)
        self._story.add(at_s, _format_outcome(outcome), about=trial.rollout.proposal or "")
        return (Remember(at_s, outcome),)

    def conclude(self, at_s: float, *, least: int) -> tuple[Remember, ...]:
        """End the measurement of the last change: its outcome is that of all its windows."""
        scored, trial = self.score(at_s, least=least), self._trial
        self._trial = None
        if trial is None or not trial.n_scored or trial.sums.n_counted == trial.n_scored:
            return scored
        return (*scored, Remember(at_s, trial.outcome()))

    def _end(self, at_s: float) -> Rollout:
        rollout, self.current = self.current, None
        assert rollout is not None
        self.changed_at_s = at_s
        return rollout


def _format_outcome(outcome: Outcome) -> str:
    text = f"{outcome.decision} reached {outcome.measured_samples_per_s:,.0f} samples/s"
    if outcome.host_share >= FELT_SHARE:
        text += f" while other work on the host took {percent(outcome.host_share)} of the time"
    if outcome.has_host_changed:
        text += f"; with the host as predicted, {outcome.comparable_samples_per_s:,.0f}"
    if outcome.predicted is not None and outcome.error is not None:
        where = "inside" if outcome.inside_band else "outside"
        off = signed_percent(outcome.error)
        text += f", predicted {outcome.predicted.samples_per_s:,.0f} ({off}, {where} the band)"
    return text
