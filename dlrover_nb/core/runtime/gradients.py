"""Which gradients may change parameters: finite ones, of a size that leaves optimizer state usable.

One batch with a NaN would turn every parameter that it touches into NaN, and the job would train on nothing.
A gradient of 1e20 is as bad: its square overflows in the sums of Adagrad and Adam, and the row never moves
again. Both show in the norm of all gradients of the batch, which costs one pass over memory that is in the
cache. So a batch is used as a whole or skipped as a whole.

Clipping each gradient to a range was rejected: it would let a broken batch change the model, unnoticed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import WireError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

LARGEST_NORM = 1e15  # its square leaves room in a float32 for sums over 10^8 steps
_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal


def unusable(loss: float, rows: Floats, dense: Floats, *, clip_norm: float | None) -> str:
    """Return why a batch must be skipped; empty: it need not be, and its gradients are clipped.

    Parameters
    ----------
    loss
        Mean loss of the batch.
    rows, dense
        All of its gradients; scaled in place to a norm of `clip_norm` where theirs is larger.
    clip_norm
        None: as they are.
    """
    if not math.isfinite(loss):
        return f"its loss is {loss}"
    norm = norm_of(rows, dense)
    if not math.isfinite(norm):
        return "its gradients are not finite"
    if clip_norm is not None and norm > clip_norm:
        exact = np.float64(clip_norm / norm)
        scale = exact if exact < _SMALLEST_NORMAL else np.float32(exact)  # float32 has few digits below
        for each in (rows, dense):
            np.multiply(each, scale, out=each, casting="same_kind")
    elif norm > LARGEST_NORM:
        return (
            f"its gradients have a norm of {norm:.1e}, above {LARGEST_NORM:g}; clip them to use such batches"
        )
    return ""


def norm_of(*gradients: Floats) -> float:
    """Return the norm of all gradients together; NaN or infinite where one of them is."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = sum(float(np.dot(each, each)) for each in map(np.ravel, gradients))
    if math.isfinite(squares):
        return math.sqrt(squares)
    wide = (each.ravel().astype(np.float64) for each in gradients)  # a square may overflow in 32 bits
    return math.sqrt(sum(float(np.dot(each, each)) for each in wide))


def check_usable(*gradients: Floats) -> None:
    """Raise `WireError` for gradients that no worker may send; a part of a batch's may round up a little."""
    norm = norm_of(*gradients)
    if not norm <= 2 * LARGEST_NORM:
        raise WireError(f"expected finite gradients of a norm up to {LARGEST_NORM:g}, got {norm:g}")
