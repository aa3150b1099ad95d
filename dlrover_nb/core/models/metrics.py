"""Quality of predicted probabilities, exactly, on arrays of all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.views.snapshot import Evaluation

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CLIP = 1e-7  # a float32 probability may round to 0 or 1; its logarithm must stay finite


def auc(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the area under the ROC curve: the chance that a positive row scores above a negative one.

    Equal scores count half (midranks), so the value does not depend on the order of the rows.

    Raises
    ------
    InvalidValueError
        When the rows are all of one class, for which the AUC is not defined.
    """
    positive = labels > 0.5
    n_positive = int(positive.sum())
    n_negative = len(labels) - n_positive
    check_classes(n_positive, n_negative)
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(count)
    midrank = last_rank - (count - 1) / 2
    rank_sum = float(midrank[place][positive].sum())
    return (rank_sum - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)  # Mann-Whitney U


def check_classes(n_positive: int, n_negative: int) -> None:
    """Raise `InvalidValueError` unless there are rows of both classes."""
    if n_positive == 0 or n_negative == 0:
        raise InvalidValueError(
            f"AUC needs rows of both classes, got {n_positive} positive and {n_negative} negative; "
            "evaluate on more rows"
        )


def log_loss(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the mean negative log likelihood of the labels, in nats."""
    p = np.clip(scores.astype(np.float64), _CLIP, 1 - _CLIP)
    return float(-np.mean(np.where(labels > 0.5, np.log(p), np.log1p(-p))))


def evaluate(scores: NDArray[np.float32], labels: NDArray[np.float32]) -> Evaluation:
    """Return the quality of scores; `InvalidValueError` where the labels are all of one class."""
    return Evaluation(auc(scores, labels), log_loss(scores, labels), len(labels))
