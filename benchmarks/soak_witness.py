"""What the parameters of a soak say about its rows: how often each was applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from soak_rows import GROUP, PIECE, RATE, piece

from dlrover_nb import load_model
from dlrover_nb.core.data.encode import encode_inputs

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.client.trained_model import TrainedModel
    from dlrover_nb.core.structs.training.shards import SkippedBatch

    Ints = NDArray[np.int64]

_AT_ONCE = 1 << 16  # groups
UNSEEN = 1 << 20  # a multiple of PIECE beyond all rows: its numbers, sites and labels are new


def witnessed(
    folder: Path, n_row: int, skipped: tuple[SkippedBatch, ...], batch_size: int, seed: int
) -> dict[str, object]:
    """Return rows that were never and again applied, and the quality of the model on rows of its kind.

    Parameters
    ----------
    folder
        The run folder of a job that has trained rows [0, n_row).
    skipped
        The batches that were reported as not trained; a rollback may have trained them all the same.
    batch_size, seed
        Of the job.
    """
    model = load_model(folder)
    applied = _applied(model, -(-n_row // GROUP))
    wanted = np.full(len(applied), GROUP)
    wanted[-1] -= -n_row % GROUP
    excused = np.zeros(len(applied), np.int64)
    for batch in skipped:
        np.add.at(excused, _rows(batch, n_row, batch_size, seed) // GROUP, 1)
    fresh = piece(UNSEEN * PIECE)
    return {
        "rows_never": int(np.maximum(wanted - excused - applied, 0).sum()),
        "rows_again": int(np.maximum(applied - wanted, 0).sum()),
        "rows_skipped": int(np.maximum(wanted - applied, 0).sum()),
        "auc": round(model.evaluate(fresh).auc, 4),
    }


def _applied(model: TrainedModel, n_group: int) -> Ints:
    """Return how many rows of each group were applied."""
    found = []
    for start in range(0, n_group, _AT_ONCE):
        groups = np.arange(start, min(start + _AT_ONCE, n_group)).astype(str)
        zero = np.zeros(len(groups))
        columns = {"group": groups, "site": np.full(len(groups), "0"), "first": zero, "second": zero}
        ids, _ = encode_inputs(pa.table(columns), model.features)
        at = [column.name for column in model.features.categorical].index("group")
        counted = -model._store.pull(ids[:, at].copy())[:, -1] / RATE  # noqa: SLF001 - no user needs it
        if not np.array_equal(counted, np.rint(counted)):
            raise SystemExit(f"a count is no whole number: {counted[counted != np.rint(counted)][:5]}")
        found.append(counted.astype(np.int64))
    return np.concatenate(found)


def _rows(batch: SkippedBatch, n_row: int, batch_size: int, seed: int) -> Ints:
    """Return the rows of a skipped batch: workers order the rows of a shard by seed, pass and first row."""
    start = batch.shard * PIECE
    n = min(PIECE, n_row - start)
    order = start + np.random.default_rng([seed, 0, start]).permutation(n)
    for at in range(0, n, batch_size):
        rows = np.sort(order[at : at + batch_size])
        if (rows[0], rows[-1]) == (batch.first, batch.last):
            return rows
    raise SystemExit(f"no batch of shard {batch.shard} is the skipped one: {batch}")
