import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.kubernetes.kube import core_api

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.manifests.pod_parts import pod_frame
from dlrover_nb.core.manifests.pods import MASTER_NOTE, PodNode, check_pod, node_pod, node_selector, pod_name
from dlrover_nb.core.master.own.checkpoints.peer_copies import are_wanted
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.wire.pod_contract import (
    MACHINE_VAR,
    PodJob,
    memory_outlives_node,
    outlives_node,
    storage_advice,
)

NODE = PodNode("worker-3", Role.WORKER, 0.25, 512)
MASTER = "tcp://10.1.2.3:7070"
FULL = KubernetesSpec(
    image="registry.example/team/dlrover-nb:1",
    pull_policy="IfNotPresent",
    pull_secrets=("registry",),
    python="/opt/python/bin/python",
    volumes=(
        Volume("/data", claim="census", read_only=True),
        Volume("/scratch", host_path="/mnt/scratch"),
        Volume("/settings", config_map="settings"),
        Volume("/keys", secret="keys"),
    ),
    env=("AWS_REGION=eu-1", "FLAG=a=b"),
    env_secrets=("storage",),
    node_selector=("disk=ssd",),
    tolerations=("team=ads:NoSchedule", "spot:NoExecute", "gpu"),
    priority_class="system-cluster-critical",
)
names = st.text("abcdefghijklmnopqrstuvwxyz-0123456789", min_size=1, max_size=10).filter(str.isidentifier)


def made(spec=FULL, node=NODE, job="quick-start"):
    told = PodJob(JobSpec(job, kubernetes=spec), None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32)
    return node_pod(told, node, master=MASTER)


def tolerations(spec):
    return pod_frame(spec)["tolerations"]


def program(pod):
    (container,) = pod["spec"]["containers"]
    return container


def variables(pod):
    return {each["name"]: each.get("value") for each in program(pod)["env"]}


def mounts(pod):
    """Return what stands at each path: the volume."""
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    return {m["mountPath"]: volumes[m["name"]] for m in program(pod)["volumeMounts"]}


@given(
    cpu=st.integers(1, 1_000_000).map(lambda n: n / 100),
    memory_mib=st.integers(64, 1 << 30),
    role=st.sampled_from(Role),
    n=st.integers(0, 100_000),
)
def test_what_is_promised_is_what_is_enforced_and_what_the_node_is_told(cpu, memory_mib, role, n):
    pod = made(node=PodNode(f"{role}-{n}", role, cpu, memory_mib))
    asked = program(pod)["resources"]
    assert asked["requests"] == asked["limits"]
    assert asked["limits"]["memory"] == f"{memory_mib}Mi"
    assert int(asked["limits"]["cpu"].removesuffix("m")) == round(cpu * 1000)
    told = variables(pod)
    assert (float(told["DLROVER_NB_CPU"]), told["DLROVER_NB_MEMORY_MIB"]) == (cpu, str(memory_mib))
    assert (told["DLROVER_NB_NODE"], told["DLROVER_NB_ROLE"]) == (f"{role}-{n}", str(role))


def test_a_worker_asks_for_its_gpus_and_neither_a_parameter_server_nor_a_try_of_code_does():
    plan = ResourcePlan(RolePlan(1, 0.5, 512, 2), RolePlan(1, 0.5, 512))
    spec = JobSpec("quick-start", plan=plan)
    job = PodJob(spec, None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32)
    worker, ps = (node_pod(job, PodNode(f"{r}-0", r, 0.5, 512), master=MASTER) for r in Role)
    asked = program(worker)["resources"]
    assert asked["requests"] == asked["limits"] == {"cpu": "500m", "memory": "512Mi", "nvidia.com/gpu": "2"}
    for other in (ps, check_pod(job, mark="m", report_to=MASTER)):
        assert program(other)["resources"]["limits"].keys() == {"cpu", "memory"}


def test_a_parameter_server_has_a_minute_to_move_its_parameters_and_others_end_soon():
    def grace_s(role):
        return made(node=PodNode(f"{role}-0", role, 0.5, 512))["spec"]["terminationGracePeriodSeconds"]

    assert (grace_s(Role.PS), grace_s(Role.WORKER)) == (60, 5)


def test_a_pod_may_as_little_as_it_can():
    pod = made()
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["runAsUser"] == 65532
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert program(pod)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["spec"]["restartPolicy"] == "Never"


def test_a_pod_is_found_by_its_labels_and_says_where_the_master_is():
    pod = made()
    assert pod["metadata"]["name"] == pod_name("quick-start", "0a1b2c3d", "worker-3")
    found = pod["metadata"]["labels"]
    for term in node_selector("quick-start", "0a1b2c3d").split(","):
        key, equals, value = term.partition("=")
        assert found[key] == value if equals else key in found
    assert pod["metadata"]["annotations"] == {MASTER_NOTE: MASTER}
    (told,) = mounts(pod)["/dlrover-nb/pod"]["downwardAPI"]["items"]
    assert told == {"path": "master", "fieldRef": {"fieldPath": f"metadata.annotations['{MASTER_NOTE}']"}}


def test_a_pod_without_storage_knows_its_machine_and_has_memory_for_copies_of_its_peers(words):
    """By default a job without a volume keeps copies in the memory of pods on other machines."""
    pod = made(KubernetesSpec(), PodNode("ps-0", Role.PS, 1.0, 1024))
    (told,) = (each for each in program(pod)["env"] if each["name"] == MACHINE_VAR)
    assert told["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert mounts(pod)["/dev/shm"]["emptyDir"] == {"medium": "Memory"}
    job = JobSpec("quick-start")
    folder = variables(pod)["DLROVER_NB_FOLDER"]
    assert not outlives_node(job, folder)
    assert not memory_outlives_node(folder)
    assert are_wanted(job.peer_copies, {"m1"}, has_files=False)
    assert storage_advice(job) == words


def test_no_secret_stands_in_a_pod():
    pod = made()
    assert mounts(pod)["/dlrover-nb/job"]["secret"]["secretName"] == "quick-start-job"
    assert not any(secret in str(pod) for secret in ("p" * 40, "s" * 40, "t" * 32))


def test_volumes_of_all_kinds_are_mounted_where_the_user_says():
    mounted = mounts(made())
    assert mounted["/data"]["persistentVolumeClaim"] == {"claimName": "census", "readOnly": True}
    assert mounted["/scratch"]["hostPath"] == {"path": "/mnt/scratch"}
    assert mounted["/settings"]["configMap"] == {"name": "settings"}
    assert mounted["/keys"]["secret"] == {"secretName": "keys", "defaultMode": 0o440}


@for_each("path", ["/tmp", "/dev/shm", "/dlrover-nb/state", "/dlrover-nb/state/"])
def test_the_users_volume_stands_in_the_place_of_ours(path):
    pod = made(KubernetesSpec(volumes=(Volume(path, claim="own"),)))
    at = [m["mountPath"].rstrip("/") for m in program(pod)["volumeMounts"]]
    assert at.count(path.rstrip("/")) == 1
    assert mounts(pod)[path]["persistentVolumeClaim"]["claimName"] == "own"


def test_a_volume_where_the_jobs_own_is_mounted_is_refused(error_words):
    with error_words(InvalidValueError):
        made(KubernetesSpec(volumes=(Volume("/dlrover-nb/job", claim="own"),)))


def test_what_we_tell_a_node_wins_over_what_the_user_sets():
    told = variables(made(KubernetesSpec(env=("DLROVER_NB_NODE=ps-0", "HOME=/scratch", "FLAG=a=b"))))
    assert (told["DLROVER_NB_NODE"], told["HOME"], told["FLAG"]) == ("worker-3", "/scratch", "a=b")


def test_tolerations_are_read_as_kubectl_writes_taints():
    assert tolerations(FULL)[-3:] == [
        {"key": "team", "operator": "Equal", "value": "ads", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
        {"key": "gpu", "operator": "Exists"},
    ]
    away = tolerations(KubernetesSpec())
    assert {each["tolerationSeconds"] for each in away} == {10}


@for_each("text", ["", "=x:NoSchedule", "a:b", "a:", ":NoSchedule"])
def test_a_toleration_that_is_none_is_refused(text):
    with pytest.raises(InvalidValueError, match="KEY=VALUE:EFFECT"):
        KubernetesSpec(tolerations=(text,))


@given(names, st.integers(0, 9))
def test_pods_of_a_role_rather_stand_apart_and_need_not(name, n):
    pod = made(job=name, node=dataclasses.replace(NODE, id=f"worker-{n}"))
    (rather,) = pod["spec"]["affinity"]["podAntiAffinity"].values()
    wanted = rather[0]["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert wanted.items() <= pod["metadata"]["labels"].items()
    (evenly,) = pod["spec"]["topologySpreadConstraints"]
    assert (evenly["topologyKey"], evenly["maxSkew"]) == ("topology.kubernetes.io/zone", 1)
    assert evenly["whenUnsatisfiable"] == "ScheduleAnyway"
    assert evenly["labelSelector"]["matchLabels"] == wanted
    assert not {"affinity", "topologySpreadConstraints"} & made(KubernetesSpec(spread=False))["spec"].keys()


@pytest.mark.more
@pytest.mark.kube
def test_an_api_server_takes_the_pod_and_forgets_nothing_of_it(control_plane, namespace):
    core, name = core_api(control_plane), namespace(control_plane)
    pod = made(dataclasses.replace(FULL, priority_class=""))
    taken = core.create_namespaced_pod(name, pod, dry_run="All", _preload_content=False).json()
    assert_holds(taken, pod)


def assert_holds(taken, asked, path=""):
    """Check that all that was asked for stands in what was taken."""
    if isinstance(asked, dict):
        for key, value in asked.items():
            assert key in taken, f"{path}.{key}"
            assert_holds(taken[key], value, f"{path}.{key}")
    elif isinstance(asked, list):
        for n, value in enumerate(asked):
            assert_holds(taken[n], value, f"{path}[{n}]")
    else:
        assert taken == asked or str(taken) == str(asked) or path.endswith(".memory"), path
