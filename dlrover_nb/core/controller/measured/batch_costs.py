"""What workers measure of their mini-batches, for the history: later jobs of a program begin with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.training.batch_cost import ProgramCost
from dlrover_nb.core.structs.views.events import Remember

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.batch_cost import BatchCost
    from dlrover_nb.core.structs.training.samples import NodeSample
    from dlrover_nb.core.structs.views.events import JobSubmitted


class CostsOfBatches:
    """Passes each measurement of a job on once; those that workers took from the history are there already.

    Parameters
    ----------
    job
        With its program; where that is not known, no other job can use what is measured.
    """

    def __init__(self, job: JobSubmitted) -> None:
        self._job, self._program = job.spec.name, job.program
        self._last: dict[str, BatchCost] = {}  # by worker, which repeats it in each report

    def add(self, sample: NodeSample, at_s: float) -> tuple[Remember, ...]:
        """Take a report; return what is to be kept."""
        cost = sample.batch_cost
        if cost is None or cost == self._last.get(sample.node):
            return ()
        self._last[sample.node] = cost
        if not (self._program and cost.device) or cost.job:
            return ()
        return (Remember(at_s, ProgramCost(self._program, replace(cost, job=self._job, at_s=at_s))),)
