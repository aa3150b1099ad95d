"""Jobs with a total budget in simulated worlds: what they spend is what their nodes held, and no more."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from test_deadlines_in_simulation import SHAPES, sampled

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.simulator import SimulatedWorld, WorldSettings
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.events import JobSubmitted


def run(job, seed=0, report_s=30.0):
    """Return a simulated job and its controller, after its end."""
    world = SimulatedWorld(SHAPES, rng=np.random.default_rng(seed), settings=WorldSettings(report_s=report_s))
    sim, controller = world.submit(job), None
    while world.next_at_s < math.inf:
        for _, event in world.step()[1]:
            if isinstance(event, JobSubmitted):
                controller = Controller(event, SETTINGS)
                continue
            for order in controller.handle(event):
                world.obey("job", order)
    return sim, controller


def held_cost(sim):
    """Return what its nodes cost by the simulator's own account."""
    prices, progress = sim.job.spec.prices, sim.progress
    return (progress.core_s * prices.cpu_hour + progress.gib_s * prices.gib_hour) / 3600


@pytest.mark.parametrize("seed", range(3))
def test_a_job_spends_its_budget_and_little_more_and_says_so(seed):
    job, _ = sampled(seed)
    spec = replace(job.spec, mode=Mode.MANUAL)
    free, controller = run(replace(job, spec=spec), seed)
    assert controller.spent == pytest.approx(held_cost(free), rel=0.02)
    limit = 0.5 * controller.spent
    sim, controller = run(replace(job, spec=replace(spec, budget_total=limit)), seed)
    assert sim.phase is JobPhase.STOPPED
    assert sim.message.startswith("stopped by budget_total: ")
    a_report = controller.cost_per_hour or sim.job.spec.prices.per_hour(sim.target.total_cpu, 0) or 0.0
    assert limit <= controller.spent <= limit + 2 * 30.0 / 3600 * max(a_report, 1.0)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(6))
def test_auto_mode_ends_within_what_the_job_takes_without_a_limit_and_little_more(seed):
    """Five percent: at two, one pause for a plan that finds no room beside the present one is too much."""
    job, _ = sampled(seed)
    auto = replace(job.spec, mode=Mode.AUTO)
    _, alone = run(replace(job, spec=auto), seed)
    limit = 1.05 * alone.spent
    sim, controller = run(replace(job, spec=replace(auto, budget_total=limit)), seed)
    assert sim.phase is JobPhase.SUCCEEDED
    assert controller.spent <= limit
