"""Optimizers that an installed package adds: elementwise updates in numpy.

An entry point of the group ``dlrover_nb.optimizers`` names an `ElementwiseOptimizer`. One function serves
rows of the table and dense parameters, because state has the shape of the values. Rejected: optimizers that
see a whole row (layer-wise rates, say): dense parameters are cut into slices between PS, so an update must
not depend on its neighbours. Adam is not of this kind: it counts the pushes of a row once for all its values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core import extensions
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer

if TYPE_CHECKING:
    from typing import Self

Floats = NDArray[np.float32]
Update = Callable[[Floats, Sequence[Floats], Floats, ModelSpec], None]


@dataclass(frozen=True, slots=True)
class ElementwiseOptimizer:
    """An update of each parameter by its own gradient and state.

    Parameters
    ----------
    update
        Called as ``update(values, state, gradients, model)`` for one step; changes `values` and the arrays of
        `state` in place. All are float32 of one shape, [n, width] for rows and [m] for dense parameters;
        `model` has the learning rate and the other settings.
    n_state
        Arrays of state, which is also the number of floats of state per parameter.
    first_state
        The value that all state begins with.
    """

    update: Update
    n_state: int = 0
    first_state: float = 0.0

    def __post_init__(self) -> None:
        if self.n_state < 0:
            raise InvalidValueError(f"n_state of an optimizer must be at least 0, got {self.n_state}")

    @classmethod
    def named(cls, name: str) -> Self | None:
        """Return the optimizer that an installed package adds; None for one of `Optimizer`.

        Raises
        ------
        InvalidValueError
            When there is none of that name, with the nearest one, or the package that adds it is broken.
        """
        if name in set(Optimizer):
            return None
        optimizer = extensions.find(extensions.OPTIMIZERS, name, dict.fromkeys(Optimizer))
        if not isinstance(optimizer, cls):
            raise InvalidValueError(
                f"optimizer {name} must be an ElementwiseOptimizer, got {type(optimizer).__name__}"
            )
        return optimizer
