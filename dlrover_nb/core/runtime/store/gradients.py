"""Which gradients may change parameters: finite ones, of a size that leaves optimizer state usable.

One batch with a NaN would turn every parameter that it touches into NaN, and the job would train on nothing.
A gradient of 1e20 is as bad: its square overflows in the sums of Adagrad and Adam, and the row never moves
again. One that is finite and a million times the usual is hardly better: the sums of Adagrad keep its square,
so all later steps are a million times too small. All of them show in the norm of all gradients of the batch,
which costs one pass over memory that is in the cache. So a batch is used as a whole or skipped as a whole.

What is usual depends on the model and its loss, so each worker learns it (`UsualNorm`) from the batches that
it has used. It is the highest median of a few norms in a row: the sums of Adagrad keep all that came, so a
job whose gradients have become small is not hurt by one as large as those of its start; and a few outliers
never make others usual, as a median does not see them. The first batches have none before them. A large one
among them is compared with parts of itself: a row that breaks a batch is in one part only. So a worker that
starts anew, or joins late, needs no norm of others, and no message carries one.

A parameter server cannot judge so: it sees only its own part of a batch, and another one may have applied
its part. It refuses what would overflow (`check_usable`).

Clipping each gradient to a range was rejected: it would let a broken batch change the model, unnoticed.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.models.learner import Gradients, Learner
    from dlrover_nb.core.runtime.store.batches import PreparedBatch

    Floats = NDArray[np.float32]
    Ids = NDArray[np.int64]

LARGEST_NORM = 1e15  # its square leaves room in a float32 for sums over 10^8 steps
MOST_TIMES_USUAL = 1e3  # batches of real click logs differ 50-fold, even those of four rows
HARMLESS_NORM = 100.0  # hard rows have it where a trained model gives nearly no gradients else
N_NORMS, LEAST_NORMS = 15, 5  # of batches in a row whose median counts: two of the first five may be outliers
N_PARTS, LEAST_PARTS = 8, 3  # of a batch that is compared with itself
LEAST_PART_ROWS = 2  # a batch normalization refuses a single row
_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal


class UsualNorm:
    """The norm that gradients of a job have, learnt from the batches that were used.

    Attributes
    ----------
    value
        The highest median of norms in a row; 0.0: there were too few.
    """

    def __init__(self) -> None:
        self._norms: deque[float] = deque(maxlen=N_NORMS)
        self.value = 0.0

    def count(self, norm: float) -> None:
        """Learn from a batch that is used; one without any gradient teaches nothing."""
        if norm > 0:
            self._norms.append(norm)
        if len(self._norms) >= LEAST_NORMS:
            self.value = max(self.value, median(self._norms))

    def when_exceeded(self, norm: float, of_parts: Callable[[], Sequence[float]]) -> float | None:
        """Return the usual norm that this one exceeds by far; None: it does not.

        Parameters
        ----------
        of_parts
            Norms of parts of the batch, which are asked for while there is no usual one yet.
        """
        if norm <= HARMLESS_NORM:
            return None
        usual = self.value or median(of_parts() or [norm])
        return usual if norm > MOST_TIMES_USUAL * usual else None


def unusable(  # noqa: PLR0913 - all but three by keyword
    loss: float,
    rows: Floats,
    dense: Floats,
    *,
    clip_norm: float | None,
    usual: UsualNorm,
    of_parts: Callable[[], Sequence[float]],
    order: Ids | None = None,
) -> str:
    """Return why a batch must be skipped; empty: it need not be, and its gradients are clipped.

    Parameters
    ----------
    loss
        Mean loss of the batch.
    rows, dense
        All of its gradients; scaled in place to a norm of `clip_norm` where theirs is larger.
    clip_norm
        None: as they are.
    usual
        The norm of other batches; learns from this one where it is used.
    of_parts
        Returns the norms of parts of the batch, see `UsualNorm.when_exceeded`.
    order
        In which the squares of rows are summed, see `ordered_norm`; None: in any.
    """
    if not math.isfinite(loss):
        return f"its loss is {loss}"
    norm = norm_of(rows, dense) if order is None else ordered_norm(rows, dense, order)
    if not math.isfinite(norm):
        return "its gradients are not finite"
    if clip_norm is not None and norm > clip_norm:
        exact = np.float64(clip_norm / norm)
        scale = exact if exact < _SMALLEST_NORMAL else np.float32(exact)  # float32 has few digits below
        for each in (rows, dense):
            np.multiply(each, scale, out=each, casting="same_kind")
        usual.count(clip_norm)
        return ""
    if norm > LARGEST_NORM:
        why = f"above {LARGEST_NORM:g}"
    elif (exceeded := usual.when_exceeded(norm, of_parts)) is not None:
        why = f"far above the usual {exceeded:.1e}"
    else:
        usual.count(norm)
        return ""
    return f"its gradients have a norm of {norm:.1e}, {why}; set gradient_clip_norm to use such batches"


class BatchCheck:
    """Whether the batches of one learner may be used, by what is usual among them.

    Parameters
    ----------
    learner
        Holds the dense gradients and averages of the batch that was computed last.
    clip_norm
        As of `unusable`.
    is_deterministic
        Whether the answer, and what is clipped, may depend on the batch alone: then it is compared with parts
        of itself, as others are computed elsewhere, and on any number of PS to the same bits.
    """

    def __init__(self, learner: Learner, clip_norm: float | None, *, is_deterministic: bool = False) -> None:
        self._learner, self._clip_norm, self._usual = learner, clip_norm, UsualNorm()
        self._is_deterministic = is_deterministic

    def why_unusable(self, batch: PreparedBatch, rows: Floats, gradients: Gradients) -> str:
        """Return why the batch must be skipped; else its gradients are clipped (`unusable`).

        `rows` are the values of its distinct rows, [u, row_width].
        """
        if math.isfinite(gradients.loss) and not np.isfinite(self._learner.shares).all():
            return "its mean or variance in a batch normalization is not finite"
        order = np.argsort(batch.rows) if self._is_deterministic else None
        return unusable(
            gradients.loss,
            gradients.rows,
            self._learner.parameter_gradients,
            clip_norm=self._clip_norm,
            usual=self._usual if order is None else UsualNorm(),
            of_parts=partial(part_norms, self._learner, rows, batch, order=order),
            order=order,
        )


def part_norms(
    learner: Learner, rows: Floats, batch: PreparedBatch, *, order: Ids | None = None
) -> list[float]:
    """Return the norms of the gradients of parts of a batch; none where it has too few rows for parts.

    The gradients that the learner holds are as before.

    Parameters
    ----------
    rows
        Values of the distinct rows of the batch, [u, row_width].
    order
        As of `unusable`.
    """
    n_row = len(batch.labels)
    n_part = min(N_PARTS, n_row // LEAST_PART_ROWS)
    if n_part < LEAST_PARTS:
        return []
    before, n_id = learner.gradients.copy(), len(batch.inverse) // n_row
    norms, ends = [], [n_row * i // n_part for i in range(n_part + 1)]
    for start, stop in pairwise(ends):
        inverse = batch.inverse[start * n_id : stop * n_id]
        part = learner.step(rows, inverse, batch.dense[start:stop], batch.labels[start:stop])
        dense = learner.parameter_gradients
        norms.append(norm_of(part.rows, dense) if order is None else ordered_norm(part.rows, dense, order))
    learner.gradients[:] = before
    return [norm for norm in norms if math.isfinite(norm)]


def norm_of(*gradients: Floats) -> float:
    """Return the norm of all gradients together; NaN or infinite where one of them is."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = sum(float(np.dot(each, each)) for each in map(np.ravel, gradients))
    if math.isfinite(squares):
        return math.sqrt(squares)
    wide = (each.ravel().astype(np.float64) for each in gradients)  # a square may overflow in 32 bits
    return math.sqrt(sum(float(np.dot(each, each)) for each in wide))


def ordered_norm(rows: Floats, dense: Floats, order: Ids) -> float:
    """Return the norm of rows [u, width], taken in an order [u], and dense gradients; as `norm_of`.

    Rows of a batch are grouped by the PS that hold them, and a sum of floats follows the order of its terms.
    The products of BLAS may follow the number of its threads too: numpy's sums do not.
    """
    wide = (each.astype(np.float64) for each in (rows[order].ravel(), dense))
    return math.sqrt(sum(float(np.square(each).sum()) for each in wide))


def check_finite(averages: Floats) -> None:
    """Raise `WireError` for shares of running averages that are not finite."""
    if not np.isfinite(averages).all():
        raise WireError("expected finite running averages, got others")


def check_usable(*gradients: Floats) -> None:
    """Raise `WireError` for gradients that no worker may send; a part of a batch's may round up a little."""
    norm = norm_of(*gradients)
    if not norm <= 2 * LARGEST_NORM:
        raise WireError(f"expected finite gradients of a norm up to {LARGEST_NORM:g}, got {norm:g}")
