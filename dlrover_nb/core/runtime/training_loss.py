"""The training loss as an early stop reads it: means over windows of rows, from the reports of workers.

A window is of rows and not of time, so that the rule of a job does not depend on its speed. A master that
restarts begins the open window anew: it misses a part of one evaluation. After a rollback the windows of rows
that are trained again are dropped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.deadline.stop_rule import evaluation_step, stop_reason
from dlrover_nb.core.runtime.orders import Emit
from dlrover_nb.core.structs.events import QualityMeasured
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.state import JobState
    from dlrover_nb.core.structs.samples import NodeSample


def add(state: JobState, sample: NodeSample, at_s: float) -> None:
    """Add a report; once a window is full, end training if the rule says so."""
    rule = state.spec.early_stopping
    if rule is None or rule.is_held_out or state.is_evaluating or state.is_ended or state.stopped_early:
        return
    if sample.role is not Role.WORKER or sample.loss is None or not math.isfinite(sample.loss):
        return
    loss_sum, n_row = state.open_loss
    state.open_loss = loss_sum + sample.loss * sample.n_sample, n_row + sample.n_sample
    if state.open_loss[1] >= evaluation_step(rule, state.features.n_train, state.spec.n_epoch):
        _close(state, at_s)


def _close(state: JobState, at_s: float) -> None:
    rule, n_done = state.spec.early_stopping, state.train.counts().n_sample_done
    assert rule is not None
    (loss_sum, n_row), state.open_loss = state.open_loss, (0.0, 0)
    before = tuple(point for point in state.loss_points if point[0] < n_done)
    state.loss_points = (*before, (n_done, loss_sum / n_row))
    state.orders.append(Emit(QualityMeasured(at_s, n_done, loss_sum / n_row)))
    passes = [n / max(state.features.n_train, 1) for n, _ in state.loss_points]
    state.stopped_early = stop_reason(passes, [loss for _, loss in state.loss_points], rule)
    if state.stopped_early:
        state.train.close()
        state.note(state.stopped_early, at_s)
