"""The learning rate follows the rows of one step when the number of workers changes, with a warm-up.

A step of more rows has a gradient with less noise, and there are fewer steps of a pass. So the learning rate
grows with the rows of a step: linearly for SGD (Goyal et al., arXiv 1706.02677, section 2.1), by the root for
adaptive optimizers (Krizhevsky, arXiv 1404.5997, section 5). What counts is one step, not the number of
workers: in ASP a worker more does not change the rows of a step, unless workers share a global batch; then
each step has fewer. In BSP it is the other way round. The first plan is what the job's rate was chosen for.

The plan counts that runs, and not the workers that are alive: while one is replaced the rate stays. Nothing
but rows done tells how far a warm-up is, so it goes on after a restart of any node or master as it was.
All PS are told a factor of the job's rate, in a few rungs, and the same of their optimizer's rule.

Rejected: to tell workers, which scale the rate of each push (`SetRate` to a worker). Their pushes need
Python on the PS then, and in BSP a round has one rate.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.own.state.state_records import RateRamp
from dlrover_nb.core.structs.job.spec_choices import RateScaling
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.mitigation_messages import SetRate

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.job.job import JobSpec

N_RUNG = 8  # of a warm-up


def factor_of(spec: JobSpec, n_worker: int) -> float:
    """Return the learning rate of a plan with so many workers, as a factor of the job's.

    Notes
    -----
    (b(w) / b(w0))^p with b the rows of one step, w0 the workers of the first plan, and p = 1 or 1/2.
    """
    ratio = spec.rows_of_step(n_worker) / spec.rows_of_step(spec.plan.worker.count)
    match spec.learning_rate_scaling:
        case RateScaling.NONE:
            return 1.0
        case RateScaling.SQRT:
            return math.sqrt(ratio)
        case RateScaling.LINEAR:
            return ratio
        case _:
            assert_never(spec.learning_rate_scaling)


def factor_at(ramp: RateRamp, n_row: int) -> float:
    """Return the factor once so many rows are done: it goes from start to end in equal rungs."""
    share = 1.0 if ramp.n_row <= 0 else min(max((n_row - ramp.since_row) / ramp.n_row, 0.0), 1.0)
    rung = math.floor(N_RUNG * share)
    return ramp.end if rung == N_RUNG else ramp.start + (ramp.end - ramp.start) * rung / N_RUNG


def advance(state: JobState, at_s: float) -> None:
    """Let the learning rate follow the plan that runs, and tell the PS."""
    if state.spec.learning_rate_scaling is RateScaling.NONE or state.is_ended:
        return
    n_done = state.train.counts().n_sample_done
    if state.stage is Stage.SERVING:
        _follow(state, n_done, at_s)
    factor = factor_at(state.ramp, n_done)
    for ps in state.roster.nodes:  # those too that serve later
        if ps.role is Role.PS and ps.is_up and state.rates_of_ps.get(ps.id, 1.0) != factor:
            state.send(ps, SetRate(factor))
            state.rates_of_ps[ps.id] = factor


def repeat(state: JobState, ps: Node) -> None:
    """Forget what was sent to a PS that connects again, so that it is sent anew: the order may be lost."""
    state.rates_of_ps[ps.id] = math.nan  # which equals no factor


def _follow(state: JobState, n_done: int, at_s: float) -> None:
    """Begin a warm-up when another plan runs."""
    spec, plan = state.spec, state.applied or state.target
    n_worker = plan.worker.count
    end = factor_of(spec, n_worker)
    if end == state.ramp.end:
        return
    n_row = spec.learning_rate_warmup * spec.rows_of_step(n_worker)
    state.ramp = RateRamp(factor_at(state.ramp, n_done), end, n_done, n_row)
    over = f" over the next {spec.learning_rate_warmup:,} steps" if n_row else ""
    state.note(
        f"the learning rate becomes {end * spec.model.learning_rate:.3g}{over}: a step has "
        f"{spec.rows_of_step(n_worker):,} rows now",
        at_s,
    )
