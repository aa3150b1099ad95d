"""Optimus, and a planner that follows SLAQ, over all jobs of a cluster; both without knowledge of deadlines.

Both see the same reports as the product and decide every three minutes (`policy_runs.DECIDE_S`).

SLAQ (SoCC 2017) gives each next core to the job whose normalised loss it lowers most until the next decision.
Our version follows it with nodes instead of cores: a job's loss is predicted by a curve fitted to its reports
(`core.baselines.losscurve`), its speed on other counts by Optimus's model, and a node goes from the job that
loses least to the one that gains most where nothing is free. Loss curves are drawn, one for each job, of the
form that SLAQ and Optimus assume, which is in their favour.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from policy_runs import DECIDE_S, SETTINGS, Baseline
from qore_stream import MACHINES, Steering

from dlrover_nb.core.baselines import static
from dlrover_nb.core.baselines.optimus import fit_speed, optimus
from dlrover_nb.core.baselines.state import with_count
from dlrover_nb.core.planner.availability.waiting import free_of
from dlrover_nb.core.structs.plan.capacity import Capacity, fits, plan_needs
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import JobSubmitted, Ticked

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.plans.loss_curve import LossCurve, fit_loss_curve
from support.plans.optimus_cluster import optimus_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dlrover_nb.core.baselines import JobState
    from dlrover_nb.core.structs.plan.capacity import Need
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.events import Event

LOSS_NOISE = 0.005
FIRST_LOSS, LAST_LOSS = (0.6, 0.8), (0.35, 0.5)
BEND = (3.0, 30.0)  # how many times faster the loss falls at first than in the mean
N_PROBE = 3


class EachInterval(Steering):
    """Keeps the windows of each job, and decides for all of them every `DECIDE_S`."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.watched: dict[str, Baseline] = {}
        self._decided_s = 0.0

    def hear(self, name: str, event: Event) -> None:
        if isinstance(event, JobSubmitted):
            self.watched[name] = Baseline(static, SETTINGS, None)
        if not isinstance(event, Ticked):
            self.watched[name].hear(event)

    def plans(self, at_s: float, running: Sequence[str], held: Sequence[Need]) -> dict[str, ResourcePlan]:
        if at_s < self._decided_s + DECIDE_S:
            return {}
        self._decided_s = at_s
        states = {name: self._state(name) for name in running}
        known = {name: state for name, state in states.items() if state is not None}
        unknown = [need for name in running if name not in known for need in self._held(name)]
        room = free_of(Capacity(MACHINES), [*held, *unknown])
        return self.decide(known, room) if known else {}

    def _state(self, name: str) -> JobState | None:
        watched = self.watched[name]
        state = None if watched.plan is None else watched.state(watched.plan)
        return None if state is None else replace(state, capacity=Capacity(MACHINES))

    def _held(self, name: str) -> list[Need]:
        plan = self.watched[name].plan
        return [] if plan is None else plan_needs(plan)

    @abstractmethod
    def decide(self, states: Mapping[str, JobState], room: Capacity) -> dict[str, ResourcePlan]:
        """Return the next plan of each job that gets another one."""


class Optimus(EachInterval):
    """One decision per job of Optimus's marginal gains, while all fit on the machines."""

    def decide(self, states: Mapping[str, JobState], room: Capacity) -> dict[str, ResourcePlan]:
        found = optimus_cluster(states, room, step=self.step, n_probe=N_PROBE)
        return {name: plan for name, plan in found.items() if plan != states[name].plan}


class Slaq(EachInterval):
    """A node to the job whose loss it lowers most, from the one that loses least."""

    def __init__(self, step: int, seed: int) -> None:
        super().__init__(step)
        self._rng = np.random.default_rng((seed, 7))
        self._truth: dict[str, LossCurve] = {}
        self._losses: dict[str, list[tuple[float, float]]] = {}

    def hear(self, name: str, event: Event) -> None:
        super().hear(name, event)
        if isinstance(event, JobSubmitted):
            self._truth[name], self._losses[name] = loss_curve(event.n_sample_total, self._rng), []
        elif isinstance(event, Ticked) and self.watched[name].n_done > self._last_step(name):
            n_done, noise = self.watched[name].n_done, float(self._rng.normal(0.0, LOSS_NOISE))
            self._losses[name].append((float(n_done), self._truth[name].loss(n_done) + noise))

    def _last_step(self, name: str) -> float:
        return self._losses[name][-1][0] if self._losses[name] else 0.0

    def decide(self, states: Mapping[str, JobState], room: Capacity) -> dict[str, ResourcePlan]:
        gains: list[tuple[float, str, ResourcePlan]] = []
        losses: list[tuple[float, str, ResourcePlan]] = []
        for name, state in states.items():
            n_measured = len({(s.plan.worker.count, s.plan.ps.count) for s in state.samples})
            probe = optimus(state, step=self.step, n_probe=N_PROBE) if n_measured < N_PROBE else None
            if probe is not None:
                gains.append((math.inf, name, probe))
                continue
            for sign, ranked in ((1, gains), (-1, losses)):
                ranked += [(self._value(name, state, plan), name, plan) for plan in self._steps(state, sign)]
        now = {name: state.plan for name, state in states.items()}
        found: dict[str, ResourcePlan] = {}
        for gain, name, plan in sorted(gains, key=lambda each: -each[0]):
            if gain <= 0 or name in found:
                continue
            if _fit({**now, **found, name: plan}, room):
                found[name] = plan
                continue
            for loss, other, less in sorted(losses, key=lambda each: -each[0]):
                if other != name and other not in found and gain > -loss:
                    found[other] = less  # what it frees is given in the next interval, if it is enough
                    break
        return found

    def _steps(self, state: JobState, sign: int) -> Iterator[ResourcePlan]:
        for role in Role:
            count = state.plan.role(role).count + sign * self.step
            if count >= 1 and state.allows(plan := with_count(state.plan, role, count)):
                yield plan

    def _value(self, name: str, state: JobState, plan: ResourcePlan) -> float:
        """Return the fall of the normalised loss in an interval per core that a plan adds (or takes)."""
        points = self._losses[name]
        curve = fit_loss_curve(points)
        if curve is None:
            return 0.0
        model, at = fit_speed(state.samples), points[-1][0]
        span = max(points[0][1] - points[-1][1], 1e-6)

        def fall(of: ResourcePlan) -> float:
            n_new = model.samples_per_s(of, state.batch_size) * DECIDE_S
            return (curve.loss(at) - curve.loss(at + n_new)) / span

        return (fall(plan) - fall(state.plan)) / abs(plan.total_cpu - state.plan.total_cpu)


def loss_curve(n_sample: int, rng: np.random.Generator) -> LossCurve:
    """Draw l(k) = 1/(b0*k + b1) + b2 over the samples of a job."""
    first, last, bend = (float(rng.uniform(*each)) for each in (FIRST_LOSS, LAST_LOSS, BEND))
    above = (first - last) * bend / (bend - 1)  # 1/b1: what lies above the floor at the start
    return LossCurve((bend - 1) / above / n_sample, 1 / above, first - above)


def _fit(plans: Mapping[str, ResourcePlan], room: Capacity) -> bool:
    return fits(room, [need for plan in plans.values() for need in plan_needs(plan)])
