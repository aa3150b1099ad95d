"""What is known of a job's progress from programs that report as Kubeflow Trainer's do.

They tell a percentage, a remaining time, and metrics of their choice; no samples. Nothing of that says how
fast a node is, except the number of the step, which Transformers' callback reports among the metrics. So with
that a report counts as steps of a batch each, like a line that `ExternalSpec.step_log` finds, and throughput,
forecasts and proposals follow. Without it the percentage alone is the job's progress.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.job.state import ExternalState
from dlrover_nb.core.structs.job.external import StepsDone

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.reported import TrainerReport, TrainerStatus

TRAINER = "trainer"  # programs of totals that come this way: ``trainer-1`` after the first rendezvous, …
STEP_METRICS = ("current_step", "global_step", "step")  # the first is Transformers'
LOSS_METRICS = ("loss", "train_loss")
MOST_STEPS = 1 << 31  # a larger number counts something else, and its samples might not fit into 64 bits


class ReportedState(ExternalState):
    """See `ExternalState`."""

    def hear(self, report: TrainerReport) -> StepsDone | None:
        """Note a status; return the totals of steps in it, where nothing else counts those of its node.

        A status that arrives late is ignored, and one of an unknown node, or of a role beside the world: an
        evaluator does not train.
        """
        node = self._node_set.get(report.node)
        late = self.reported is not None and report.status.at_s < self.reported.at_s
        if late or self.phase.is_final or node is None or node.role not in self._external.world:
            return None
        self.reported = report.status
        if report.status.at_s > self._met_at_s:
            self._heard |= set(self._workers)  # one of those that train together reports for all
        self._meter.n_done = counted(self._meter.n_done, report.status.percentage, self._external.n_sample)
        return self._steps(report.node, report.status)

    def _steps(self, node: str, status: TrainerStatus) -> StepsDone | None:
        step = status.number(*STEP_METRICS)
        others = [each for each in self._meter.told if each.node == node]
        if step is None or not 0 <= step <= MOST_STEPS:
            return None
        if any(not each.program.startswith(TRAINER) for each in others):
            return None
        n_iter, program = round(step), f"{TRAINER}-{self._n_rendezvous}"
        for each in others:  # the newest last: one that a rendezvous did not restart counts on
            if (node, each.program) not in self._before and each.n_iter <= n_iter:
                program = each.program
        return StepsDone(
            node,
            program,
            at_s=status.at_s,
            n_iter=n_iter,
            n_sample=n_iter * self._spec.batch_size,
            n_done=self._meter.n_done if status.percentage is not None else None,
            loss=status.number(*LOSS_METRICS),
        )


def counted(n_done: int, percentage: int | None, n_sample: int) -> int:
    """Return how many of all samples are done by a percentage, which is whole and so rounded down.

    A count that agrees with it stays: it is finer.
    """
    if percentage is None or n_done * 100 // n_sample == percentage:
        return n_done
    return math.ceil(percentage * n_sample / 100)
