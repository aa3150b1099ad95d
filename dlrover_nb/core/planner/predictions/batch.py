"""Mini-batches that the workers of a plan would have, m of Eq. 1, and how they exchange gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.perf.forms import Exchange
from dlrover_nb.core.structs.job.spec_choices import Sync

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.job.job import JobSpec

    Array = NDArray[np.float64]


def batch_sizes(spec: JobSpec, axes: Array) -> Array:
    """Return m of plans given as rows (w, p, lambda_w, lambda_p): shape (n_plans,).

    The workers of a job with a global batch B share it, m = B/w; without it, or where PS gather it, all plans
    have the same m. The same rounding as `JobSpec.batch_of`, by which measured plans are known again.
    """
    if spec.shared_batch is None:
        each = spec.batch_of(1)
        return np.full(len(axes), float(each))
    return np.maximum(np.rint(spec.shared_batch / axes[:, 0]), 1.0)


def exchange(spec: JobSpec) -> Exchange:
    """Return how a job's workers exchange gradients; torch programs of others are taken to sum them."""
    is_ring = spec.foreign is not None and spec.foreign.framework.has_store
    return Exchange.RING if is_ring or spec.sync is Sync.ALLREDUCE else Exchange.PS


def mini_batch(spec: JobSpec) -> int | None:
    """Return the rows of the mini-batches that workers accumulate of a global batch; None: they do not."""
    is_shared = exchange(spec) is Exchange.RING and spec.global_batch is not None
    return spec.batch_size if is_shared else None
