"""The quality of the parameters of an all-reduce job on the rows that were held out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.models.score_sums import ScoreSums
from dlrover_nb.core.runtime.store.batches import prepare_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.data import ShardReader
    from dlrover_nb.core.runtime.allreduce.replica import Replica
    from dlrover_nb.core.runtime.store.batches import BucketLayout
    from dlrover_nb.core.structs.data.features import FeatureSpec

READ_ROWS = 10_000  # at a time


class HeldOut:
    """Scores the held-out rows, some at a time, each with the parameters of that moment.

    Between two steps all members wait for the one that scores, so it scores few rows there and training goes
    on: the parameters advance a little meanwhile, as in jobs with parameter servers. A copy of the parameters
    was rejected: tables may be most of a node's memory.

    Parameters
    ----------
    reader, features, replica
        The rows, their columns, and the parameters.
    layout
        Of the parameters.
    """

    def __init__(
        self, reader: ShardReader, features: FeatureSpec, replica: Replica, layout: BucketLayout
    ) -> None:
        self._reader, self._features, self._replica, self._layout = reader, features, replica, layout

    def scored(self, size: int) -> Iterator[ScoreSums | None]:
        """Score `size` rows between two yields; the last one is the scores of all rows."""
        sums, n_train = ScoreSums(), self._features.n_train
        stop = n_train + self._features.n_eval
        for start in range(n_train, stop, READ_ROWS):
            data = self._reader.read(start, min(start + READ_ROWS, stop))
            for at in range(0, len(data.labels), size):
                part = slice(at, at + size)
                batch = prepare_batch(data.ids[part], data.dense[part], data.labels[part], self._layout)
                values = self._replica.store.pull(batch.rows)
                scores = self._replica.learner.scores(values, batch.inverse, batch.dense)
                is_known = np.isfinite(scores)
                sums.add(start + at, scores[is_known], batch.labels[is_known])
                yield sums if start + at + len(batch.labels) == stop else None
