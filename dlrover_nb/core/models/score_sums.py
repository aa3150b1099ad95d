"""Quality of the scores of any number of rows, taken shard by shard with bounded work each.

Ranking ten million scores takes seconds and their memory. The loop of a job master has neither, so beyond
`EXACT_ROWS` only sums are kept: of the log likelihood, and the rows of each class in bins of scores. Bins are
those of float32 with its last bits cut off, seen from 0 below one half and from 1 above it, so that scores
near both ends are told apart as well. Up to `EXACT_ROWS` the numbers are those of `metrics`.

Rejected: a thread that ranks all scores, which gives exact numbers, but takes the interpreter's lock and a
core from the loop for seconds, and the memory; and histograms made by workers, whose work here is a
millisecond for each shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.models import metrics
from dlrover_nb.core.structs.views.snapshot import Evaluation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Counts = NDArray[np.int64]

EXACT_ROWS = 1 << 18  # ranked in some tens of milliseconds
_CUT_BITS = 12  # of the 23 of a float32's fraction: a bin is 1/2048 of its scores wide
_HALF_BINS = int(np.float32(0.5).view(np.int32)) >> _CUT_BITS
_N_BIN = 2 * (_HALF_BINS + 1)


class ScoreSums:
    """Scores and labels of rows; `evaluate` has their quality at any time.

    Attributes
    ----------
    n_row
        Rows with a finite score.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self.n_row = 0
        self._exact: dict[int, tuple[Floats, Floats]] | None = {}  # by shard; None: too many rows
        self._log_loss = 0.0  # the sum over rows
        self._counts: Counts = np.zeros((2, 0), np.int64)  # negative and positive rows of each bin

    def add(self, shard: int, scores: Floats, labels: Floats) -> None:
        """Add the rows of a shard, once; all scores are finite probabilities."""
        self.n_row += len(scores)
        if not len(scores):
            return
        if self._exact is None:
            self._count(scores, labels)
            return
        self._exact[shard] = scores, labels
        if self.n_row > EXACT_ROWS:
            self._counts = np.zeros((2, _N_BIN), np.int64)
            for exact in self._exact.values():
                self._count(*exact)
            self._exact = None

    def evaluate(self) -> Evaluation:
        """Return the quality of all rows.

        The log loss is exact. So is the AUC of up to `EXACT_ROWS` rows; that of more differs from it by at
        most `auc_tolerance`.

        Raises
        ------
        InvalidValueError
            When the rows are all of one class.
        """
        if self._exact is not None:
            return metrics.evaluate(*self._ranked())
        negative, positive = self._counts
        metrics.check_classes(int(positive.sum()), int(negative.sum()))
        below = np.cumsum(negative) - negative
        n_pair = float(positive.sum()) * float(negative.sum())
        auc = float((positive * (below + negative / 2)).sum()) / n_pair  # rows of one bin count half
        return Evaluation(auc, self._log_loss / self.n_row, self.n_row)

    @property
    def auc_tolerance(self) -> float:
        """How far the AUC may be from that of all scores: half of the pairs that share a bin; mostly 1e-6."""
        negative, positive = self._counts.astype(np.float64)
        n_pair = float(positive.sum()) * float(negative.sum())
        return 0.5 * float((positive * negative).sum()) / max(n_pair, 1.0)

    def _ranked(self) -> tuple[Floats, Floats]:
        """Return scores and labels of few rows, in the order of their shards."""
        assert self._exact is not None
        none = np.empty(0, np.float32)
        pairs = [(none, none), *(self._exact[shard] for shard in sorted(self._exact))]
        scores, labels = (np.concatenate(column) for column in zip(*pairs, strict=True))
        return scores, labels

    def _count(self, scores: Floats, labels: Floats) -> None:
        self._log_loss += metrics.log_loss(scores, labels) * len(scores)
        bins, positive = _bins(scores), labels > 0.5
        for counts, mine in zip(self._counts, (bins[~positive], bins[positive]), strict=True):
            np.add.at(counts, mine, 1)


def _bins(scores: Floats) -> Counts:
    """Return the bin of each score; a larger score is in no earlier bin."""
    p = np.clip(scores, np.float32(0), np.float32(1))
    is_low = p < np.float32(0.5)
    bins = np.where(is_low, p, np.float32(1) - p).view(np.int32).astype(np.int64) >> _CUT_BITS
    return np.where(is_low, bins, _N_BIN - 1 - bins)
