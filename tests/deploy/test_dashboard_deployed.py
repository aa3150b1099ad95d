"""`deploy/dashboard`: its settings are read, its parts fit each other and the server, and it may do what it must."""

import uuid
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes import client, config, dynamic
from support.dashboard.dashboards import closed, running, team_of
from support.kubernetes.kustomize_reader import build
from support.kubernetes.on_api_server import ACCOUNT, as_account, installed, may, removed

from dlrover_nb import cli
from dlrover_nb.core.connect.kinds import read_address
from dlrover_nb.core.disk.paths import HISTORY_VAR
from dlrover_nb.core.history.database import default_url
from dlrover_nb.core.manifests.pods import PodNode, node_pod
from dlrover_nb.core.manifests.role_rules import SEE_NODES, USER, VIEWER, granted
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob
from dlrover_nb.dashboard.settings import read_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = "dlrover-nb-dashboard"
FOLDERS = [DEPLOY / "dashboard", DEPLOY / "examples" / "dashboard"]


def one(objects, kind, name=DASHBOARD):
    [found] = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def settings_in(objects, tmp_path):
    """Return the settings that the ConfigMap holds, as the server reads them."""
    file = tmp_path / "serve.yaml"
    file.write_text(one(objects, "ConfigMap")["data"]["serve.yaml"])
    return read_settings(str(file), {})


def container_in(objects):
    [container] = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return container


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(DEPLOY)))
def test_the_settings_are_read_and_fit_the_pod_and_the_ingress(folder, tmp_path):
    objects = build(folder)
    settings, container = settings_in(objects, tmp_path), container_in(objects)
    assert settings.has_sign_in
    assert [(port["name"], port["containerPort"]) for port in container["ports"]] == [("http", settings.port)]
    host, ingress = urlsplit(settings.url).hostname, one(objects, "Ingress")["spec"]
    assert [rule["host"] for rule in ingress["rules"]] == [host]
    assert [each["hosts"] for each in ingress["tls"]] == [[host]]
    mounts = [Path(each["mountPath"]) for each in container["volumeMounts"]]
    for path in (settings.users, settings.metrics_token_file):
        assert Path("/etc/dlrover-nb/secret") in Path(path).parents
    assert Path("/etc/dlrover-nb/secret") in mounts
    assert {read_address(word)[0] for word in settings.clusters} == {"kubernetes"}


def test_the_example_shows_the_namespace_of_the_example_of_a_team(tmp_path):
    settings = settings_in(build(DEPLOY / "examples" / "dashboard"), tmp_path)
    [place] = [o for o in build(DEPLOY / "examples" / "team") if o["kind"] == "Namespace"]
    assert [read_address(word)[2]["namespace"] for word in settings.clusters] == [place["metadata"]["name"]]
    rules = one(build(DEPLOY / "examples" / "dashboard"), "ClusterRole")["rules"]
    [groups] = [rule["resourceNames"] for rule in rules if rule["resources"] == ["groups"]]
    assert list(settings.impersonate_groups) == groups


def test_the_pod_starts_the_server_by_a_command_that_is_understood():
    container = container_in(build(DEPLOY / "dashboard"))
    program, *words = container["args"]
    assert program == cli.CLI
    assert words[:2] == ["serve", "--settings"]
    values = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "serve"]
    assert str(Path(words[2]).parent) in values


def test_the_probes_ask_for_paths_that_the_server_has_and_need_no_sign_in(tmp_path):
    container = container_in(build(DEPLOY / "dashboard"))
    paths = {
        container[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    settings = replace(
        settings_in(build(DEPLOY / "dashboard"), tmp_path), address="127.0.0.1", metrics_token_file=""
    )
    team = team_of(tmp_path)
    with running(team, settings=settings) as dashboard:
        asked = {path: dashboard.ask(path, headers={"Host": "10.0.0.7:8080"}).status for path in paths}
        page = dashboard.ask("/jobs", headers={"Host": "10.0.0.7:8080"}).status
    closed(team)
    assert set(asked.values()) <= {200, 503}, asked
    assert asked["/healthz"] == 200
    assert page == 421, "only the probes are answered under the address of a pod"


def test_the_history_is_on_the_claim_unless_the_secret_names_a_database(monkeypatch):
    container = container_in(build(DEPLOY / "dashboard"))
    values = {each["name"]: each for each in container["env"]}
    assert values[HISTORY_VAR]["valueFrom"]["secretKeyRef"]["optional"] is True
    monkeypatch.delenv(HISTORY_VAR, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", values["XDG_DATA_HOME"]["value"])
    [mount] = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "data"]
    assert default_url().startswith(f"sqlite:///{mount}/")


def test_the_pod_fits_the_profile_restricted():
    spec = one(build(DEPLOY / "dashboard"), "Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    for volume in spec["volumes"]:
        assert set(volume) - {"name"} <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
    own = container_in(build(DEPLOY / "dashboard"))["securityContext"]
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_service_policy_and_budget_select_the_pod_and_policies_of_jobs_do_not():
    objects = build(DEPLOY / "dashboard")
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    [budget] = yaml.safe_load_all(
        (DEPLOY / "components" / "dashboard-replicas" / "budget.yaml").read_text(encoding="utf-8")
    )
    assert one(objects, "Service")["spec"]["selector"].items() <= labels
    assert one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels
    for policy in build(DEPLOY / "components" / "network"):
        assert not policy["spec"]["podSelector"]["matchLabels"].items() <= labels
    job = PodJob(JobSpec("ads"), None, "0a1b2c3d", "public", "secret-key", "the-token")
    node = node_pod(job, PodNode("ps-0", Role.PS, 1.0, 512), master="")["metadata"]["labels"].items()
    assert not one(objects, "Service")["spec"]["selector"].items() <= node


def replicated(tmp_path):
    """Return the objects of a folder that adds the component for several pods."""
    target = tmp_path / "several"
    target.mkdir()
    (target / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "namespace": DASHBOARD,
                "resources": [str(DEPLOY / "dashboard")],
                "components": [str(DEPLOY / "components" / "dashboard-replicas")],
            }
        )
    )
    return build(target)


def test_several_pods_share_a_database_and_no_claim(tmp_path):
    objects = replicated(tmp_path)
    assert not [o for o in objects if o["kind"] == "PersistentVolumeClaim"]
    spec = one(objects, "Deployment")["spec"]
    assert spec["replicas"] > 1
    assert not [v for v in spec["template"]["spec"]["volumes"] if "persistentVolumeClaim" in v]
    [history] = [each for each in container_in(objects)["env"] if each["name"] == HISTORY_VAR]
    assert history["valueFrom"]["secretKeyRef"]["optional"] is False
    assert one(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] < spec["replicas"]
    notes = one(objects, "Ingress")["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/affinity"] == "cookie"


# on a real API server


@pytest.fixture(scope="module")
def deployed(control_plane):
    """Install the examples of a team and of its dashboard once."""
    mark = uuid.uuid4().hex[:8]
    names = {"team-ads": f"team-{mark}", DASHBOARD: f"dashboard-{mark}"}
    objects = [
        *installed(control_plane, DEPLOY / "examples" / "team", names),
        *installed(control_plane, DEPLOY / "examples" / "dashboard", names),
    ]
    yield control_plane, names["team-ads"], names[DASHBOARD]
    removed(control_plane, objects)


@pytest.mark.release
@pytest.mark.kube
def test_several_pods_are_accepted_by_the_api_server(deployed, tmp_path):
    cluster, _, home = deployed
    objects = replicated(tmp_path)
    api = config.new_client_from_config(cluster.kubeconfig)
    wanted = one(objects, "Deployment")
    wanted["metadata"] |= {"name": "several", "namespace": home}
    client.AppsV1Api(api).create_namespaced_deployment(home, wanted, dry_run="All")
    budget = one(objects, "PodDisruptionBudget") | {
        "apiVersion": "policy/v1beta1"
    }  # before 1.21; the same keys
    budget["metadata"]["namespace"] = home
    budgets = dynamic.DynamicClient(api).resources.get(api_version="policy/v1beta1", kind=budget["kind"])
    made = budgets.create(budget, namespace=home, dry_run="All")
    assert made.spec.maxUnavailable == budget["spec"]["maxUnavailable"]


@pytest.mark.more
@pytest.mark.kube
def test_the_dashboard_may_see_the_jobs_of_the_team_and_nothing_else(deployed):
    cluster, team, home = deployed
    asks = as_account(cluster, f"{ACCOUNT}:{home}:{DASHBOARD}")
    some = granted(USER) | granted((*VIEWER, SEE_NODES)) | {("", "secrets", verb) for verb in ("get", "list")}
    assert {what for what in some if may(asks, team, *what)} == granted((*VIEWER, SEE_NODES))
    assert not {what for what in granted(USER) if may(asks, home, *what)}
    assert not {what for what in granted(USER) if may(asks, "default", *what)}


def impersonable(api, kind, name):
    """Whether who asks may act as a user or a group of that name."""
    asked = client.V1ResourceAttributes(group="", resource=kind, verb="impersonate", name=name)
    spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked)
    review = client.V1SelfSubjectAccessReview(spec=spec)
    return client.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed


@pytest.mark.more
@pytest.mark.kube
def test_the_dashboard_may_act_as_the_people_whom_the_team_names_and_as_nobody_else(deployed):
    cluster, _, home = deployed
    asks = as_account(cluster, f"{ACCOUNT}:{home}:{DASHBOARD}")
    may_be = {("users", "ada"), ("users", "bob"), ("groups", "dev")}
    others = {
        ("users", "kubernetes-admin"),
        ("users", "alice"),
        ("groups", "system:masters"),
        ("users", None),
    }
    assert {each for each in may_be | others if impersonable(asks, *each)} == may_be


@pytest.mark.more
@pytest.mark.kube
def test_who_may_start_jobs_reaches_neither_the_secret_nor_the_account_of_the_dashboard(deployed):
    cluster, team, home = deployed
    asks = config.new_client_from_config(cluster.alice)
    assert may(asks, team, "batch", "jobs", "create")
    assert not may(asks, home, "", "secrets", "get", DASHBOARD)
    assert not may(asks, home, "", "pods", "create")
    assert not may(asks, home, "batch", "jobs", "create")
    with pytest.raises(client.ApiException) as none:
        client.CoreV1Api(config.new_client_from_config(cluster.kubeconfig)).read_namespaced_service_account(
            DASHBOARD, team
        )
    assert none.value.status == 404, "a pod of a job could run as it"
