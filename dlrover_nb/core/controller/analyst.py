"""The analysis of a job: when it is renewed, its input, and what of it is published.

The input of planning is frozen when an event requires it (`observe`). The analysis is made while that event
is handled, once, in every mode, and published at its end (`publish`). So reading it fits nothing, in any
thread, and the result does not depend on when it is read. Front and curves of an analysis are laid out when
they are first read, once: most jobs of a simulated cluster have no reader, and these took a fifth of its CPU
time.

Rejected: making the analysis at the first read. It saves the fits of a job in manual mode that has no viewer,
but the driver of every real job reads twice a second, and would then fit in the loop that answers its nodes.
`ControllerSettings` bounds how often an analysis is made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.planner.analysis import analyse, fitted
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.events import Remember

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.controller.measured.measurement import Measurement
    from dlrover_nb.core.controller.protection import Protection
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Fit = Callable[[Situation], ThroughputModel]


class Analyst:
    """Keeps the newest analysis of a job.

    Parameters
    ----------
    settings
        How often it is renewed.
    state, measured, protection
        The job, its measurements, and its need of memory.
    fit
        Fits the model to a situation.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        state: JobState,
        measured: Measurement,
        protection: Protection,
        fit: Fit = fitted,
    ) -> None:
        self._settings, self._state = settings, state
        self._measured, self._protection, self._fit = measured, protection, fit
        self._situation: Situation | None = None
        self._seen: frozenset[ResourcePlan] = frozenset()  # plans with samples in it
        self._cache: Analysis | None = None
        self._n_observed = self._n_change = self._n_quality = 0
        self._published: Analysis | None = None
        self._told_feasible: bool | None = None  # of the deadline, as the story last said
        self._observed_at_s = self._since_s = self._published_at_s = state.job.at_s

    def is_due(self, plan: ResourcePlan, at_s: float) -> bool:
        """Whether new windows of a plan deserve another fit."""
        growth = self._settings.refit_growth
        return (
            self._situation is None
            or plan not in self._seen
            or self._measured.n_change > self._n_change
            or self._has_news_of_stop(at_s)
            or self._measured.n_seen >= self._n_observed * (1 + growth)
            or at_s >= self._observed_at_s + max(self._settings.refit_s, growth * (at_s - self._since_s))
        )

    def _has_news_of_stop(self, at_s: float) -> bool:
        """Whether the job was evaluated since, and not so often that the fits would keep the master busy."""
        is_new = self._measured.quality.n_seen > self._n_quality
        return is_new and at_s >= self._observed_at_s + self._settings.refit_s

    def observe(self, plan: ResourcePlan, at_s: float) -> None:
        """Freeze the input of planning, with `plan` as the present one.

        With fits of similar jobs that is possible before anything was measured.
        """
        samples, job = self._measured.evidence, self._state.job
        if self._situation is None or self._situation.plan != plan:
            self._since_s = at_s
        if not samples and job.prior is None:
            return
        self._observed_at_s, self._n_observed = at_s, self._measured.n_seen
        self._n_change, self._n_quality = self._measured.n_change, self._measured.quality.n_seen
        self._seen = frozenset(sample.plan for sample in samples)
        self._protection.observe(at_s)
        due_s, pins, stop = job.spec.due_s(job.at_s), self._state.pins, self._measured.stop
        self._situation = Situation(
            spec=job.spec,
            capacity=job.capacity,
            dense_bytes=job.dense_bytes,
            embedding_dim=job.embedding_dim,
            plan=plan,
            samples=samples,
            n_sample_left=self._measured.n_left if stop is None or stop.why_not else stop.n_sample_left,
            pauses=self._pauses,
            memory_mib=self._protection.floors(plan, pins),
            pins=pins,
            prior=job.prior,
            deadline_left_s=None if due_s is None else due_s - at_s,
            must_move=job.must_move,
            deadline_chance=self._settings.planner.deadline_chance,
            memory_use=self._protection.uses(plan, job.spec, pins, at_s),
            stop=stop,
            host=self._measured.host,
            money_left=self._state.money_to_end,
            curves=self._state.curves,
            n_sample_total=job.n_sample_total,
        )

    def refresh(self, plan: ResourcePlan, at_s: float) -> None:
        """Observe anew where plan, pins or capacity are no longer those of the newest situation."""
        s = self._situation
        if s is None or (s.plan, s.pins, s.capacity) != (plan, self._state.pins, self._state.job.capacity):
            self.observe(plan, at_s)

    def adopt_prior(self, story: Story, at_s: float) -> None:
        """Start from the prior of similar jobs, if there is one, and tell whether it can be used."""
        prior = self._state.job.prior
        if prior is None:
            return
        self.observe(self._state.spec.plan, at_s)
        try:
            self.publish()
        except InvalidValueError as error:  # a prior of another version
            self._state.drop_prior()
            self._situation = None
            story.add(at_s, f"the results of similar jobs are not used: {error}")
        else:
            story.add(at_s, f"{prior.n_plan} plans of similar jobs serve as the prior until samples arrive")

    @property
    def analysis(self) -> Analysis | None:
        """The newest analysis, made here when an event first needs it; None before any measurement."""
        if self._situation is None:
            return None
        if not self.is_made:
            self._cache = analyse(self._situation, model=self._model(self._situation))
        return self._cache

    def _model(self, situation: Situation) -> ThroughputModel:
        """Return the last fit where the samples are the same, else a new one."""
        if self._cache is not None and self._cache.situation.samples == situation.samples:
            return self._cache.model
        return self._fit(situation)

    @property
    def situation(self) -> Situation | None:
        """The newest input of planning; None before any measurement."""
        return self._situation

    @property
    def is_made(self) -> bool:
        """Whether reading the newest analysis computes nothing."""
        return self._situation is None or (
            self._cache is not None and self._cache.situation is self._situation
        )

    def make(self, analysis: Analysis | None) -> None:
        """Make the analysis of the newest situation; `analysis`: another process has made it."""
        if not self.is_made and analysis is not None:
            self._cache, self._situation = analysis, analysis.situation
        _ = self.analysis

    @property
    def is_due_to_be_shown(self) -> bool:
        """Whether there is a newer analysis to be published (`ControllerSettings.manual_publish_s`)."""
        shown, now = self._published, self._situation
        is_same = (
            shown is not None
            and now is not None
            and (shown.situation.plan, shown.situation.pins, shown.situation.capacity)
            == (now.plan, now.pins, now.capacity)
        )
        waits_s = self._settings.manual_publish_s if self._state.mode is Mode.MANUAL else 0.0
        return not is_same or self._observed_at_s >= self._published_at_s + waits_s

    def publish(self) -> None:
        """Publish the newest analysis, unless it may wait."""
        if self.is_due_to_be_shown:
            self._published, self._published_at_s = self.analysis, self._observed_at_s

    @property
    def published(self) -> Analysis | None:
        """The last published analysis; None before any measurement."""
        return self._published

    @property
    def has_analysis(self) -> bool:
        """Whether anything was measured, so that plans can be predicted."""
        return self._situation is not None

    def is_measured(self, target: ResourcePlan) -> bool:
        """Whether the plan of the newest situation runs, is the target, and was measured."""
        s = self._situation
        return (
            s is not None
            and s.plan == self._measured.plan == target
            and self._measured.samples_per_s(s.plan) is not None
        )

    def predict(self, plan: ResourcePlan) -> Prediction | None:
        """Predict a plan; None before anything was measured."""
        return self.analysis.predict(plan) if self.analysis else None

    def summary(self, at_s: float) -> tuple[Remember, ...]:
        """Return a summary of the fit, for the history; nothing before any measurement."""
        if self.analysis is None:
            return ()
        summary = replace(self.analysis.model.summary(at_s), pauses=self._measured.pauses)
        return (Remember(at_s, summary),)

    @property
    def _pauses(self) -> tuple[tuple[str, float], ...]:
        """The pauses of this job's changes; of a kind that it has not made yet, the usual one."""
        own = self._measured.pauses
        made = {kind for kind, _ in own}
        return (*own, *(each for each in self._state.job.pauses if each[0] not in made))

    def tell_deadline(self, story: Story, at_s: float) -> None:
        """Tell the story when the deadline becomes infeasible, or feasible again."""
        deadline = None if self._published is None else self._published.deadline
        if deadline is None or deadline.is_feasible is self._told_feasible or self._state.is_over:
            return
        if self._told_feasible is not None or not deadline.is_feasible:
            story.add(at_s, f"the deadline: {deadline.words}")
        self._told_feasible = deadline.is_feasible
