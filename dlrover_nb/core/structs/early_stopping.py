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


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """End training when evaluations on held-out rows show no further gain.

    They are scored after every pass but the last, while training goes on. The job keeps the parameters of its
    end, not those of the best evaluation.

    Parameters
    ----------
    metric
        Of an evaluation after every pass.
    patience
        Evaluations without a gain of `min_gain` before training ends.
    """

    metric: Metric = Metric.AUC
    patience: int = 1
    min_gain: float = 0.0

    def __post_init__(self) -> None:
        if self.metric not in set(Metric):
            raise InvalidValueError(f"early stopping metric must be auc or log_loss, got {self.metric!r}")
        _check.at_least("early stopping patience", self.patience, 1)
        _check.at_least("early stopping min_gain", self.min_gain, 0)
