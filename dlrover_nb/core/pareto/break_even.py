"""What would change a recommendation: the nearest value of one quantity at which it differs.

A recommendation depends on uncertain numbers. Its certainty is expressed not as a percentage but as the
number that, if it were different, would change the advice, and by how much. So each quantity is varied in
both directions, the same decision is made again, and the first change is located by bisection. Quantities are
compared by their own uncertainty: a throughput that flips the advice one standard deviation away is nearer
than a price that has to double.

All quantities are positive and move by factors; a step is the factor that counts as one unit of plausibility.
Between two tested values the advice may change and change back undetected; the returned value is still one at
which it changes. Beyond `FARTHEST` units no value is plausible, and None is returned: nothing plausible would
change the recommendation. Rejected: derivatives of the decision (it is a maximum over plans and has none) and
closed forms per rule (they become wrong when a rule changes).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.decisions.decisions import BreakEven

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.structs.plan.resources import ResourcePlan

LOOKED_AT = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)  # units of plausibility away from the present value
FARTHEST = LOOKED_AT[-1]
N_HALVING = 12


@dataclass(frozen=True, slots=True)
class Quantity:
    """An input of a recommendation.

    Parameters
    ----------
    name
        In the field's words: ``throughput of the proposed plan``.
    now
        Its value, > 0, in `unit`.
    spread
        Logarithm of the factor that counts as one unit of plausibility, > 0.
    decide
        The plan that would be recommended at another value; the present plan means no change.
    up, down
        Whether larger and smaller values are possible.
    clauses
        What it says below and above a value: ``switching took less than``, ``switching took longer than``.
        Empty: made from its name.
    """

    name: str
    now: float
    unit: str
    spread: float
    decide: Callable[[float], ResourcePlan]
    up: bool = True
    down: bool = True
    clauses: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        _check.above_zero(self.name, self.now)
        _check.above_zero(f"spread of {self.name}", self.spread)

    def at(self, distance: float) -> float:
        """Return the value at this distance in units of plausibility (negative: below)."""
        return self.now * exp(distance * self.spread)


def nearest_break_even(
    quantities: Sequence[Quantity], *, recommended: ResourcePlan, present: ResourcePlan
) -> BreakEven | None:
    """Return the most plausible change of one quantity at which another plan is recommended, None if none.

    Parameters
    ----------
    recommended
        What is recommended now.
    present
        The plan that runs: recommending it beyond the break-even means no change.
    """
    nearest, change = FARTHEST, None
    for quantity in quantities:
        for sign in [s for s, possible in ((-1, quantity.down), (1, quantity.up)) if possible]:
            distance = _first_change(quantity, sign, recommended, nearest)
            if distance is not None:
                nearest, change = distance, (quantity, sign * distance)
    return _flip(*change, recommended, present) if change else None


def _first_change(quantity: Quantity, sign: int, recommended: ResourcePlan, within: float) -> float | None:
    """Return the least tested distance at which the recommendation changes, up to `within`."""
    same = 0.0
    for distance in (*(d for d in LOOKED_AT if d < within), within):
        if quantity.decide(quantity.at(sign * distance)) != recommended:
            return _narrowed(quantity, sign, recommended, (same, distance))
        same = distance
    return None


def _narrowed(
    quantity: Quantity, sign: int, recommended: ResourcePlan, between: tuple[float, float]
) -> float:
    """Bisect: return a distance at which the recommendation differs, just beyond where it is the same."""
    same, other = between
    for _ in range(N_HALVING):
        middle = (same + other) / 2
        if quantity.decide(quantity.at(sign * middle)) == recommended:
            same = middle
        else:
            other = middle
    return other


def _flip(quantity: Quantity, distance: float, recommended: ResourcePlan, present: ResourcePlan) -> BreakEven:
    at = quantity.at(distance)
    plan = quantity.decide(at)
    then = "the present plan" if plan == present else _short_words(plan, recommended)
    unit = f" {quantity.unit}" if quantity.unit else ""
    side = "above" if distance > 0 else "below"
    clause = quantity.clauses[distance > 0] or f"the {quantity.name} were {side}"
    then_at, now = _numbers(at, quantity.now)
    words = f"If {clause} {then_at}{unit} (now {now}{unit}), {then} would win."
    return BreakEven(quantity.name, quantity.now, at, quantity.unit, plan, words)


def _short_words(plan: ResourcePlan, recommended: ResourcePlan) -> str:
    """Name a plan by its counts where nodes have the sizes of the recommended ones, else with its sizes."""
    if (plan.worker.cpu, plan.ps.cpu) != (recommended.worker.cpu, recommended.ps.cpu):
        return plan.short
    n = plan.worker.count
    return f"{n} worker{'s' * (n != 1)} + {plan.ps.count} PS"


def _numbers(at: float, now: float) -> tuple[str, str]:
    """Return two numbers with as few digits as tell them apart."""
    short = _number(at, 2), _number(now, 2)
    return short if short[0] != short[1] else (_number(at, 4), _number(now, 4))


def _number(value: float, digits: int) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}" if abs(value) < 1 else f"{value:.{max(digits, 3)}g}"
