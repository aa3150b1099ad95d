"""When training ends before its last pass."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check


class Metric(StrEnum):
    """Metric of an evaluation."""

    AUC = "auc"
    LOG_LOSS = "log_loss"
    LOSS = "loss"  # of training, as workers report it


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
