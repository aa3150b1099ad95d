"""The training loss as an early stop reads it: means over windows of rows, from the reports of workers.

A window is of rows and not of time, so that the rule of a job does not depend on its speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.deadline.stop_rule import evaluation_step, stop_reason
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.early_stopping import EarlyStopping
    from dlrover_nb.core.structs.training.samples import NodeSample

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class LossWindows:
    """The windows so far.

    Parameters
    ----------
    points
        Samples trained at the end of each full window, and its mean loss.
    open_sum, n_open
        Sum of the losses, and rows, of the window that is not full yet.
    """

    points: Points = ()
    open_sum: float = 0.0
    n_open: int = 0

    def with_report(self, sample: NodeSample) -> LossWindows:
        """Return it with the rows of a worker's report; one without a finite loss of rows adds nothing."""
        if sample.role is not Role.WORKER or sample.loss is None or not math.isfinite(sample.loss):
            return self
        n_row = sample.n_sample
        return replace(self, open_sum=self.open_sum + sample.loss * n_row, n_open=self.n_open + n_row)

    def is_full(self, rule: EarlyStopping, n_train: int, n_epoch: int) -> bool:
        """Whether the open window has the rows that an evaluation needs."""
        return self.n_open >= evaluation_step(rule, n_train, n_epoch)

    def closed(self, n_done: int) -> LossWindows:
        """Return it with the open window as one that ended after `n_done` samples.

        Windows of rows that a rollback had trained again are dropped.
        """
        before = tuple(point for point in self.points if point[0] < n_done)
        return LossWindows((*before, (n_done, self.open_sum / self.n_open)))

    def stop_reason(self, rule: EarlyStopping, n_train: int) -> str:
        """Return why training should end now; empty: it continues."""
        passes = [n / max(n_train, 1) for n, _ in self.points]
        return stop_reason(passes, [loss for _, loss in self.points], rule)
