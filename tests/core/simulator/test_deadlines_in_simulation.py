"""Jobs with a deadline in simulated worlds with faults: how often they reach it, with steering and without."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.pareto.space import list_plans, plan_grid
from dlrover_nb.core.simulator import SimulatedWorld, WorldSettings
from dlrover_nb.core.simulator.workload import JobSampler
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.views.events import JobSubmitted

BOUNDS = PlanBounds(16, 6, (1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0))
SHAPES = (NodeShape(32.0, 131_072, 6),)
REACHABLE = 2.2  # times what the fastest plan would take that nobody knows at the start
SEEDS = range(10)


def sampled(seed):
    """Return a job of an hour or two that starts on some plan, and its deadline."""
    job = JobSampler(hours=(2.0, 0.3), bounds=BOUNDS).sample("job", np.random.default_rng(seed))
    grid = plan_grid(BOUNDS, Capacity(SHAPES), worker_memory_mib=4096, ps_memory_mib=16_384)
    space = list_plans(grid)
    fastest = max(job.truth.speed(space.plan(i), job.spec.batch_size) for i in range(len(space)))
    return replace(job, traits=None), REACHABLE * job.n_sample / fastest


def ended(job, seed):
    """Return when a job in auto mode has ended."""
    world = SimulatedWorld(SHAPES, rng=np.random.default_rng(seed), settings=WorldSettings(report_s=30.0))
    sim, controller = world.submit(job), None
    while world.next_at_s < math.inf:
        for _, event in world.step()[1]:
            if isinstance(event, JobSubmitted):
                controller = Controller(event, SETTINGS)
                continue
            for order in controller.handle(event):
                world.obey("job", order)
    return sim.ended_at_s


@pytest.mark.release
def test_jobs_reach_a_reachable_deadline_at_least_as_often_as_without_steering():
    steered, left_alone = 0, 0
    for seed in SEEDS:
        job, due_s = sampled(seed)
        steered += ended(replace(job, spec=replace(job.spec, deadline_s=due_s)), seed) <= due_s
        left_alone += ended(job, seed) <= due_s
    assert steered >= 0.9 * len(SEEDS)
    assert steered >= left_alone
