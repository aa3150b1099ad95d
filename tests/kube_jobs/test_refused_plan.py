"""A plan that a LimitRange refuses: the job trains on, learns the limit, and takes a plan within it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.kubernetes.jobs_in_pods import FOREVER, job, trained
from support.waiting import until

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = [pytest.mark.kube, pytest.mark.pods]

FIRST = ResourcePlan(worker=RolePlan(1, 0.4, 512), ps=RolePlan(1, 0.2, 256))
LIMIT_MIB = 600


@pytest.mark.more
def test_a_job_outlives_a_plan_that_a_limit_range_refuses(place):
    handle = place.cluster.submit(job("limited", plan=FIRST, n_epoch=FOREVER))
    trained(handle, 1)
    limits = [{"type": "Container", "max": {"memory": f"{LIMIT_MIB}Mi"}}]
    place.core.create_namespaced_limit_range(
        place.namespace, {"metadata": {"name": "small"}, "spec": {"limits": limits}}
    )
    larger = replace(FIRST, worker=RolePlan(2, 0.3, LIMIT_MIB + 100))
    handle.decide(Scale.to(larger))

    def settled(plan):
        snapshot = handle.snapshot()
        assert not snapshot.phase.is_final, snapshot.message
        return snapshot if snapshot.running == plan and not snapshot.under_way else None

    snapshot = until(lambda: settled(FIRST), what="the plan before")
    assert any(
        "is failed" in line and f"maximum memory usage per Container is {LIMIT_MIB}Mi" in line
        for line in snapshot.story
    )
    until(lambda: handle.snapshot().capacity.node_limits, what="the limit in the job's capacity")
    with pytest.raises(CapacityError, match=f"one node have at most {LIMIT_MIB} MiB"):
        handle.decide(Scale.to(larger))
    within = replace(FIRST, worker=RolePlan(2, 0.3, LIMIT_MIB))
    handle.decide(Scale.to(within))
    until(lambda: settled(within), what="a plan within the limit")
    assert handle.snapshot().train.n_sample_done > snapshot.train.n_sample_done
