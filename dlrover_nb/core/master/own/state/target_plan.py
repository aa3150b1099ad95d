"""The target plan: when it changes, whether it runs, and how long training was paused for it.

The necessary steps are taken elsewhere (`ps_group`, `worker_set`); this module reports to the controller.
Each ordered plan is answered exactly once: it was applied, or it failed for a reason. A fallback to the
previous plan was not ordered and is not answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.views.events import PlanApplied, PlanFailed

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


def order_plan(state: JobState, plan: ResourcePlan, at_s: float) -> None:
    """Set the target plan, with which a job in the queue starts; a job that is about to end refuses."""
    if state.is_ended or state.is_evaluating or state.stop_reason:
        why = "the job is about to end" if not state.is_evaluating else "all rows are trained already"
        state.orders.append(Emit(PlanFailed(at_s, plan, why)))
    elif state.is_held or state.change is None or state.target != plan or state.change.is_fallback:
        if state.is_held:
            state.is_held = False  # who orders a plan admits the job
            state.note(f"admitted with {plan.short}", at_s)
        give_up(state, "a newer decision replaced it", at_s)
        state.set_target(plan, at_s)


def give_up(state: JobState, why: str, at_s: float) -> None:
    """Emit that a plan in progress failed; nothing is emitted for a first plan or a fallback."""
    if state.change is not None and not state.change.is_fallback and state.applied is not None:
        state.orders.append(Emit(PlanFailed(at_s, state.target, why)))


def measure_pause(state: JobState, at_s: float) -> None:
    """Add up how long no worker trained, for the change in progress."""
    trains = state.stage is Stage.SERVING and any(w.is_training for w in state.roster.workers)
    if state.still_since_s is not None and state.change is not None:
        since_s = max(state.still_since_s, state.change.since_s)
        state.change.pause_s += at_s - since_s
    state.still_since_s = None if trains else at_s


def update_running(state: JobState, at_s: float) -> None:
    """Update whether the target runs; emit `PlanApplied` once."""
    if not _is_in_place(state):
        state.steady_since_s = None
        return
    if state.steady_since_s is None:
        state.steady_since_s = at_s
    if state.change is None:
        return
    if not state.change.is_fallback:
        is_first = state.applied is None  # the first start interrupts no training
        pause_s = 0.0 if is_first else state.change.pause_s
        state.orders.append(Emit(PlanApplied(at_s, state.target, pause_s)))
        state.steady_since_s = at_s
    state.applied, state.change = state.target, None


def _is_in_place(state: JobState) -> bool:
    """Whether the nodes that the target asks for, and no others, train."""
    target, group = state.target, state.group
    if (
        state.stage is not Stage.SERVING
        or group is None
        or group.shape != target.ps
        or state.move is not None
    ):
        return False
    workers = state.roster.workers
    if len(workers) != target.worker.count or len(state.roster.ps) != target.ps.count:
        return False
    if not all(node.has_shape(target.role(node.role)) for node in state.roster.nodes):
        return False
    return all(worker.is_training and not worker.is_draining for worker in workers)
