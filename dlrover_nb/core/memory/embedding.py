"""Memory of hash embeddings from the keys seen: rows now, rows at the end, MiB.

A parameter server holds one row for each key that it has seen. Counting rows tells more than weighing the
process: it is exact, starts at nothing with no sample trained, and is there after the first few
thousand samples, so that the law can be told apart early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.memory.forecast import Band, forecast
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

FLOAT32_BYTES = 4
MIB = 2**20


def embedding_mib(n_row: float, *, dim: int, n_slot: int = 1) -> float:
    """Return the memory of `n_row` rows: dim float32 each, and as many for each optimizer slot."""
    _check.at_least("n_row", n_row, 0)
    _check.at_least("dim", dim, 1)
    _check.at_least("n_slot", n_slot, 0)
    return n_row * dim * FLOAT32_BYTES * (1 + n_slot) / MIB


def forecast_rows(n_sample: Sequence[float], n_row: npt.ArrayLike, end: float) -> Band | None:
    """Forecast the distinct keys at `end` samples, None where the reports are too few to tell.

    Parameters
    ----------
    n_sample
        Samples trained, ascending, of shape (n_report,).
    n_row
        Distinct keys seen by then, of shape (n_report,), or (n_report, n_table) with one column for each
        categorical feature.

    Raises
    ------
    InvalidValueError
        For counts that shrink, since a key once seen stays seen, and for what `forecast` refuses.

    Notes
    -----
    Each table is forecast by its own law and the tables are summed. Keys of some features run out
    while those of others go on at almost one a sample, so that the sum bends less and less: one law through
    the sum falls short, the more the farther. Tables see the same samples, their errors go together,
    and the widths of their intervals are added.
    """
    samples, rows = np.asarray(n_sample, dtype=np.float64), np.asarray(n_row, dtype=np.float64)
    rows = rows[:, np.newaxis] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != len(samples) or rows.shape[1] == 0:
        raise InvalidValueError(
            f"distinct keys must be of shape ({len(samples)}, tables), one row a report, got {rows.shape}"
        )
    if np.diff(rows, axis=0).min(initial=0.0) < 0:
        raise InvalidValueError("distinct keys cannot become fewer; give counts since the job's start")
    if len(samples) and samples[0] > 0:
        samples = np.concatenate([[0.0], samples])
        rows = np.concatenate([np.zeros((1, rows.shape[1])), rows])
    bands = [forecast(samples, table, limit_mib=np.inf, end=end, origin=0.0).at_end for table in rows.T]
    known = [band for band in bands if band is not None]
    if len(known) < len(bands):
        return None
    return Band(*(sum(getattr(band, edge) for band in known) for edge in ("mid", "low", "high")))
