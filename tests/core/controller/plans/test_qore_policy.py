"""The policy `qore` under the controller, on whole simulated jobs with a deadline."""

from __future__ import annotations

import numpy as np
import pytest

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.simulator import Faults, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds, Quota
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import JobSubmitted, QuotaChanged, Scale

pytestmark = pytest.mark.more

TRUTH = TermsTruth(grad_s=0.01, update_s=0.01)
SIZES = (0.5, 1.0, 2.0, 4.0)
QUIET = WorldSettings(report_s=15.0, faults=Faults(failures_per_day=0, slow_per_day=0))


def plans_and_whys(
    start: ResourcePlan,
    deadline: float | None,
    *,
    hours: float = 2.0,
    quota: Quota | None = None,
    quota_at_s: float = 600,
):
    """Run a job that takes `hours` on its first plan; the deadline is a multiple of that.

    `quota`: what the brain allots, `quota_at_s` seconds after the start.
    """
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
            if quota is not None and world.now_s >= quota_at_s:
                allotted, quota = QuotaChanged(world.now_s, quota), None
                for order in controller.handle(allotted):
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


def test_led_to_grow_a_job_in_time_takes_idle_cores_and_no_more_than_its_quota():
    start = ResourcePlan(RolePlan(2, 1.0, 4096), RolePlan(1, 1.0, 4096))
    plans, whys = plans_and_whys(start, 1.15, quota=Quota(8.0, 1 << 17, leads=True))
    assert start.total_cpu < plans[-1].total_cpu <= 8.0
    assert TRUTH.speed(plans[-1], 512) > TRUTH.speed(start, 512)
    assert any("Cores are idle" in why for why in whys)


def test_where_the_brain_leads_a_job_gives_nothing_back_by_itself():
    start = ResourcePlan(RolePlan(4, 2.0, 4096), RolePlan(2, 2.0, 4096))
    quota = Quota(start.total_cpu, start.total_memory_mib, leads=True)
    led, _ = plans_and_whys(start, 4.0, quota=quota, quota_at_s=60)
    assert led == [start]
    alone, _ = plans_and_whys(start, 4.0)
    assert alone != [start]


def test_where_no_more_of_the_same_shape_is_left_a_late_job_takes_another_shape():
    start = ResourcePlan(RolePlan(1, 4.0, 4096), RolePlan(1, 4.0, 4096))
    quota = Quota(9.0, 1 << 17, leads=True)
    plans, _ = plans_and_whys(start, 0.8, quota=quota, quota_at_s=60)
    assert plans[1].ps.cpu < start.ps.cpu
    assert plans[1].total_cpu <= 9.0
    assert TRUTH.speed(plans[1], 512) > 1.1 * TRUTH.speed(start, 512)
