"""Changes of plan that need all that a namespace's quota allows: they come about, or are cancelled, and always end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.kubernetes.jobs_in_pods import FOREVER, job, trained
from support.kubernetes.kube import host_files
from support.waiting import until

from dlrover_nb.core.commands.requests import Scale, Undo
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = [pytest.mark.kube, pytest.mark.pods]

FIRST = ResourcePlan(worker=RolePlan(1, 0.5, 512), ps=RolePlan(1, 0.25, 256))
ALL = ResourcePlan(worker=RolePlan(2, 0.3, 512), ps=RolePlan(2, 0.2, 256))  # all that the quota leaves


@pytest.fixture
def handle(place):
    """Train a job in a namespace whose quota holds its master and nodes of one core."""
    spec = job("fills", plan=FIRST, n_epoch=FOREVER, checkpoint_every_s=20.0)
    hard = {"requests.cpu": f"{host_files()['master_cpu'] + ALL.total_cpu:g}"}
    quota = {"metadata": {"name": "one-core"}, "spec": {"hard": hard}}
    place.core.create_namespaced_resource_quota(place.namespace, quota)
    handle = place.cluster.submit(spec)
    trained(handle, 1)
    return handle


@pytest.mark.release
def test_changes_under_a_full_quota_come_about_are_cancelled_and_replaced(handle):
    def runs(plan):
        def told():
            snapshot = handle.snapshot()
            return f"{plan.short}: {snapshot.message}; {[str(n) for n in snapshot.nodes]}"

        until(lambda: handle.snapshot().running == plan and not handle.snapshot().under_way, what=told)

    until(lambda: round(handle.snapshot().capacity.total_cpu, 2) == ALL.total_cpu, what="room for the plan")
    handle.decide(Scale.to(ALL))
    runs(ALL)
    handle.decide(Undo(""))
    runs(FIRST)
    decision = handle.decide(Scale.to(ALL))
    assert handle.snapshot().under_way == decision.id
    assert handle.decide(Undo("", why="too large")).undoes == decision.id
    runs(FIRST)
    handle.decide(Scale.to(ALL))
    larger = replace(FIRST, worker=replace(FIRST.worker, cpu=0.75))
    handle.decide(Scale.to(larger))
    runs(larger)
    assert [marker.plan for marker in handle.snapshot().markers] == [FIRST, ALL, FIRST, larger]
