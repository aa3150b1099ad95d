"""The ages of gradients as a job's telemetry has them, read for charts and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.training.gradient_ages import AgeUnit, class_of, greatest_age
from dlrover_nb.core.telemetry import with_all_columns
from dlrover_nb.widgets.series import natural, short_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.views.snapshot import SeriesChunk

    Floats = NDArray[np.float64]

NO_AGES = "No ages of gradients are known yet: parameter servers report them every five seconds."


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages of some gradients: in ascending classes, the greatest age of each, and the gradients in it."""

    at_most: tuple[int, ...] = ()
    n_update: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """Number of gradients."""
        return sum(self.n_update)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the gradients that are at most so old, by class."""
        return tuple((np.cumsum(self.n_update) / max(self.n, 1)).tolist())

    def quantile(self, share: float) -> int | None:
        """Return the age that this share of the gradients has at most; None: there are none."""
        reached = (age for age, up_to in zip(self.at_most, self.shares, strict=True) if up_to >= share - 1e-9)
        return next(reached, None)


NONE = Ages()


@dataclass(frozen=True, slots=True)
class AgeRows:
    """Rows of ages as arrays of one length: seconds since the start, worker, greatest age, gradients, PS."""

    t_s: Floats
    node: NDArray[np.str_]
    at_most: Floats
    n_update: Floats
    ps: NDArray[np.str_]

    @property
    def workers(self) -> tuple[str, ...]:
        """All workers, in the order of their numbers."""
        return tuple(sorted({*self.node.tolist()}, key=natural))

    @property
    def servers(self) -> tuple[str, ...]:
        """All PS that counted them, in the order of their numbers."""
        return tuple(sorted({*self.ps.tolist()} - {""}, key=natural))

    def of(self, keep: NDArray[np.bool_] | None = None) -> Ages:
        """Return the ages of the rows that are marked; None: of all."""
        ages, counts = (a if keep is None else a[keep] for a in (self.at_most, self.n_update))
        classes, place = np.unique(ages, return_inverse=True)
        sums = np.bincount(place, counts, minlength=len(classes))
        return Ages(tuple(map(int, classes)), tuple(map(int, sums)))


def age_rows(
    series: SeriesChunk | None,
    job: str,
    start_s: float,
    unit: AgeUnit = AgeUnit.UPDATES,
    *,
    of_each_ps: bool = False,
) -> AgeRows:
    """Return the rows of ages in a unit; none where the chunk is of an older master.

    A gradient has a part on each PS, so those of the first PS stand for all, unless `of_each_ps`. A row is on
    one PS alone: ages of rows are those of all PS together.
    """
    columns = with_all_columns({} if series is None else series.ages)
    is_first = np.asarray(columns["of_first"], float) > 0
    keep = np.asarray(columns["unit"], np.str_) == str(unit)
    if not of_each_ps and unit is not AgeUnit.ROW_UPDATES:
        keep &= is_first
    places = np.flatnonzero(keep).tolist()
    of = {name: [column[i] for i in places] for name, column in columns.items()}
    ages = [float(greatest_age(class_of(int(age), unit.n_class), unit.n_class)) for age in of["age"]]
    return AgeRows(
        np.asarray(of["at_s"], float) - start_s,
        np.asarray([short_name(str(name), job) for name in of["node"]], np.str_),
        np.asarray(ages, float),
        np.asarray(of["n_update"], float),
        np.asarray([short_name(str(name), job) for name in of["ps"]], np.str_),
    )
