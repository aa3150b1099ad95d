"""The dashboard of `deploy/dashboard` in a real pod: it becomes ready, and sees what its account may see."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
import yaml
from kubernetes import client
from support.kubernetes.kube import core_api, host_files
from support.kubernetes.on_api_server import installed, removed
from support.waiting import until

from dlrover_nb.dashboard.sign_in.users import User, hashed, write_users

pytestmark = [pytest.mark.kube, pytest.mark.pods]

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = "dlrover-nb-dashboard"


def of_this_machine(names):
    """Return what makes a Deployment run this machine's files, as no image can be built here, on no claim."""
    files = host_files()
    # Its own files lie below /etc, where a folder of the machine, which cannot be written, has no place for them.
    volumes = [each for each in files["volumes"] if each["mount"] != "/etc"]

    def change(obj):
        if obj["kind"] == "ConfigMap" and obj["metadata"]["name"] == NAME:
            told = yaml.safe_load(obj["data"]["serve.yaml"])
            told["clusters"] = [f"kubernetes:///{names['team-ads']}"]
            obj["data"]["serve.yaml"] = yaml.safe_dump(told)
        if obj["kind"] != "Deployment":
            return
        spec = obj["spec"]["template"]["spec"]
        [container] = spec["containers"]
        program, *words = container["args"]
        assert program == "dlrover-nb"
        container |= {"image": files["image"], "imagePullPolicy": files["pull_policy"]}
        container["command"] = [files["python"], "-m", "dlrover_nb.cli"]
        container["args"] = words
        container["env"] += [
            dict(zip(("name", "value"), each.split("=", 1), strict=True)) for each in files["env"]
        ]
        container["env"].append({"name": "HOME", "value": "/tmp"})  # as the image says
        for place, volume in enumerate(volumes):
            spec["volumes"].append({"name": f"host-{place}", "hostPath": {"path": volume["host_path"]}})
            container["volumeMounts"].append(
                {"name": f"host-{place}", "mountPath": volume["mount"], "readOnly": True}
            )
        [data] = [each for each in spec["volumes"] if "persistentVolumeClaim" in each]
        del data["persistentVolumeClaim"]
        data["emptyDir"] = {}

    return change


@pytest.fixture
def installation(nodes, tmp_path):
    """Install a team's namespace and its dashboard; give the API and the dashboard's namespace."""
    mark = uuid.uuid4().hex[:8]
    names = {"team-ads": f"team-{mark}", NAME: f"dashboard-{mark}"}
    objects = installed(nodes, DEPLOY / "examples" / "team", names)
    write_users(tmp_path / "users.yaml", {"ada": User(hashed("correct horse battery", "ada"))})
    core = core_api(nodes)
    objects += installed(nodes, DEPLOY / "examples" / "dashboard", names, of_this_machine(names))
    secret = {"users.yaml": (tmp_path / "users.yaml").read_text(), "metrics-token": uuid.uuid4().hex}
    core.create_namespaced_secret(names[NAME], {"metadata": {"name": NAME}, "stringData": secret})
    yield core, names[NAME]
    removed(nodes, objects)


def told_by(core, namespace):
    """Return what the pods and their events say, for a test that waits in vain."""
    pods = core.list_namespaced_pod(namespace).items
    events = core.list_namespaced_event(namespace).items
    return [(pod.metadata.name, pod.status.phase) for pod in pods], [each.message for each in events]


@pytest.mark.release
def test_the_pod_of_the_dashboard_becomes_ready(installation):
    core, namespace = installation
    apps = client.AppsV1Api(core.api_client)
    until(
        lambda: apps.read_namespaced_deployment_status(NAME, namespace).status.ready_replicas == 1,
        what=lambda: f"a ready pod: {told_by(core, namespace)}",
    )
    [pod] = core.list_namespaced_pod(namespace).items
    log = core.read_namespaced_pod_log(pod.metadata.name, namespace)
    assert "the dashboard is at https://dlrover.ads.example.com" in log
    assert "Traceback" not in log
