"""The input of a fit, records or a table, read into columns; invalid values are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.perf.terms import AXES, axes_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.training.samples import ProfileSample

    Samples = Sequence[ProfileSample] | pd.DataFrame

COLUMNS = (*AXES, "batch_size", "samples_per_s")
SHARES = ("compute_share", "wait_share")  # optional
SUMS = ("n_window", "log_scatter")  # optional: of rows that stand for many windows
CPU = "cpu_s"  # optional


@dataclass(frozen=True, slots=True)
class Windows:
    """Steady windows as columns of length n_window; `axes` has shape (n_window, 4).

    `shares` of shape (n_window, 2) are the parts of T_iter in the order of `SHARES`, NaN where not known. A
    row may stand for `n_window` windows, whose log speeds have the standard deviation `log_scatter`. `cpu_s`
    is the processor time of all nodes for an iteration of a worker, NaN where not known.
    """

    axes: NDArray[np.float64]
    batch_size: NDArray[np.float64]
    samples_per_s: NDArray[np.float64]
    at_s: NDArray[np.float64]
    shares: NDArray[np.float64]
    n_window: NDArray[np.float64]
    log_scatter: NDArray[np.float64]
    cpu_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def log_iter(self) -> NDArray[np.float64]:
        """Logarithm of T_iter in seconds (Eq. 1), summed up so that no product overflows."""
        workers = np.log(self.axes[:, 0])
        return np.asarray(workers + np.log(self.batch_size) - np.log(self.samples_per_s))


def read(samples: Samples) -> Windows:
    """Read records or a table with the columns `COLUMNS`, and optionally `SHARES`, `SUMS`, `CPU` and `at_s`.

    Raises
    ------
    InvalidValueError
        When a column is missing or a value is not a finite number above zero, or a share not one within
        [0, 1] or missing; the first such row is named.
    """
    windows = _records(samples) if isinstance(samples, Sequence) else _table(samples)
    named = dict(zip(AXES, windows.axes.T, strict=True))
    for name, column in (*named.items(), *((n, getattr(windows, n)) for n in COLUMNS[len(AXES) :])):
        bad = np.flatnonzero(~(np.isfinite(column) & (column > 0)))
        if len(bad):
            raise InvalidValueError(
                f"{name} must be a finite number > 0, got {column[bad[0]]} in sample {bad[0]}; "
                f"leave out windows in which nothing was trained"
            )
    for name, column in zip(SHARES, windows.shares.T, strict=True):
        bad = np.flatnonzero((column < 0) | (column > 1))
        if len(bad):
            raise InvalidValueError(
                f"{name} must be a part of a step, 0 to 1, got {column[bad[0]]} in sample {bad[0]}"
            )
    return windows


def _records(samples: Sequence[ProfileSample]) -> Windows:
    names = ("batch_size", "samples_per_s", "at_s", *SHARES, *SUMS, CPU)
    rows = [[getattr(s, name) for name in names] for s in samples]
    columns = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    batch, speed, at_s, _, _, n_window, scatter, cpu_s = columns.T
    axes = axes_of([s.plan for s in samples])
    return Windows(axes, batch, speed, at_s, columns[:, 3:5], n_window, scatter, cpu_s)


def _table(frame: pd.DataFrame) -> Windows:
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise InvalidValueError(
            f"a table of samples needs the columns {and_list(COLUMNS)}; missing: {and_list(missing)}"
        )
    try:
        values = frame[list(COLUMNS)].to_numpy(dtype=np.float64)
        shares = frame.reindex(columns=list(SHARES)).to_numpy(dtype=np.float64)
        sums = frame.reindex(columns=list(SUMS)).to_numpy(dtype=np.float64)
        cpu_s = frame.reindex(columns=[CPU]).to_numpy(dtype=np.float64)[:, 0]
        times = frame["at_s"].to_numpy(dtype=np.float64) if "at_s" in frame.columns else None
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"the columns of a table of samples must be numbers; {error}") from error
    order = np.arange(len(frame), dtype=np.float64) if times is None else times
    n_window, scatter = np.where(np.isnan(sums), (1.0, 0.0), sums).T
    axes, batch, speed = values[:, : len(AXES)], values[:, -2], values[:, -1]
    return Windows(axes, batch, speed, order, shares, n_window, scatter, cpu_s)
