"""One simulated job under one policy: what decides for it, how it is run, and what came of it."""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from policy_cases import MACHINES, Drifting

from dlrover_nb.core.baselines import JobState
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.measured.windows import SteadyWindows
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.planner.advising.advice import PlannerSettings, axes_key
from dlrover_nb.core.simulator import Faults, SimulatedJob, SimulatedWorld, WorldSettings
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.events import (
    Event,
    JobSubmitted,
    NodeReported,
    PlanApplied,
    ProgressMade,
    Scale,
    Ticked,
)
from dlrover_nb.core.structs.views.past_jobs import FitSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.baselines import Policy
    from dlrover_nb.core.planner.advising.advice import Axes
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.samples import ProfileSample

REPORT_S = 15.0
DECIDE_S = 180.0  # "every three minutes" (DLRover-RM section 6.2)
QUIET = Faults(failures_per_day=0, slow_per_day=0)
SETTINGS = ControllerSettings(
    window_s=REPORT_S,
    max_window_s=8 * REPORT_S,
    settle_s=REPORT_S,
    refit_s=1200.0,
    refit_growth=0.5,
    cool_down_s=6 * REPORT_S,
    memory_check_s=1200.0,
    planner=PlannerSettings(experiment_s=8 * REPORT_S),
)


class Runner(Protocol):
    """Decides for one job."""

    def hear(self, event: Event) -> ResourcePlan | None: ...


class Still:
    """Leaves the job as it is."""

    def hear(self, event: Event) -> ResourcePlan | None:
        del event
        return None


class Ours:
    """The product's controller."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._controller: Controller | None = None
        self.fit: FitSummary | None = None

    def hear(self, event: Event) -> ResourcePlan | None:
        target = None
        if isinstance(event, JobSubmitted):
            self._controller = Controller(event, self._settings)
            return None
        assert self._controller is not None
        for order in self._controller.handle(event):
            if isinstance(order, Scale):
                target = order.target
            elif isinstance(order.record, FitSummary):
                self.fit = order.record
        return target


class Baseline:
    """Calls a baseline policy at every decision interval, with the same steady windows as ours."""

    def __init__(self, policy: Policy, settings: ControllerSettings, global_batch: int | None) -> None:
        self._policy, self._settings, self._global_batch = policy, settings, global_batch
        self._samples: dict[ResourcePlan, deque[ProfileSample]] = {}
        self._n_done, self._decided_s = 0, 0.0
        self._plan: ResourcePlan | None = None

    def hear(self, event: Event) -> ResourcePlan | None:
        match event:
            case JobSubmitted():
                self._job = event
                self._windows = SteadyWindows(self._settings, event.spec)
            case NodeReported():
                if event.plan != self._plan:
                    self._restart(event.plan, event.at_s)
                for window in self._windows.add(event.sample, event.at_s):
                    kept = self._samples.setdefault(window.plan, deque(maxlen=self._settings.n_kept))
                    kept.append(window)
            case PlanApplied():
                self._restart(event.plan, event.at_s)
            case ProgressMade():
                self._n_done = event.n_sample_done
            case Ticked() if self._plan is not None and event.at_s >= self._decided_s + DECIDE_S:
                self._decided_s = event.at_s
                return self._decide(self._plan)
            case _:
                pass
        return None

    def _restart(self, plan: ResourcePlan | None, at_s: float) -> None:
        self._plan = plan
        self._windows.restart(plan, at_s)

    def _decide(self, plan: ResourcePlan) -> ResourcePlan | None:
        state = self.state(plan)
        return None if state is None else self._policy(state)

    @property
    def plan(self) -> ResourcePlan | None:
        """What runs, by the last report; None before the first one."""
        return self._plan

    @property
    def n_done(self) -> int:
        """Samples that are trained."""
        return self._n_done

    def state(self, plan: ResourcePlan) -> JobState | None:
        """Return what a policy is told while a plan runs; None before a steady window of it."""
        if plan not in self._samples:
            return None
        spec = self._job.spec
        return JobState(
            plan,
            tuple(sample for kept in self._samples.values() for sample in kept),
            max(self._job.n_sample_total - self._n_done, 0),
            spec.bounds,
            self._job.capacity,
            spec.batch_size,
            global_batch=self._global_batch,
        )


@dataclass(frozen=True)
class Run:
    jct_s: float
    core_h: float
    n_change: int
    n_return: int  # changes to a plan that ran before, ways back from experiments included
    last: ResourcePlan


HostParts = tuple[tuple[float, float], ...]  # `Faults.host_parts`


def simulate(job: SimulatedJob, runner: Runner, seed: int, noise: float, host: HostParts = ()) -> Run:
    """Run a job whose windows and nodes differ by `noise`, the standard deviation of log speed.

    `host` is what other work on its hosts leaves of its speed over time.
    """
    faults = replace(QUIET, speed_noise=noise, node_noise=noise, host_parts=host)
    settings = WorldSettings(report_s=REPORT_S, faults=faults)
    world = SimulatedWorld(MACHINES, rng=np.random.default_rng(seed), settings=settings)
    if isinstance(job.truth, Drifting):
        job.truth.at_s = 0.0
    sim, plans = world.submit(job), [axes_key(job.spec.plan)]
    while world.next_at_s < math.inf:
        at_s, told = world.step()
        if isinstance(job.truth, Drifting):
            job.truth.at_s = at_s
        for name, event in told:
            target = runner.hear(event)
            if target is not None:
                plans.append(axes_key(target))
                world.obey(name, Scale("policy", target))
    if sim.phase is not JobPhase.SUCCEEDED or sim.ended_at_s is None:
        raise RuntimeError(f"{job.spec.name} has {sim.phase}: {sim.message}")
    jct_s, core_h = sim.ended_at_s - sim.started_at_s, sim.progress.core_s / 3600
    return Run(jct_s, core_h, len(plans) - 1, n_returns(plans), sim.target)


def n_returns(plans: Sequence[Axes]) -> int:
    """Count the changes that led to a plan that was left before; memory alone is no other plan."""
    changes = enumerate(itertools.pairwise(plans))
    return sum(after != before and after in plans[:i] for i, (before, after) in changes)
