"""What documents of DLRover's operator mean: laws over any plan, and words for what is unusual."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs.exports import plans, small_plans

from dlrover_nb.core.backends.kubernetes.operator.elastic_observed import (
    Applied,
    alive,
    applied,
    misfits,
    nodes_of,
    size_of,
    view,
)
from dlrover_nb.core.export.quantities import resources_of
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.snapshot import NodePhase


def _pod(kind: str, number: int, resources: dict[str, str], phase: str = "Running", **more: Any) -> Any:
    labels = {
        "elasticjob.dlrover/replica-type": kind,
        "elasticjob.dlrover/replica-index": str(number),
        "elasticjob.dlrover/rank-index": str(number),
    }
    return {
        "metadata": {"name": f"a-edljob-{kind}-{number}", "labels": labels, **more},
        "spec": {"containers": [{"name": "side"}, {"name": "main", "resources": {"limits": resources}}]},
        "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z"},
    }


def _pods(plan: ResourcePlan, first: int = 0) -> list[Any]:
    return [
        _pod(str(role), first + i, resources_of(plan.role(role)))
        for role in Role
        for i in range(plan.role(role).count)
    ]


def _scale(**fields: Any) -> Any:
    return {"metadata": {}, "spec": {"replicaResourceSpecs": {"worker": {}, "ps": {}}}, **fields}


@settings(deadline=None, max_examples=50)
@given(small_plans, st.integers(0, 50))
def test_a_plan_is_done_when_just_its_pods_run(plan: ResourcePlan, first: int) -> None:
    pods = _pods(plan, first)
    assert applied(_scale(), plan, pods) is Applied.DONE
    assert applied(_scale(), plan, pods[1:]) is Applied.WAITING
    assert applied(_scale(), plan, [*pods, _pod("worker", 99, {"cpu": "1"})]) is Applied.WAITING
    pods[0]["status"]["phase"] = "Pending"
    assert applied(_scale(status={"phase": "Pending"}), plan, pods) is Applied.SCALING
    assert applied(_scale(status={"phase": "Failed"}), plan, _pods(plan)) is Applied.REFUSED


@settings(deadline=None, max_examples=50)
@given(plans)
def test_a_pods_size_is_that_of_the_plan_it_was_made_for(plan: ResourcePlan) -> None:
    for role in Role:
        own = plan.role(role)
        pod = _pod(str(role), 0, resources_of(own))
        cpu, memory_mib = size_of(pod)
        assert (round(cpu, 3), memory_mib) == (own.cpu, own.memory_mib)
        assert misfits(own, [pod]) == []
        tenths = {**resources_of(own), "cpu": f"{round(own.cpu, 1)}"}
        assert misfits(own, [_pod(str(role), 0, tenths)]) == []  # as DLRover reads it
        assert misfits(own, [_pod(str(role), 0, {**tenths, "memory": f"{own.memory_mib + 1}Mi"})])


def test_only_the_owner_that_dlrovers_master_puts_there_says_that_a_plan_was_taken_up() -> None:
    plan = ResourcePlan(worker=RolePlan(1, 1, 512), ps=RolePlan(1, 1, 512))
    ours, theirs = {"kind": "ElasticJob"}, {"kind": "elasticjob", "blockOwnerDeletion": True}
    assert applied(_scale(metadata={"ownerReferences": [ours]}), plan, []) is Applied.WAITING
    assert applied(_scale(metadata={"ownerReferences": [theirs]}), plan, []) is Applied.SCALING


@for_each(
    ("told", "phase"),
    [
        ("", JobPhase.STARTING),
        ("Created", JobPhase.STARTING),
        ("Pending", JobPhase.STARTING),
        ("Running", JobPhase.TRAINING),
        ("Scaling", JobPhase.RESCALING),
        ("Succeeded", JobPhase.SUCCEEDED),
        ("Failed", JobPhase.FAILED),
        ("Suspended", JobPhase.STARTING),
        ("WhateverComesNext", JobPhase.STARTING),
    ],
)
def test_each_phase_of_theirs_is_one_of_ours(told: str, phase: JobPhase) -> None:
    assert view({"status": {"phase": told}}, []).phase is phase


def test_a_job_without_any_status_yet_is_starting_and_one_that_is_gone_has_stopped() -> None:
    assert view({"metadata": {}}, []).phase is JobPhase.STARTING
    assert view(None, []).phase is JobPhase.STOPPED
    assert view({"status": {"phase": "Running"}}, [], [{"name": "open"}]).phase is JobPhase.RESCALING


def test_the_last_condition_is_the_reason() -> None:
    conditions = [
        {"type": "Failed", "message": "exit code 1", "lastTransitionTime": "2026-01-02T00:00:00Z"},
        {"type": "Created", "message": "created", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]
    status = {"phase": "Failed", "status": {"conditions": conditions, "replicaStatuses": None}}
    assert view({"status": status}, []).why == "exit code 1"


def test_nodes_say_what_they_wait_for_and_which_are_over() -> None:
    full = _pod("worker", 2, {"cpu": "1"}, "Pending")
    full["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
    ]
    pull = _pod("ps", 0, {}, "Pending")
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pull["status"]["containerStatuses"] = [{"state": {"waiting": waiting}}]
    leaving = _pod("worker", 1, {"cpu": "1"}, deletionTimestamp="2026-01-01T00:00:01Z")
    pods = [
        full,
        pull,
        leaving,
        _pod("worker", 0, {}, "Failed"),
        _pod("dlrover-master", 0, {}),
        _pod("chief", 0, {}),
    ]
    nodes = nodes_of(pods)
    assert [(n.id, n.role, n.phase, n.waits_for) for n in nodes] == [
        ("chief-0", Role.WORKER, NodePhase.READY, ""),
        ("ps-0", Role.PS, NodePhase.PENDING, "ImagePullBackOff: no such image"),
        ("worker-0", Role.WORKER, NodePhase.GONE, ""),
        ("worker-1", Role.WORKER, NodePhase.DRAINING, ""),
        ("worker-2", Role.WORKER, NodePhase.PENDING, "0/2 nodes are available"),
    ]
    assert [pod["metadata"]["name"] for pod in alive(pods)[Role.WORKER]] == [
        "a-edljob-chief-0",
        "a-edljob-worker-2",
    ]
