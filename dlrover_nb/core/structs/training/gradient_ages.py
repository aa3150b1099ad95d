"""How old gradients were when a parameter server applied them.

A gradient's age is the number of updates by other workers between the rows that it was computed from and the
gradient itself. In BSP it is 0; without rounds it grows with the workers, and most for the slow ones. Every
update changes all dense parameters, so this is the age of the dense part. A row is changed by few of
them: the age of its gradient counts those alone.

Ages are counted exactly up to 3, and above in two classes to each doubling (4-5, 6-7, 8-11, 12-15, ...): a
few numbers then tell the ages of thousands of gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

N_CLASS = 24  # of updates: the last one begins at 3072 and has no end
N_SECOND_CLASS = 32  # of milliseconds: the last one begins at 49 s


class AgeUnit(StrEnum):
    """What an age counts."""

    UPDATES = "updates"  # of the whole part of a PS by other workers
    MILLISECONDS = "milliseconds"
    ROW_UPDATES = "row updates"  # of the row that the gradient is of, by other workers

    @property
    def n_class(self) -> int:
        """How many classes of ages there are."""
        return N_SECOND_CLASS if self is AgeUnit.MILLISECONDS else N_CLASS


@dataclass(frozen=True, slots=True)
class GradientAges:
    """How many gradients of one worker a PS applied in a window, by the class of their age.

    Each tuple ends with the oldest class that has any.

    Parameters
    ----------
    worker
        Whose gradients.
    counts
        By age in updates: of the worker's whole part of the parameters on this PS, so of the dense part.
    milliseconds
        The same gradients by the time between reading parameters and the update.
    rows
        Gradients of single rows by the updates of just that row, of a sample of the rows.
    of_first_ps
        Whether the PS is the first of its group. A gradient has a part on each PS, so its
        age counts once there. Earlier releases reported of the first one alone.
    """

    worker: str
    counts: tuple[int, ...]
    milliseconds: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    of_first_ps: bool = True

    def __post_init__(self) -> None:
        for unit in AgeUnit:
            _check.at_least("classes of ages", unit.n_class - len(self.of(unit)), 0)
            _check.at_least("gradients of an age", min(self.of(unit), default=0), 0)

    def of(self, unit: AgeUnit) -> tuple[int, ...]:
        """Return the gradients by class of age in a unit."""
        match unit:
            case AgeUnit.UPDATES:
                return self.counts
            case AgeUnit.MILLISECONDS:
                return self.milliseconds
            case AgeUnit.ROW_UPDATES:
                return self.rows
            case _:
                assert_never(unit)


@dataclass(frozen=True, slots=True)
class MeanAges:
    """Mean ages of the gradients of a job so far, on its first PS; of rows on all PS.

    Parameters
    ----------
    n_gradient
        Gradients whose age in updates is known.
    updates, seconds, row_updates
        Their mean age, and that of gradients of single rows; None: not counted.
    """

    n_gradient: int
    updates: float
    seconds: float | None = None
    row_updates: float | None = None


def mean_ages(counts: Mapping[AgeUnit, Sequence[float]]) -> MeanAges | None:
    """Return the means of gradients by class of age in each unit; None: there are none.

    A class counts with the middle of its ages, which is exact up to 3.
    """
    updates = _mean(counts.get(AgeUnit.UPDATES, ()), N_CLASS)
    if updates is None:
        return None
    age_ms = _mean(counts.get(AgeUnit.MILLISECONDS, ()), N_SECOND_CLASS)
    return MeanAges(
        round(sum(counts[AgeUnit.UPDATES])),
        updates,
        None if age_ms is None else age_ms / 1000,
        _mean(counts.get(AgeUnit.ROW_UPDATES, ()), N_CLASS),
    )


def _mean(counts: Sequence[float], n_class: int) -> float | None:
    n = sum(counts)
    middles = (least_age(number) + greatest_age(number, n_class) for number in range(len(counts)))
    return sum(middle * each / 2 for middle, each in zip(middles, counts, strict=True)) / n if n else None


def class_of(age: int, n_class: int = N_CLASS) -> int:
    """Return the class of an age, of so many: `class_of` of ages.c."""
    if age < 2:
        return max(age, 0)
    power = age.bit_length() - 1
    return min(2 * power + (age >> (power - 1) & 1), n_class - 1)


def least_age(number: int) -> int:
    """Return the least age of a class."""
    return number if number < 2 else (2 + number % 2) << (number // 2 - 1)


def without_end_zeros(counts: Iterable[int]) -> tuple[int, ...]:
    """Return counts up to the last one that is not zero."""
    all_of = [*counts]
    while all_of and not all_of[-1]:
        all_of.pop()
    return tuple(all_of)


def greatest_age(number: int, n_class: int = N_CLASS) -> int:
    """Return the greatest age of a class; of the last one, which has no end, the least."""
    return least_age(number + 1) - 1 if number < n_class - 1 else least_age(number)
