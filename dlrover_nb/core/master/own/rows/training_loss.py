"""Early stopping by the training loss (`deadline.loss_windows`).

A master that restarts begins the open window anew: it misses a part of one evaluation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.views.events import QualityMeasured

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.training.samples import NodeSample


def add(state: JobState, sample: NodeSample, at_s: float) -> None:
    """Add a report; once a window is full, end training if the rule says so."""
    rule, n_train = state.spec.early_stopping, state.features.n_train
    if rule is None or rule.is_held_out or state.is_evaluating or state.is_ended or state.stopped_early:
        return
    state.losses = state.losses.with_report(sample)
    if not state.losses.is_full(rule, n_train, state.spec.n_epoch):
        return
    state.losses = state.losses.closed(state.train.counts().n_sample_done)
    state.orders.append(Emit(QualityMeasured(at_s, *state.losses.points[-1])))
    state.stopped_early = state.losses.stop_reason(rule, n_train)
    if state.stopped_early:
        state.train.close()
        state.note(state.stopped_early, at_s)
