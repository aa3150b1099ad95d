"""The evaluations of a job with early stopping, and where it is likely to end by them.

There are 200 at most (`deadline.stop_rule`), so all are kept. A rollback undoes those of the samples that are
trained again. A job without the rule has none, and no forecast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.deadline.remaining import Extent, forecast

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.job.stopping import StopForecast
    from dlrover_nb.core.structs.views.events import QualityMeasured


class QualityLog:
    """Collects the evaluations of one job.

    Attributes
    ----------
    n_seen
        Evaluations so far, also those that were undone.
    """

    def __init__(self, spec: JobSpec, n_sample_total: int) -> None:
        self._rule, self._n_epoch = spec.early_stopping, spec.n_epoch
        self._n_train = n_sample_total // spec.n_epoch
        self._points: list[tuple[int, float]] = []
        self.n_seen = 0

    def add(self, event: QualityMeasured) -> None:
        """Add an evaluation; without a rule it counts for nothing."""
        if self._rule is None:
            return
        self.undo_from(event.n_sample_done)
        self._points.append((event.n_sample_done, event.value))
        self.n_seen += 1

    def undo_from(self, n_sample: int) -> None:
        """Forget evaluations after so many samples, or more."""
        while self._points and self._points[-1][0] >= n_sample:
            self._points.pop()

    def outlook(self, n_sample_done: int) -> StopForecast | None:
        """Return where the job is likely to end; None without a rule."""
        if self._rule is None:
            return None
        return forecast(self._points, self._rule, Extent(n_sample_done, self._n_train, self._n_epoch))
