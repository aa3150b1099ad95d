"""What a trained model is worth, by how old its gradients were: measured points, and the curve of one job.

More asynchronous workers make gradients older, and older gradients make a worse model. How much worse is a
property of the model, the optimizer, the batch and the data: it is measured, by a rehearsal or by
the runs of the job itself, and read off for a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.structs import _check


class CurveOrigin(StrEnum):
    """Where the points of a curve were measured."""

    REHEARSAL = "rehearsal"  # short runs on a sample of the job's own rows, with a delay imposed
    RUNS = "runs"  # runs of the job itself under its own plans
    SIMILAR = "similar"  # jobs of the history with the same model, optimizer and kind of data


@dataclass(frozen=True, slots=True)
class QualityPoint:
    """Held-out quality at one age of gradients, less that at age 0.

    Parameters
    ----------
    age
        Mean age of the gradients, in updates by other workers, as `GradientAges` counts.
    loss, auc
        Changes of the mean held-out loss (nats) and of the area under the ROC curve (a fraction): a loss
        above 0 and an AUC below 0 are worse.
    loss_error, auc_error
        Standard errors of the two, over seeds.
    n_seed
        How many seeds they are a mean of.
    """

    age: float
    loss: float
    auc: float
    loss_error: float
    auc_error: float
    n_seed: int

    def __post_init__(self) -> None:
        _check.at_least("age", self.age, 0)
        _check.at_least("loss_error", self.loss_error, 0)
        _check.at_least("auc_error", self.auc_error, 0)
        _check.at_least("seeds", self.n_seed, 1)


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """Quality against age for one way of applying gradients, in one setting of training.

    Parameters
    ----------
    way
        How gradients are applied: a name of `Sync`, or of `StaleSteps` where steps follow the age.
    origin
        Where it was measured.
    batch_size, n_row, n_epoch, learning_rate, optimizer
        Of the runs: samples of a worker's batch, training rows, passes over them, and the model's settings.
    base_loss, base_auc
        Mean held-out loss and AUC at age 0.
    points
        By rising age, each age once.
    """

    way: str
    origin: CurveOrigin
    batch_size: int
    n_row: int
    n_epoch: int
    learning_rate: float
    optimizer: str
    base_loss: float
    base_auc: float
    points: tuple[QualityPoint, ...]

    def __post_init__(self) -> None:
        _check.at_least("batch_size", self.batch_size, 1)
        _check.at_least("rows", self.n_row, 1)
        _check.at_least("passes", self.n_epoch, 1)
        _check.above_zero("learning_rate", self.learning_rate)
        ages = [point.age for point in self.points]
        _check.at_least("points of a curve", len(ages), 1)
        _check.at_least("points in order of age", int(ages == sorted(set(ages))), 1)
