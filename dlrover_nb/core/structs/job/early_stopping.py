"""When training ends before its last pass: the rule, and when it is likely to, by the evaluations so far."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check


class Metric(StrEnum):
    """Metric of an evaluation."""

    AUC = "auc"
    LOG_LOSS = "log_loss"
    LOSS = "loss"  # of training, as workers report it


BAND = 0.9  # of `StopForecast.low` to `high`
NAMES = {Metric.AUC: "AUC", Metric.LOG_LOSS: "log loss", Metric.LOSS: "training loss"}


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """End training when evaluations show no further gain, or are good enough.

    AUC and log loss are of held-out rows, scored after every pass but the last, while training goes on. The
    training loss is the mean over a tenth of a pass (more, where that were over 200 evaluations): it needs no
    held-out rows, and is known within a pass. The job keeps the parameters of its end, not those of the best
    evaluation.

    Parameters
    ----------
    metric
        Of an evaluation.
    patience
        Evaluations without a gain of `min_gain` before training ends.
    target
        A value of the metric that is good enough: training ends when it is reached. None: no value is.
    decline
        Share of all that was gained so far that an evaluation must gain, or it counts as none: the threshold
        of the decline rate, the normalised reduction of the loss (Qore-DL, Eq. 10).
    """

    metric: Metric = Metric.AUC
    patience: int = 1
    min_gain: float = 0.0
    target: float | None = None
    decline: float = 0.0

    def __post_init__(self) -> None:
        if self.metric not in set(Metric):
            raise InvalidValueError(
                f"early stopping metric must be auc, log_loss or loss, got {self.metric!r}"
            )
        _check.at_least("early stopping patience", self.patience, 1)
        _check.at_least("early stopping min_gain", self.min_gain, 0)
        _check.fraction("early stopping decline", self.decline)
        if self.target is not None:
            _check.finite("early stopping target", self.target)
            _check.above_zero("early stopping target", self.target)
            if self.metric == Metric.AUC:
                _check.fraction("early stopping target", self.target)

    @property
    def is_held_out(self) -> bool:
        """Whether its metric is of held-out rows."""
        return self.metric != Metric.LOSS


@dataclass(frozen=True, slots=True)
class StopForecast:
    """The predicted end of a job, in training samples from its start.

    Parameters
    ----------
    metric
        Of the rule.
    n_done, n_total, n_pass
        Samples trained so far, those of the job's last pass, and those of one pass.
    at, low, high
        The predicted end, and its 90 % band; all are `n_total` where it is not predictable.
    decline
        Last gain as a share of all that was gained so far: the decline rate of Qore-DL; None: not known yet.
    why_not
        Why it is not predictable; empty: it is.
    """

    metric: Metric
    n_done: int
    n_total: int
    n_pass: int
    at: int
    low: int
    high: int
    decline: float | None = None
    why_not: str = ""

    @property
    def is_early(self) -> bool:
        """Whether the job is likely to end before its last pass."""
        return not self.why_not and self.at < self.n_total

    @property
    def n_sample_left(self) -> int:
        """Samples that are likely to be trained from now on."""
        return max(self.at - self.n_done, 0)

    @property
    def n_more(self) -> int:
        """Samples beyond them at the upper end of the band."""
        return max(self.high - max(self.at, self.n_done), 0)

    @property
    def n_less(self) -> int:
        """Samples fewer than them at the lower end of the band."""
        return max(self.at - max(self.low, self.n_done), 0)

    @property
    def words(self) -> str:
        """The forecast in one line."""
        of = f"{self.n_total / max(self.n_pass, 1):g}"
        name = NAMES[Metric(self.metric)]
        if self.why_not:
            return f"we cannot predict whether it stops before its {of} passes: {self.why_not}"
        low, high = self._passes(self.low), self._passes(self.high)
        band = f"90 % band {low} to {high}, by its {name}"
        rate = "" if self.decline is None else f"; last gain {percent(self.decline, 1)} of all so far"
        if not self.is_early:
            return f"it will probably train all its {of} passes ({band}){rate}"
        return f"will stop after about {self._passes(self.at)} of {of} passes ({band}){rate}"

    def _passes(self, n_sample: int) -> str:
        return f"{n_sample / max(self.n_pass, 1):.1f}"
