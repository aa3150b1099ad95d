"""Optimus: a speed model of counts alone, and one more node where it gains most.

Seconds of a step = t0*M/w + t1 + t2*w/p + t3*w + t4*p, fitted by NNLS (Optimus section 3.2); M is the samples
of all workers in one step. It ignores CPU per node and embedding lookups, which DLRover-RM's comparison is
about. The gain of a node is the time that it saves. One decision adds or removes a fixed number of nodes of
one role, whatever the transition costs, as DLRover-RM (sections 6 and 7) describes it.

Optimus first runs some configurations to have something to fit; here a job with fewer than `n_probe` measured
configurations gets a node of the role that has fewer, worker first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.baselines.state import with_count
from dlrover_nb.core.basics.numerics import nnls
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.baselines.state import JobState
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.samples import ProfileSample

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """Optimus's step time in five coefficients >= 0; `global_batch` as in `JobState`."""

    coefficients: tuple[float, ...]
    global_batch: int | None = None

    def samples_per_s(self, plan: ResourcePlan, batch_size: int) -> float:
        """Return the speed of all workers together."""
        w, p = plan.worker.count, plan.ps.count
        step = _step_samples(w, batch_size, self.global_batch)
        step_s = sum(c * x for c, x in zip(self.coefficients, _columns(step, w, p), strict=True))
        return step / step_s if step_s > 0 else math.inf


def fit_speed(samples: Sequence[ProfileSample], *, global_batch: int | None = None) -> SpeedModel:
    """Fit the step time to measured windows by NNLS on relative errors.

    Raises
    ------
    InvalidValueError
        When there is no sample.

    Notes
    -----
    Optimus writes M/w with one global batch M for all workers. Where each worker keeps its own batch
    instead, M = w*m and the column is constant beside t1; NNLS then shares the constant between the two,
    which changes no prediction.
    """
    if not samples:
        raise InvalidValueError("Optimus fits its speed to >= 1 sample, got none; let the job run first")
    rows, seconds = [], []
    for s in samples:
        w, p = s.plan.worker.count, s.plan.ps.count
        step = _step_samples(w, s.batch_size, global_batch)
        rows.append(_columns(step, w, p))
        seconds.append(step / s.samples_per_s)
    relative = np.asarray(rows, dtype=np.float64) / np.asarray(seconds)[:, None]
    scale = relative.max(axis=0)
    shares, _ = nnls(relative / scale, np.ones(len(samples)))
    return SpeedModel(tuple(float(c) for c in shares / scale), global_batch)


def optimus(state: JobState, *, step: int = 1, n_probe: int = 3) -> ResourcePlan | None:
    """Add or remove `step` nodes of the role where that saves the job most time.

    Parameters
    ----------
    n_probe
        Configurations to measure before the fit decides; with five coefficients >= 0, three different ones
        are the fewest that distinguish w/p, w and p on the path of the probes.
    """
    _check.at_least("step", step, 1)
    if all(s.plan != state.plan for s in state.samples):
        return None  # wait for a steady window of what runs
    if n_measured(state) < n_probe:
        return _probe(state, step)
    model = fit_speed(state.samples, global_batch=state.global_batch)
    saved = [(seconds_saved(state, model, plan), plan) for plan in _neighbours(state, step)]
    best, plan = max(saved, key=lambda pair: pair[0], default=(0.0, state.plan))
    return plan if best > 0 else None


def seconds_saved(state: JobState, model: SpeedModel, plan: ResourcePlan) -> float:
    """Return the time that a plan would save: Optimus's gain of one decision."""
    now = model.samples_per_s(state.plan, state.batch_size)
    then = model.samples_per_s(plan, state.batch_size)
    return state.n_sample_left / now - state.n_sample_left / then


def n_measured(state: JobState) -> int:
    """Return how many configurations were measured."""
    return len({(s.plan.worker.count, s.plan.ps.count) for s in state.samples})


def _step_samples(workers: int, batch_size: int, global_batch: int | None) -> int:
    return workers * batch_size if global_batch is None else global_batch


def _columns(step: float, w: int, p: int) -> tuple[float, ...]:
    return step / w, 1.0, w / p, float(w), float(p)


def _probe(state: JobState, step: int) -> ResourcePlan | None:
    """Return the next configuration to measure: a node more of the role that has fewer, if one fits."""
    workers_first = state.plan.worker.count <= state.plan.ps.count
    order = (Role.WORKER, Role.PS) if workers_first else (Role.PS, Role.WORKER)
    plans = (with_count(state.plan, role, state.plan.role(role).count + step) for role in order)
    return next((plan for plan in plans if state.allows(plan)), None)


def _neighbours(state: JobState, step: int) -> list[ResourcePlan]:
    """Return the plans one decision away that may run."""
    counts = [(role, state.plan.role(role).count + d) for role in Role for d in (step, -step)]
    plans = (with_count(state.plan, role, count) for role, count in counts if count >= 1)
    return [plan for plan in plans if state.allows(plan)]
