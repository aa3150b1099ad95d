"""Mini-batches that the workers of a plan would have: m of Eq. 1, one number or one per plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.job import JobSpec

    Array = NDArray[np.float64]


def batch_sizes(spec: JobSpec, axes: Array) -> Array:
    """Return m of plans given as rows (w, p, lambda_w, lambda_p): shape (n_plans,).

    The workers of a job with a global batch B share it, m = B/w; without it all plans have the same m. The
    same rounding as `JobSpec.batch_of`, by which measured plans are known again.
    """
    if spec.global_batch is None:
        return np.full(len(axes), float(spec.batch_size))
    return np.maximum(np.rint(spec.global_batch / axes[:, 0]), 1.0)
