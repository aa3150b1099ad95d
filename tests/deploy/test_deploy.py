"""The roles of `deploy/`: what is written is what the table says, and what a real API server makes of it."""

import importlib.util
import re
import uuid
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config
from support.kubernetes.kustomize_reader import build
from support.kubernetes.on_api_server import ACCOUNT, as_account, installed, may, removed

from dlrover_nb.core.backends.kubernetes.operator.elastic_observed import JOB_LABEL as ELASTIC_LABEL
from dlrover_nb.core.backends.kubernetes.room.queue_waits import POD_GROUP, WORKLOADS
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.manifests.objects import HTTP_PORT, master_job
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL, master_name
from dlrover_nb.core.manifests.pods import PodNode, node_pod
from dlrover_nb.core.manifests.role_rules import (
    OPERATOR,
    SEE_NODES,
    SEE_QUOTAS,
    SEE_USE,
    SHIPPED,
    USER,
    VIEWER,
    binding,
    granted,
    master_rights,
    role,
)
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def made_by_tool():
    spec = importlib.util.spec_from_file_location("make_roles", ROOT / "tools" / "make_roles.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool.files()


@pytest.mark.parametrize("path", ["base/roles.yaml", "components/nodes/nodes.yaml", "README.md"])
def test_files_say_what_the_table_of_rights_says(path):
    assert (DEPLOY / path).read_text() == made_by_tool()[path], "run python tools/make_roles.py"


def test_a_user_holds_all_that_his_jobs_master_is_given():
    needed = [right for right in USER if not right.optional]
    assert granted(master_rights("ads")) <= granted(needed), "nobody may grant more than he has"
    assert granted(master_rights("ads", owner="ElasticJob")) <= granted(USER)


def test_a_user_holds_what_a_job_under_dlrovers_operator_takes_and_its_master_makes_no_pods():
    rights = master_rights("ads", reads_logs=True, is_operated=True)
    assert granted(rights) <= granted(USER)
    assert {verb for _, what, verb in granted(rights) if what == "pods"} == {"get", "list", "patch", "watch"}


def test_an_operator_may_do_less_than_a_user_and_makes_nothing_but_calls():
    assert granted(OPERATOR) < granted(USER)
    changing = {what for what in granted(OPERATOR) if what[2] not in {"get", "list", "watch"}}
    assert changing == {("", "pods/proxy", "create")}


def test_every_role_lets_the_dashboard_say_what_a_job_of_a_queue_waits_for_where_there_are_queues():
    read = {(kind.group, kind.plural, "list") for kind in (*WORKLOADS, POD_GROUP)}
    for rights in SHIPPED.values():
        assert read <= granted(rights)
        assert not read & granted(right for right in rights if not right.optional)


def test_defaults_of_the_namespace_are_keys_of_a_job_file():
    [defaults] = [o for o in build(DEPLOY / "base") if o["kind"] == "ConfigMap"]
    given = yaml.safe_load(defaults["data"]["defaults.yaml"])
    job = parse_job(yaml.safe_dump({"name": "ads", "kubernetes": given}))
    assert {key: getattr(job.kubernetes, key) for key in given} == given


def test_every_key_of_a_jobs_pods_is_documented():
    text = (DEPLOY / "README.md").read_text()
    told = {
        key
        for row in re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
        for key in re.findall(r"`(\w+)`", row)
    }
    keys = {field.name for field in fields(KubernetesSpec)}
    assert keys <= told, keys - told


def pods_of_a_job():
    """Return the labels and ports of the pods that one job has."""
    job = PodJob(JobSpec("ads"), None, "0a1b2c3d", "public", "secret-key", "the-token")
    [master] = [master_job(job, namespace="n")["spec"]["template"]]
    nodes = [node_pod(job, PodNode(f"{each}-0", each, 1.0, 512), master="") for each in Role]
    return master, nodes


def selected(policy, pod):
    wanted = policy["spec"]["podSelector"]["matchLabels"].items()
    return wanted <= (pod["metadata"]["labels"]).items()


def test_every_pod_of_a_job_is_closed_but_for_the_masters_calls():
    pods, calls = build(DEPLOY / "components" / "network")
    master, nodes = pods_of_a_job()
    assert all(selected(pods, pod) for pod in (master, *nodes))
    assert [selected(calls, pod) for pod in (master, *nodes)] == [True, *(False for _ in nodes)]
    [inside] = pods["spec"]["ingress"]
    assert [one["podSelector"] for one in inside["from"]] == [pods["spec"]["podSelector"]]
    [opened] = calls["spec"]["ingress"]
    assert [port["port"] for port in opened["ports"]] == [HTTP_PORT]


def test_the_admission_policy_names_accounts_and_labels_as_jobs_have_them():
    policy, bound = build(DEPLOY / "components" / "admission")
    text = yaml.safe_dump(policy, width=1000)
    assert master_name("ads") == "ads-master"
    assert text.count(f"''{JOB_LABEL}''") == text.count(f"''{ELASTIC_LABEL}''") == 2
    [place] = [o for o in build(DEPLOY / "base") if o["kind"] == "Namespace"]
    chosen = bound["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
    assert chosen.items() <= place["metadata"]["labels"].items()
    assert bound["spec"]["policyName"] == policy["metadata"]["name"]
    _, nodes = pods_of_a_job()
    assert all(node["spec"]["automountServiceAccountToken"] is False for node in nodes)


# on a real API server


@pytest.fixture(scope="module")
def team(control_plane):
    """Install the example once; alice is a user, two accounts are an operator and a viewer."""
    namespace = f"team-{uuid.uuid4().hex[:8]}"
    objects = installed(control_plane, DEPLOY / "examples" / "team", {"team-ads": namespace})
    created = config.new_client_from_config(control_plane.kubeconfig)
    for name, rights in (("viewer", VIEWER), ("operator", OPERATOR)):
        held = binding(
            role(f"dlrover-nb-{name}", rights, namespace=namespace), f"{ACCOUNT}:{namespace}:{name}"
        )
        client.RbacAuthorizationV1Api(created).create_namespaced_role_binding(namespace, held)
    yield control_plane, namespace
    removed(control_plane, objects)


EVERYTHING = sorted(
    {("", r, v) for r in ("pods", "secrets", "configmaps", "nodes", "services", "pods/exec")
     for v in ("create", "delete", "get", "list", "patch", "watch", "escalate")}
    | granted(USER) | {("rbac.authorization.k8s.io", "roles", v) for v in ("bind", "escalate", "patch")}
)  # fmt: skip


@pytest.mark.more
@pytest.mark.kube
@pytest.mark.parametrize("who", ["user", "operator", "viewer", "master's account"])
def test_each_role_may_do_what_its_table_says_and_nothing_else(team, who):
    cluster, namespace = team
    account = f"{ACCOUNT}:{namespace}"
    api, rights = {
        "user": (lambda: config.new_client_from_config(cluster.alice), USER),
        "operator": (lambda: as_account(cluster, f"{account}:operator"), (*OPERATOR, SEE_NODES)),
        "viewer": (lambda: as_account(cluster, f"{account}:viewer"), (*VIEWER, SEE_NODES)),
        "master's account": (
            lambda: as_account(cluster, f"{account}:ads-master"),
            (SEE_NODES, SEE_USE, *SEE_QUOTAS),
        ),
    }[who]
    asks = api()
    allowed = {what for what in EVERYTHING if may(asks, namespace, *what)}
    assert allowed == granted(rights) & set(EVERYTHING)
    elsewhere = {what for what in granted(USER) if may(asks, "default", *what)}
    assert not elsewhere


@pytest.mark.more
@pytest.mark.kube
def test_a_user_can_give_his_jobs_master_its_rights_and_an_operator_cannot(team):
    cluster, namespace = team
    roles = client.RbacAuthorizationV1Api(config.new_client_from_config(cluster.alice))
    wanted = role("ads-master", master_rights("ads"), namespace=namespace)
    roles.create_namespaced_role(namespace, wanted)
    more = role("too-much", [*master_rights("ads"), SEE_NODES], namespace=namespace)
    more["kind"] = "Role"
    with pytest.raises(client.ApiException) as refused:
        roles.create_namespaced_role(namespace, more)
    assert refused.value.status == 403
    pods = client.CoreV1Api(as_account(cluster, f"{ACCOUNT}:{namespace}:operator"))
    with pytest.raises(client.ApiException) as refused:
        pods.create_namespaced_pod(namespace, pod("intruder"))
    assert refused.value.status == 403


def pod(name):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
