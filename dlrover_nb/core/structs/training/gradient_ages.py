"""How old gradients were when a parameter server applied them.

A gradient's age is the number of updates by other workers between the rows that it was computed from and the
gradient itself. In BSP it is 0; without rounds it grows with the workers, and most for the slow ones.

Ages are counted exactly up to 3, and above in two classes to each doubling (4-5, 6-7, 8-11, 12-15, ...): a
few numbers then tell the ages of thousands of gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Iterable

N_CLASS = 24  # the last one begins at 3072 updates and has no end


@dataclass(frozen=True, slots=True)
class GradientAges:
    """How many gradients of one worker were applied in a window, by the class of their age.

    `counts` ends with the oldest class that has any.
    """

    worker: str
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        _check.at_least("classes of ages", N_CLASS - len(self.counts), 0)
        _check.at_least("gradients of an age", min(self.counts, default=0), 0)


def class_of(age: int) -> int:
    """Return the class of an age: `class_of_age` of serve.c."""
    if age < 2:
        return max(age, 0)
    power = age.bit_length() - 1
    return min(2 * power + (age >> (power - 1) & 1), N_CLASS - 1)


def least_age(number: int) -> int:
    """Return the least age of a class."""
    return number if number < 2 else (2 + number % 2) << (number // 2 - 1)


def without_end_zeros(counts: Iterable[int]) -> tuple[int, ...]:
    """Return counts up to the last one that is not zero."""
    all_of = [*counts]
    while all_of and not all_of[-1]:
        all_of.pop()
    return tuple(all_of)


def greatest_age(number: int) -> int:
    """Return the greatest age of a class; of the last one, which has no end, the least."""
    return least_age(number + 1) - 1 if number < N_CLASS - 1 else least_age(number)
