"""Auto mode of one job: its record of changes, and the result of `auto_policy` at a moment."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.auto_policy import AutoContext, Refusal, limits, may_apply
from dlrover_nb.core.planner.advising.advice import Limits, axes_key
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Quota

if TYPE_CHECKING:
    from dlrover_nb.core.controller.plans.rollouts import Rollouts
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.structs.decisions.decisions import Proposal


class AutoMode:
    """Decides what auto mode may do with one job.

    Parameters
    ----------
    settings
        Its thresholds, and how long it waits after a change.
    state, rollouts
        The job, and its plans through time.
    """

    def __init__(self, settings: ControllerSettings, state: JobState, rollouts: Rollouts) -> None:
        self._settings, self._state, self._rollouts = settings, state, rollouts
        self._decided_at_s: deque[float] = deque(maxlen=settings.auto.max_changes_per_hour)

    @property
    def is_on(self) -> bool:
        """Whether auto mode decides now."""
        return self._state.mode is Mode.AUTO

    def decided(self, at_s: float) -> None:
        """Record that it has accepted a proposal."""
        self._decided_at_s.append(at_s)

    def refusal(self, proposal: Proposal, at_s: float) -> Refusal | None:
        """Return why it must not apply a proposal now; None when it may."""
        return may_apply(proposal, self._context(at_s), self._settings.auto)

    def limits(self, at_s: float) -> Limits | None:
        """Return the limits of advice; None where a user decides."""
        return limits(self._context(at_s), self._settings.auto) if self.is_on else None

    def bounds(self, at_s: float) -> Limits | None:
        """Return what advice keeps to: auto mode's limits, or in suggest mode what other jobs leave."""
        own, quota = self.limits(at_s), self._state.quota
        is_asking = self._state.mode is Mode.SUGGEST and quota != Quota()
        return Limits(quota=quota) if is_asking else own

    def _context(self, at_s: float) -> AutoContext:
        rollouts = self._rollouts
        return AutoContext(
            at_s=at_s,
            spec=self._state.spec,
            pins=self._state.pins,
            plan=rollouts.target,
            calm_at_s=rollouts.changed_at_s + self._settings.cool_down_s,
            changes=self._decided_at_s,
            left=rollouts.left,
            replaced=rollouts.replaced,
            experiments=rollouts.experiments,
            ran=frozenset(axes_key(marker.plan) for marker in rollouts.markers),
            outcomes=rollouts.outcomes,
            quota=self._state.quota,
            money_left=self._state.money_to_end,
        )
