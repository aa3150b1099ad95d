"""How old gradients will be in a plan, before it runs.

The age of a gradient is the number of updates by other workers between the read of its parameters and its
apply (`structs.training.gradient_ages`). Its mean follows from a law of conservation: of w workers each has
one gradient in the making at any moment, and each update by one worker makes those of the w - 1 others one
update older. All updates together age gradients as much as they apply, so the mean age is w - 1, whatever
the speeds, waits and number of parameter servers (PS) are: as a mean over a run it is Mishchenko et al.
(arXiv 2206.07638) and Koloskova et al. (arXiv 2206.08307), in queueing theory Little's law. Speeds decide
whose gradients are old: worker i with r_i of R updates per second sees (R - r_i) / r_i of others in one
iteration.

- Where exchanges overlap with computing, a gradient spans two iterations of its worker: twice the age.
- Where n gradients are applied together, as one step, an age in steps is that in gradients over n.
- In BSP and all-reduce all gradients of a step are of one version: 0.
- SSP has the same mean: a worker that must wait has its gradient in the making meanwhile. Its bound cuts the
  tail.

Each exchange goes to all PS, and each PS counts its updates: so ages do not depend on their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


def mean_ages(n_worker: ArrayLike, *, in_step: bool = False, overlap: bool = False) -> Array:
    """Return the mean age, in updates, with each number of workers.

    Parameters
    ----------
    n_worker
        Numbers of workers; any shape.
    in_step
        All gradients of a step are computed from one version of the parameters, as in BSP.
    overlap
        Exchanges overlap with computing, so that a gradient spans two iterations of its worker.
    """
    w = np.asarray(n_worker, dtype=np.float64)
    return np.zeros_like(w) if in_step else (2 if overlap else 1) * (w - 1)
