"""Steps of the optimizer with other learning rates than the model's, for single pushes (ADJUST_LR).

The rate is a number of the rule, and of Adam's table of step sizes: so each factor has a rule of its own, and
the kernels know nothing of factors. A push of factor 1 takes the model's own rule, and costs what it did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.kernels.rule import Corrections, Rule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

MOST_STEPS = 1 << 62
_AHEAD = 256  # steps of which a kernel needs the sizes at once
_MOST_COUNTED = 1 << 24  # a float32 counts no further
MOST_KEPT = 64  # factors whose rule is kept: a job has about as many as workers


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps of several factors of the rate: of each the rule and, for Adam, its sizes of `n_step` steps."""

    factors: tuple[float, ...] = ()
    n_step: int = -1
    rules: tuple[Rule, ...] = ()
    sizes: tuple[Floats | None, ...] = ()


class Rates:
    """What kernels need for a step: the rule, and for Adam its step sizes, for each factor of the rate.

    Parameters
    ----------
    rule
        With the model's own learning rate.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule, self._own = rule, _with_corrections(rule)
        self._others: dict[float, tuple[Rule, Corrections | None]] = {}
        self._table = StepTable()
        self._most_steps = 0  # the largest number of updates of any parameter

    def of(self, rule: Rule) -> Rates:
        """Return the same of another rule, which goes on after the steps so far."""
        rates = Rates(rule)
        rates.made_steps(self._most_steps)
        return rates

    def step(self, factor: float) -> tuple[Rule, Floats | None]:
        """Return the rule and the step sizes of the next step."""
        rule, corrections = self._own if factor == 1.0 else self._scaled(factor)
        if corrections is None:
            return rule, None
        self._most_steps += 1
        return rule, corrections.up_to(self._most_steps)

    def ahead(self) -> tuple[Floats | None, int, int]:
        """Return the step sizes of the own rate, the steps so far, and how many the sizes are for."""
        corrections = self._own[1]
        if corrections is None:
            return None, self._most_steps, MOST_STEPS
        table = corrections.up_to(self._most_steps + _AHEAD)
        return table, self._most_steps, MOST_STEPS if corrections.is_whole else len(table) - 1

    def table(self, factors: tuple[float, ...]) -> StepTable:
        """Return a step for each of some factors, for as many steps as `ahead` is for."""
        corrections = self._own[1]
        n_step = 0 if corrections is None else len(corrections.up_to(self._most_steps + _AHEAD))
        if (factors, n_step) != (self._table.factors, self._table.n_step):
            steps = tuple(self._scaled(factor) for factor in factors)
            sizes = tuple(each.up_to(n_step - 1) if each else None for _, each in steps)
            self._table = StepTable(factors, n_step, tuple(rule for rule, _ in steps), sizes)
        return self._table

    def made_steps(self, most: int) -> None:
        """Record steps that a kernel made itself."""
        self._most_steps = max(self._most_steps, most)

    def saw_steps(self, counts: Floats) -> None:
        """Record counts of steps of parameters that were not updated here.

        Raises
        ------
        CheckpointError
            When they are none: a kernel takes them for places in the table of step sizes.
        """
        least, most = counts.min(initial=0), counts.max(initial=0)
        if not (least >= 0 and most <= _MOST_COUNTED):
            raise CheckpointError(
                f"the rows are damaged: expected counts of Adam's steps from 0 to {_MOST_COUNTED}, "
                f"got {least:g} to {most:g}; use an earlier checkpoint"
            )
        self._most_steps = max(self._most_steps, int(most))

    def _scaled(self, factor: float) -> tuple[Rule, Corrections | None]:
        if factor not in self._others:
            if len(self._others) >= MOST_KEPT:
                self._others.pop(next(iter(self._others)))
            self._others[factor] = _with_corrections(scaled(self._rule, factor))
        return self._others[factor]


def scaled(rule: Rule, factor: float) -> Rule:
    """Return a rule of `factor` times the learning rate."""
    rate = rule.learning_rate * factor
    if rule.added is None:
        return replace(rule, learning_rate=rate)
    optimizer, model = rule.added
    return replace(rule, learning_rate=rate, added=(optimizer, replace(model, learning_rate=rate)))


def _with_corrections(rule: Rule) -> tuple[Rule, Corrections | None]:
    return rule, Corrections(rule) if rule.is_adam else None
