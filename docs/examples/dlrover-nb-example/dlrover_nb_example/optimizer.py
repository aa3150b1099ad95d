"""An optimizer of the parameter servers: gradient descent with momentum (Polyak 1964)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.kernels.elementwise import ElementwiseOptimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.runtime.kernels.elementwise import Floats
    from dlrover_nb.core.structs.job.job import ModelSpec


def momentum(values: Floats, state: Sequence[Floats], gradients: Floats, model: ModelSpec) -> None:
    """Apply velocity = beta1 * velocity + g, then values -= rate * velocity, in place."""
    (velocity,) = state
    velocity *= np.float32(model.beta1)
    velocity += gradients
    values -= np.float32(model.learning_rate) * velocity


MOMENTUM = ElementwiseOptimizer(momentum, n_state=1)
