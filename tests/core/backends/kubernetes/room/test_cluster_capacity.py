"""What a job may use of a cluster: machines, quotas and pods as an API server tells them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.kubernetes.machines import ME, mine, node, pod, shapes

from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import (
    Looked,
    Tenant,
    assumed,
    capacity_of,
    requests_of,
    room_of,
)
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import GPU_RESOURCE, KubernetesSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, check_fits
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

SEEN = Capacity((NodeShape(4.0, 8192, 2),))


def quota(used=None, scopes=(), terms=(), **hard):
    given = {key.replace("_", "."): value for key, value in hard.items()}
    selector = {"scopeSelector": {"matchExpressions": list(terms)}} if terms else {}
    told = {"hard": given, "used": used or {}}
    return {"spec": {"hard": given, "scopes": list(scopes), **selector}, "status": told}


def test_machines_of_a_kind_are_one_shape_and_the_largest_comes_first():
    looked = Looked((node("a", "2", "4Gi"), node("b", "4"), node("c", "2000m", "4096Mi")), (), None)
    assert shapes(capacity_of(looked, ME, None)) == [(4.0, 8192, 1), (2.0, 4096, 2)]


def test_what_stays_on_a_machine_and_the_jobs_own_master_are_no_part_of_what_it_may_use():
    pods = (
        pod("500m", "1Gi", owner="DaemonSet"),
        mine("master", cpu="250m", memory="768Mi"),
        pod("2", "2Gi"),
    )
    looked = Looked((node(),), (), pods)
    assert shapes(capacity_of(looked, ME, None)) == [(3.25, 6400, 1)]
    assert shapes(room_of(looked, ME, None)) == [(1.25, 4352, 1)]


def test_what_the_job_holds_is_room_for_it_and_what_has_ended_is_free():
    pods = (mine(cpu="3"), pod("1", "1Gi", phase="Succeeded"))
    assert shapes(room_of(Looked((node(),), (), pods), ME, None)) == [(4.0, 8192, 1)]


def test_a_job_of_that_name_elsewhere_is_somebody_else():
    other = pod("1", "1Gi", namespace="elsewhere", job="quick-start", role="worker")
    assert shapes(room_of(Looked((node(),), (), (other,)), ME, None)) == [(3.0, 7168, 1)]


def test_gpus_of_machines_count_less_those_that_others_hold():
    nodes = (node("a", gpu=4), node("b"))
    other = pod(at="a")
    other["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "3"}
    looked = Looked(nodes, (), (other,))
    assert [s.gpu for s in capacity_of(looked, ME, None).shapes] == [4, 0]
    assert {(s.cpu, s.gpu) for s in room_of(looked, ME, None).shapes} == {(3.0, 1), (4.0, 0)}
    cut = capacity_of(Looked(nodes, (quota(cpu="5.25"),), None), ME, None)
    assert [(s.cpu, s.gpu) for s in cut.shapes] == [(4.0, 4), (1.0, 0)]


def holding(n_gpu, **fields):
    """Return a pod of the job with GPUs."""
    made = mine(cpu="1", memory="1Gi", **fields)
    made["spec"]["containers"][0]["resources"]["limits"] = {GPU_RESOURCE: str(n_gpu)}
    return made


def gpu_quota(hard, used="0"):
    name = f"requests.{GPU_RESOURCE}"
    return {"spec": {"hard": {name: hard}}, "status": {"hard": {name: hard}, "used": {name: used}}}


def test_a_quota_of_gpus_cuts_them_where_most_are_first_and_leaves_cores_alone():
    nodes = (node("a", gpu=4), node("b", cpu="8", gpu=1), node("c", gpu=4))
    looked = Looked(nodes, (gpu_quota("6"), gpu_quota("5"), quota(cpu="99")), None)
    capacity = capacity_of(looked, ME, None)
    assert sorted(s.gpu for s in capacity.shapes for _ in range(s.count)) == [0, 1, 4]
    assert capacity.total_cpu == 16.0
    assert capacity_of(Looked(nodes, (gpu_quota("9"),), None), ME, None).total_gpu == 9
    assert capacity_of(Looked(nodes, (gpu_quota("0"),), None), ME, None).total_gpu == 0


def test_gpus_that_a_quota_has_left_and_those_of_the_job_are_its_room():
    own = (holding(1), holding(1), holding(1, phase="Succeeded"))
    looked = Looked((node(gpu=8),), (gpu_quota("5", used="4"),), None)
    assert room_of(looked, ME, None, mine=own).total_gpu == 3
    assert room_of(looked, ME, None).total_gpu == 1
    assert capacity_of(looked, ME, None).total_gpu == 5


@given(
    gpus=st.lists(st.integers(0, 8), min_size=1, max_size=5), limits=st.lists(st.integers(0, 20), max_size=3)
)
def test_gpus_in_all_are_what_machines_have_and_the_least_quota_allows(gpus, limits):
    nodes = tuple(node(f"n{i}", gpu=n) for i, n in enumerate(gpus))
    looked = Looked(nodes, tuple(gpu_quota(str(limit)) for limit in limits), None)
    capacity = capacity_of(looked, ME, None)
    assert capacity.total_gpu == min([sum(gpus), *limits])
    assert capacity.total_cpu == 4.0 * len(gpus)


def test_machines_that_may_not_be_listed_are_assumed_to_have_the_gpus_of_a_node():
    spec = JobSpec("j", plan=ResourcePlan(RolePlan(2, 1, 512, 2), RolePlan(1, 1, 512)))
    assert check_fits(spec.plan, assumed(spec)) is None
    unseen = Looked(None, (quota(cpu="9"),), None)
    assert capacity_of(unseen, replace(ME, n_gpu=4), None).total_gpu == 4


@for_each(
    "away",
    [
        {"ready": "False"},
        {"ready": "Unknown"},
        {"unschedulable": True},
        {"taints": [{"key": "team", "value": "ads", "effect": "NoSchedule"}]},
        {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
        {"labels": {"disk": "hdd"}},
    ],
)
def test_machines_that_take_no_pods_of_the_job_do_not_count(away):
    tenant = Tenant("quick-start", "team", KubernetesSpec(node_selector=("disk=ssd",)))
    ssd = {"disk": "ssd"}
    looked = Looked((node("a", labels=ssd), node("b", **{"labels": ssd} | away)), (), None)
    assert shapes(capacity_of(looked, tenant, None)) == [(4.0, 8192, 1)]


@for_each("text", ["team=ads:NoSchedule", "team:NoSchedule", "team", "team=ads"])
def test_a_taint_that_the_jobs_pods_bear_keeps_nobody_away(text):
    tenant = Tenant("quick-start", "team", KubernetesSpec(tolerations=(text,)))
    tainted = node(taints=[{"key": "team", "value": "ads", "effect": "NoSchedule"}])
    assert shapes(capacity_of(Looked((tainted,), (), None), tenant, None)) == [(4.0, 8192, 1)]
    other = node(taints=[{"key": "team", "value": "search", "effect": "NoSchedule"}])
    expected = [(4.0, 8192, 1)] if "=" not in text else []
    assert shapes(capacity_of(Looked((other,), (), None), tenant, None)) == expected


def test_a_quota_cuts_the_machines_and_counts_the_master_too():
    looked = Looked((node("a"), node("b")), (quota(limits_cpu="5", requests_memory="9Gi"),), None)
    capacity = capacity_of(looked, ME, None)
    assert capacity.total_cpu == 4.75
    assert capacity.total_memory_mib == 9 * 1024 - 768


def test_room_is_what_a_quota_has_left_and_what_the_job_holds_of_it():
    used = {"limits.cpu": "4", "limits.memory": "4Gi"}
    looked = Looked(None, (quota(used, limits_cpu="5", limits_memory="8Gi"),), None)
    assert shapes(room_of(looked, ME, None)) == [(1.0, 4096, 1)]
    assert shapes(room_of(looked, ME, None, mine=(mine(), mine(phase="Failed")))) == [(2.0, 5120, 1)]


def test_the_tightest_of_several_quotas_holds_and_those_for_other_pods_do_not():
    elsewhere = [
        quota(cpu="1", scopes=["BestEffort"]),
        quota(cpu="1", scopes=["Terminating"]),
        quota(cpu="1", terms=[{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]),
        quota(cpu="1", terms=[{"scopeName": "PriorityClass", "operator": "Exists"}]),
        quota(**{"count/pods": "1"}),
    ]
    looked = Looked((node(),), (quota(cpu="3"), quota(requests_cpu="2", cpu="4"), *elsewhere), None)
    assert capacity_of(looked, ME, None).total_cpu == 1.75
    high = Tenant("quick-start", "team", KubernetesSpec(priority_class="high"))
    assert capacity_of(looked, high, None).total_cpu == 0.75


def test_what_may_not_be_seen_is_taken_from_who_submitted_and_cut_by_the_quota():
    assert capacity_of(Looked(None, (), None), ME, SEEN) == SEEN
    assert capacity_of(Looked(None, (quota(cpu="4.25"),), None), ME, SEEN).total_cpu == 4.0


def test_where_nothing_is_known_it_is_said_what_right_would_help():
    with pytest.raises(BackendError, match="get and list resourcequotas"):
        capacity_of(Looked(None, (), None), ME, None)


def test_a_machine_sets_aside_what_the_largest_step_of_a_pod_asks_for():
    told = pod("500m", "1Gi")
    told["spec"]["initContainers"] = [{"resources": {"requests": {"cpu": "2"}}}, {}]
    told["spec"]["overhead"] = {"cpu": "100m", "memory": "64Mi"}
    assert requests_of(told) == (pytest.approx(2.1), pytest.approx(1088))


amounts = st.tuples(st.integers(1, 64), st.integers(1, 256))


@given(st.lists(amounts, min_size=1, max_size=6), amounts, st.lists(amounts, max_size=6))
def test_no_more_is_offered_than_machines_and_quota_hold_and_room_is_within_it(machines, limit, others):
    nodes = tuple(node(f"n{n}", str(cpu), f"{gib}Gi") for n, (cpu, gib) in enumerate(machines))
    pods = tuple(pod(str(cpu), f"{gib}Gi", at=f"n{n % len(machines)}") for n, (cpu, gib) in enumerate(others))
    tenant = Tenant("j", "team", KubernetesSpec(master_cpu=0.01, master_memory_mib=128))
    looked = Looked(nodes, (quota(cpu=str(limit[0]), memory=f"{limit[1]}Gi"),), pods)
    capacity, room = capacity_of(looked, tenant, None), room_of(looked, tenant, None)
    assert capacity.total_cpu <= min(limit[0], sum(cpu for cpu, _ in machines))
    assert capacity.total_memory_mib <= 1024 * min(limit[1], sum(gib for _, gib in machines))
    assert room.total_cpu <= min(limit[0], sum(cpu for cpu, _ in machines))
