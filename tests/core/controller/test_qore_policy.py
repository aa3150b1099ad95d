"""The policy `qore` under the controller, on whole simulated jobs with a deadline."""

from __future__ import annotations

import numpy as np

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.controller import Controller
from dlrover_nb.core.planner import POLICIES
from dlrover_nb.core.simulator import Faults, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.bounds import PlanBounds
from dlrover_nb.core.structs.capacity import NodeShape
from dlrover_nb.core.structs.events import JobSubmitted, Scale
from dlrover_nb.core.structs.job import JobSpec, Mode
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan

TRUTH = TermsTruth(grad_s=0.01, update_s=0.01)
SIZES = (0.5, 1.0, 2.0, 4.0)
QUIET = WorldSettings(report_s=15.0, faults=Faults(failures_per_day=0, slow_per_day=0))


def plans_and_whys(start: ResourcePlan, deadline: float | None, *, hours: float = 2.0):
    """Run a job that takes `hours` on its first plan; the deadline is a multiple of that."""
    n_row = int(TRUTH.speed(start, 512) * hours * 3600)
    deadline_s = None if deadline is None else deadline * hours * 3600
    spec = JobSpec(
        "job",
        policy="qore",
        mode=Mode.AUTO,
        plan=start,
        batch_size=512,
        bounds=PlanBounds(12, 6, SIZES, SIZES),
        deadline_s=deadline_s,
    )
    job = SimulatedJob(spec, TRUTH, n_row, dense_bytes=1 << 16, embedding_dim=1)
    world = SimulatedWorld((NodeShape(32.0, 1 << 17, 4),), rng=np.random.default_rng(3), settings=QUIET)
    world.submit(job)
    plans, controller = [start], None
    while world.now_s < hours * 1800:
        for name, event in world.step(hours * 1800)[1]:
            if isinstance(event, JobSubmitted):
                controller = Controller(event, SETTINGS, policy=POLICIES[event.spec.policy])
                continue
            for order in controller.handle(event):
                if isinstance(order, Scale):
                    plans.append(order.target)
                    world.obey(name, order)
    return plans, [p.why for p in controller.view().proposals]


def test_a_job_that_would_be_late_grows():
    start = ResourcePlan(RolePlan(2, 1.0, 4096), RolePlan(1, 1.0, 4096))
    plans, whys = plans_and_whys(start, 0.6)
    assert TRUTH.speed(plans[-1], 512) > 1.2 * TRUTH.speed(start, 512)
    assert any(why.startswith("By qore: ") and "The deadline is in danger" in why for why in whys)


def test_a_job_with_slack_shrinks():
    start = ResourcePlan(RolePlan(8, 2.0, 4096), RolePlan(4, 2.0, 4096))
    plans, whys = plans_and_whys(start, 4.0)
    assert plans[-1].total_cpu < start.total_cpu
    assert any("The job has slack" in why for why in whys)


def test_a_job_without_a_deadline_stays_as_it_is():
    start = ResourcePlan(RolePlan(2, 1.0, 4096), RolePlan(1, 1.0, 4096))
    assert plans_and_whys(start, None) == ([start], [])
