"""What the driver tells about a job from parts that its master and controller do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.models.metrics import auc, log_loss
from dlrover_nb.core.models.table import dense_parameter_count
from dlrover_nb.core.structs.events import JobSubmitted
from dlrover_nb.core.structs.snapshot import Evaluation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.job import FeatureSpec, JobSpec
    from dlrover_nb.core.structs.resources import Capacity

FLOAT_BYTES = 4


def submitted(spec: JobSpec, features: FeatureSpec, capacity: Capacity, at_s: float) -> JobSubmitted:
    """Return the first fact of a job, with M of Eq. 4 and D of Eq. 5 from its model and columns."""
    n_categorical, n_numeric = len(features.categorical), len(features.numeric)
    return JobSubmitted(
        at_s=at_s,
        spec=spec,
        capacity=capacity,
        n_sample_total=features.n_train * spec.n_epoch,
        dense_bytes=FLOAT_BYTES * dense_parameter_count(spec.model, n_categorical, n_numeric),
        embedding_dim=n_categorical * spec.model.row_width,
    )


def evaluate(scores: NDArray[np.float32], labels: NDArray[np.float32]) -> Evaluation:
    """Return the quality of scores; `InvalidValueError` where the labels are all of one class."""
    return Evaluation(auc(scores, labels), log_loss(scores, labels), len(labels))
