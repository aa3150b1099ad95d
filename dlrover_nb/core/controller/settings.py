"""The controller's durations and thresholds, in one record."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlrover_nb.core.controller.auto_policy import AutoSettings
from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.structs import _check


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of measuring and of proposing.

    Parameters
    ----------
    window_s, max_window_s, min_window_iter
        A window closes after `window_s` once every worker has reported and did `min_window_iter` iterations
        (fewer would count iterations, not speed), or after `max_window_s`.
    settle_s
        Time after a change of plan that is left out.
    n_stable, stable_cv
        Steady: the last `n_stable` windows have a coefficient of variation below `stable_cv` (NEARCHUS).
    n_patience
        After so many windows the last `n_stable` count with any scatter: a noisy machine gets wide bands, not
        none.
    n_kept
        Newest windows kept of each plan.
    n_outcome
        Steady windows behind the measured side of an outcome.
    refit_growth, refit_s
        Refit when a plan's first windows arrive, then when samples or the plan's time grew by this share, not
        more often than each `refit_s` for time alone.
    manual_publish_s
        Time between two published analyses of one plan in manual mode, where nothing is decided by them; 0:
        each is published.
    max_explore
        Experiments proposed to a user in a row; in auto mode they end by the value of information.
    cool_down_s
        Time that auto mode leaves between two changes.
    supersede_gain
        How much better a plan must be, at the low end of its band, to replace an open proposal.
    oom_threshold
        Probability of an OOM kill of a node from which on more memory is proposed.
    memory_check_s
        Time between two forecasts of memory, at first.
    busy_pending_s
        The cluster is busy where nodes wait longer than this for their places, in the mean: no node is
        restarted then.
    row_s
        Time that one row of the rolled-up series spans.
    planner, auto
        When a plan is worth a proposal; thresholds of auto mode.

    Notes
    -----
    Refits are bounded. As the time to the next one grows with the plan's own, a plan that ran for T seconds
    and n windows has at most log(n) / log(1 + `refit_growth`) of them for its windows and
    1 / `refit_growth` + log(T / `refit_s`) / log(1 + `refit_growth`) for its time.
    """

    window_s: float = 2.0
    max_window_s: float = 15.0
    min_window_iter: int = 10
    settle_s: float = 3.0
    n_stable: int = 5
    stable_cv: float = 0.05
    n_patience: int = 8
    n_kept: int = 40
    n_outcome: int = 5
    refit_growth: float = 0.2
    refit_s: float = 20.0
    manual_publish_s: float = 0.0
    max_explore: int = 8
    cool_down_s: float = 10.0
    supersede_gain: float = 0.1
    oom_threshold: float = 0.2
    memory_check_s: float = 30.0
    busy_pending_s: float = 60.0
    row_s: float = 60.0
    planner: PlannerSettings = field(default_factory=PlannerSettings)
    auto: AutoSettings = field(default_factory=AutoSettings)

    def __post_init__(self) -> None:
        _check.above_zero("window_s", self.window_s)
        _check.at_least("max_window_s", self.max_window_s, self.window_s)
        _check.at_least("settle_s", self.settle_s, 0)
        _check.at_least("manual_publish_s", self.manual_publish_s, 0)
        _check.at_least("n_stable", self.n_stable, 2)
        _check.at_least("n_patience", self.n_patience, self.n_stable)
        _check.at_least("n_kept", self.n_kept, self.n_stable)
        _check.at_least("n_outcome", self.n_outcome, 1)
        _check.fraction("oom_threshold", self.oom_threshold)
        for name in ("refit_growth", "refit_s", "memory_check_s", "busy_pending_s", "row_s"):
            _check.above_zero(name, getattr(self, name))
