"""The main job in real pods, beside the same job on Ray: trained to the end, scaled meanwhile, and cleared away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.jobs.orders import ordered
from support.kubernetes.jobs_in_pods import SMALL, assert_exact, job, names_of, trained
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.ray.head import running_head
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.decisions.actions import KillRestart, SetSize
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan

pytestmark = [pytest.mark.kube, pytest.mark.pods]

# The gradients of two asynchronous workers arrive in another order in each run. Four runs of this job on Ray
# differed by less than 0.0001.
SAME_AUC = 0.002


@pytest.fixture
def on_ray():
    """Run a job on a local Ray and return its end."""
    was_there = running_head() is not None
    cluster = connect("ray", cpus=4)
    yield lambda spec: cluster.submit(spec).wait(LIMIT_S)
    if not was_there:
        cluster.shutdown(force=True)


@pytest.mark.release
@pytest.mark.ray
def test_a_job_in_pods_ends_as_it_does_on_ray_and_leaves_nothing(place, on_ray):
    spec = job("census", n_epoch=4)
    handle = place.cluster.submit(spec)
    trained(handle, 5_000)
    assert {
        role: len(place.pods(f"dlrover-nb/job=census,dlrover-nb/role={role}")) for role in ("ps", "worker")
    } == {
        "ps": 2,
        "worker": 2,
    }
    end = handle.wait(LIMIT_S)
    assert_exact(spec, end)
    again = on_ray(replace(spec, name="census-ray"))
    assert_exact(spec, again)
    assert end.evaluation.auc == pytest.approx(again.evaluation.auc, abs=SAME_AUC)
    assert place.left_of("census")
    place.batch.delete_namespaced_job("census", place.namespace, propagation_policy="Background")
    place.gone("census")
    with pytest.raises(NotFoundError):
        place.cluster.job("census")


@pytest.mark.more
def test_a_job_scaled_out_and_in_loses_no_shard_and_tells_no_secret(place):
    # On a quiet machine an epoch takes 3 s, and a new worker 7 s to begin.
    spec = job("scaled", plan=SMALL, n_epoch=8)
    handle = place.cluster.submit(spec)
    trained(handle, 5_000)
    secrets = place.secrets_of("scaled")
    more = replace(SMALL, worker=RolePlan(2, 0.8, 512))
    for target in (more, SMALL):
        handle.decide(Scale.to(target, why="to see it grow and shrink"))
        until(lambda t=target: handle.snapshot().running == t, what=f"{target}")
        pods = place.pods("dlrover-nb/job=scaled,dlrover-nb/role=worker")
        assert len([pod for pod in pods if pod.status.phase == "Running"]) >= target.worker.count
    told = (
        place.all_that_is_told() + repr(handle.snapshot()) + repr(handle) + repr(handle.logs(n_line=10_000))
    )
    end = handle.wait(LIMIT_S)
    assert_exact(spec, end)
    assert [marker.plan for marker in end.markers] == [SMALL, more, SMALL]
    told += place.all_that_is_told() + repr(end)
    assert [secret for secret in secrets if secret in told] == []


@pytest.mark.release
def test_a_worker_and_its_ps_are_replaced_by_other_pods_by_order(place):
    spec = job("mitigated", plan=replace(SMALL, worker=RolePlan(2, 0.4, 512)), n_epoch=8)
    handle = place.cluster.submit(spec)
    trained(handle, 5_000)
    replaced(handle, Role.WORKER, lambda node: KillRestart(node, Role.WORKER))
    replaced(handle, Role.PS, lambda node: KillRestart(node, Role.PS))
    replaced(handle, Role.WORKER, lambda node: SetSize(node, Role.WORKER, 0.5, 600))
    workers = [node for node in handle.snapshot().nodes if node.role is Role.WORKER]
    assert sorted((node.cpu, node.memory_mib) for node in workers) == [(0.4, 512), (0.5, 600)]
    assert_exact(spec, handle.wait(LIMIT_S))


def replaced(handle, role, action):
    """Order an action for a node until it was done; see that the node has gone.

    A pod that a busy machine lets die meanwhile makes the master refuse: it takes orders with all nodes there.
    """
    told = None
    while told is not ProposalStatus.APPLIED:
        now = until(lambda: now if (now := handle.snapshot()).running else None, what="all nodes of the plan")
        node = max(
            (each.id for each in now.nodes if each.role is role), key=lambda name: int(name.split("-")[1])
        )
        decision = handle.decide(ordered(action(node), why="to see it replaced"))
        until(lambda d=decision: closed(handle, d), what=lambda: f"{handle.snapshot().mitigations}")
        told = closed(handle, decision)
        (ended,) = (each for each in handle.snapshot().mitigations if each.decision == decision.id)
        assert told is ProposalStatus.APPLIED or "is not in place" in ended.note, ended
    assert node not in names_of(handle.snapshot())


def closed(handle, decision):
    """Return how an ordered action ended; None while it has not."""
    found = (
        each for each in handle.snapshot().mitigations if each.decision == decision.id and each.closed_at_s
    )
    return next((each.status for each in found), None)


@pytest.mark.release
def test_a_plan_of_other_sizes_replaces_the_pods_where_the_server_resizes_none(place):
    """1.20 takes a Role that names ``pods/resize``, and serves no such thing."""
    spec = job("sized", plan=SMALL, n_epoch=8)
    handle = place.cluster.submit(spec)
    before = trained(handle, 5_000)
    rules = place.rbac.read_namespaced_role("sized-master", place.namespace).rules
    assert ["pods/resize"] in [rule.resources for rule in rules]
    target = ResourcePlan(RolePlan(1, 0.6, 512), RolePlan(1, 0.3, 384))
    handle.decide(Scale.to(target, why="to see the pods replaced"))
    after = until(lambda: now if (now := handle.snapshot()).running == target else None, what=f"{target}")
    assert names_of(before) == {"ps-0", "worker-0"}
    assert names_of(after) == {"ps-1", "worker-1"}
    assert_exact(spec, handle.wait(LIMIT_S))
