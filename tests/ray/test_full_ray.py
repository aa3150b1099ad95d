"""Changes of plan that need all of a real Ray: they come about, or are cancelled, and always end."""

from dataclasses import replace

import pytest

from dlrover_nb.core.commands.requests import Scale, Undo
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = [pytest.mark.ray, pytest.mark.release]

FIRST = ResourcePlan(worker=RolePlan(1, 1.0, 512), ps=RolePlan(1, 0.5, 512))
ALL = ResourcePlan(worker=RolePlan(4, 0.5, 512), ps=RolePlan(2, 1.0, 512))  # 4 cores, as the cluster has
WAY_THERE = [FIRST, ALL, FIRST]


@pytest.fixture
def handle(cluster, wait_until):
    spec = JobSpec(name="fills", plan=FIRST, mode=Mode.MANUAL, n_epoch=10_000, checkpoint_every_s=20.0)
    handle = cluster.submit(spec)
    wait_until(lambda: handle.snapshot().running == FIRST, what="training")
    yield handle
    handle.stop()


def test_a_plan_that_takes_all_of_the_cluster_comes_about_and_is_undone(cluster, handle, wait_until):
    assert cluster.capacity().total_cpu == ALL.total_cpu
    handle.decide(Scale.to(ALL))
    assert handle.snapshot().target == ALL
    wait_until(lambda: handle.snapshot().running == ALL, what=lambda: handle.snapshot().message)
    handle.decide(Undo(""))
    wait_until(lambda: handle.snapshot().running == FIRST, what=lambda: handle.snapshot().message)
    assert [marker.plan for marker in handle.snapshot().markers] == WAY_THERE


def test_a_change_under_way_is_cancelled_at_once_and_replaced_by_another(handle, wait_until):
    decision = handle.decide(Scale.to(ALL))
    assert handle.snapshot().under_way == decision.id
    assert handle.decide(Undo("", why="too large")).undoes == decision.id
    wait_until(
        lambda: handle.snapshot().running == FIRST and not handle.snapshot().under_way, what="the way back"
    )
    assert handle.snapshot().undo is None
    handle.decide(Scale.to(ALL))
    two = replace(FIRST, worker=replace(FIRST.worker, count=2))
    handle.decide(Scale.to(two))
    wait_until(lambda: handle.snapshot().running == two, what="the newer plan")
    assert handle.snapshot().undo.plan == FIRST
