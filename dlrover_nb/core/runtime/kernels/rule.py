"""Optimizer state per parameter, and the constants of an optimizer step.

SGD has no state. Adagrad keeps a sum of squares per parameter; it needs no epsilon, since the sums start
above zero and only grow. Adam keeps two moments, and for each row its number of pushes: rows are updated
lazily, so the bias of a row's moments follows from the row's own count and not from the job's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.runtime.kernels.elementwise import ElementwiseOptimizer
from dlrover_nb.core.structs.job.spec_choices import Optimizer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.job.job import ModelSpec

Floats = NDArray[np.float32]

_DENSE_STATE: Mapping[str, int] = {Optimizer.SGD: 0, Optimizer.ADAGRAD: 1, Optimizer.ADAM: 3}
_FIRST_LENGTH = 1024
_SMALLEST = 2.0**-26  # a power below it no longer changes a float32 near 1


@dataclass(frozen=True, slots=True)
class Rule:
    """An optimizer and its numbers; `added` is that of an installed package, with the model that it reads."""

    optimizer: str
    learning_rate: float
    initial_accumulator: float
    beta1: float
    beta2: float
    epsilon: float
    added: tuple[ElementwiseOptimizer, ModelSpec] | None = None

    @classmethod
    def of(cls, model: ModelSpec) -> Rule:
        """Return the rule of a model.

        Raises
        ------
        InvalidValueError
            When there is no such optimizer here.
        """
        added = ElementwiseOptimizer.named(model.optimizer)
        return cls(
            model.optimizer,
            model.learning_rate,
            model.initial_accumulator,
            model.beta1,
            model.beta2,
            model.epsilon,
            None if added is None else (added, model),
        )

    def row_state(self, width: int) -> int:
        """Return how many floats of state a row of `width` values has."""
        return 2 * width + 1 if self.is_adam else self.dense_state * width

    @property
    def dense_state(self) -> int:
        """Floats of state of one dense parameter."""
        return _DENSE_STATE[self.optimizer] if self.added is None else self.added[0].n_state

    @property
    def first_state(self) -> float:
        """What all state begins with."""
        if self.added is not None:
            return self.added[0].first_state
        return self.initial_accumulator if self.optimizer == Optimizer.ADAGRAD else 0.0

    @property
    def is_adam(self) -> bool:
        """Whether each row also counts its steps, for `Corrections`."""
        return self.optimizer == Optimizer.ADAM


class Corrections:
    """Adam's step sizes by count of steps, computed once for all kernels.

    Row t of the table is (rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t)). A table, because two powers for each
    row would cost more than the rest of its update, and differ in the last bit from one mathematical library
    to another. It ends where both powers vanish beside 1.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        largest = max(rule.beta1, rule.beta2)
        self._last = math.ceil(math.log(_SMALLEST) / math.log(largest)) if largest > 0 else 1
        self._table = self._computed(min(_FIRST_LENGTH, self._last))

    @property
    def is_whole(self) -> bool:
        """Whether the table ends where step sizes no longer change."""
        return len(self._table) > self._last

    def up_to(self, count: int) -> Floats:
        """Return the table, float32 [t, 2], for counts up to `count`; larger ones use its last row."""
        if len(self._table) <= min(count, self._last):
            self._table = self._computed(min(2 * count, self._last))
        return self._table

    def _computed(self, last: int) -> Floats:
        steps = np.arange(1, last + 1, dtype=np.float64)
        table = np.zeros((last + 1, 2), np.float32)
        table[1:, 0] = self._rule.learning_rate / (1 - self._rule.beta1**steps)
        table[1:, 1] = 1 / np.sqrt(1 - self._rule.beta2**steps)
        return table
