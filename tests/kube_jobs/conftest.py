"""Jobs on a real Kubernetes with two nodes: clients, their namespaces, and the tools to disturb them."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from base64 import b64decode
from pathlib import Path

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from support.kubernetes.kube import core_api, host_files
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.cluster import connect_kubernetes
from dlrover_nb.core.structs.job.kubernetes import STATE

MASTER = "dlrover-nb/role=master"


@pytest.fixture
def shared_state():
    """Make a folder of this machine that all nodes see and pods may write: what a shared volume is elsewhere."""
    folder = Path(tempfile.mkdtemp(prefix="tk-state-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Place:
    """A namespace with this machine's files as its default image, and a client connected to it."""

    def __init__(self, cluster, namespace, state, monkeypatch, *, mount=STATE):
        self.test_cluster, self.namespace, self._state, self._mount = cluster, namespace, state, mount
        self.core = core_api(cluster)
        self._monkeypatch = monkeypatch
        self.batch = client.BatchV1Api(self.core.api_client)
        self.rbac = client.RbacAuthorizationV1Api(self.core.api_client)
        self.core.create_namespaced_config_map(namespace, self._defaults())
        self.cluster = self.connect(cluster.kubeconfig)

    def _defaults(self):
        files = host_files()
        volume = {"mount": self._mount, "host_path": str(self._state)}
        defaults = {**files, "volumes": [*files["volumes"], volume]}
        return {"metadata": {"name": "dlrover-nb"}, "data": {"defaults.yaml": yaml.safe_dump(defaults)}}

    def connect(self, kubeconfig):
        """Connect as the user of a kubeconfig."""
        self._monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        return connect_kubernetes(namespace=self.namespace)

    def pods(self, selector=""):
        """Return the pods that are not on their way out."""
        listed = self.core.list_namespaced_pod(self.namespace, label_selector=selector).items
        return [pod for pod in listed if pod.metadata.deletion_timestamp is None]

    def pod_of(self, job, node):
        (pod,) = self.pods(f"dlrover-nb/job={job},dlrover-nb/node={node}")
        return pod

    def master(self, job):
        """Return the name of the job's master pod that runs, if there is one."""
        pods = self.pods(f"dlrover-nb/job={job},{MASTER}")
        running = [pod.metadata.name for pod in pods if pod.status.phase == "Running"]
        return running[0] if running else None

    def left(self, pod):
        """Whether there is a pod of this name, even on its way out."""
        listed = self.core.list_namespaced_pod(self.namespace, field_selector=f"metadata.name={pod}").items
        return bool(listed)

    def delete_pod(self, name):
        """Delete a pod at once, as a stranger would."""
        with contextlib.suppress(ApiException):
            self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)

    def left_of(self, job):
        """Return what there is with a job's label or name in its own, of every kind that it makes."""
        kinds = {
            "pod": self.core.list_namespaced_pod,
            "secret": self.core.list_namespaced_secret,
            "config map": self.core.list_namespaced_config_map,
            "service account": self.core.list_namespaced_service_account,
            "service": self.core.list_namespaced_service,
            "claim": self.core.list_namespaced_persistent_volume_claim,
            "role": self.rbac.list_namespaced_role,
            "role binding": self.rbac.list_namespaced_role_binding,
            "job": self.batch.list_namespaced_job,
        }
        return [
            f"{kind} {each.metadata.name}"
            for kind, listed in kinds.items()
            for each in listed(self.namespace).items
            if is_of(each.metadata, job)
        ]

    def gone(self, job):
        """Wait until nothing of a job is left."""
        until(lambda: not self.left_of(job), what=f"nothing left of {job}")

    def all_that_is_told(self):
        """Return everything that a reader of the namespace sees, Secrets apart: objects, events and logs."""
        core, name = self.core, self.namespace
        listings = (
            core.list_namespaced_pod,
            core.list_namespaced_config_map,
            core.list_namespaced_event,
            core.list_namespaced_service_account,
            self.batch.list_namespaced_job,
            self.rbac.list_namespaced_role,
            self.rbac.list_namespaced_role_binding,
        )
        objects = [listed(name, _preload_content=False).data.decode() for listed in listings]
        pods = [pod.metadata.name for pod in core.list_namespaced_pod(name).items]
        return "\n".join([*objects, *(self._log(pod) for pod in pods)])

    def _log(self, pod):
        try:
            return self.core.read_namespaced_pod_log(pod, self.namespace)
        except ApiException:  # it has none yet
            return ""

    def secrets_of(self, job):
        """Return the values that nobody may read but who may read the job's Secret."""
        found = self.core.read_namespaced_secret(f"{job}-job", self.namespace).data
        held = json.loads(b64decode(found["job.json"]))
        return [held["secret_key"], held["access"]]

    def clear(self):
        """Delete all jobs, and the pods that no kubelet ends."""
        for each in self.batch.list_namespaced_job(self.namespace).items:
            name = each.metadata.name
            with contextlib.suppress(ApiException):  # it ended meanwhile
                self.batch.delete_namespaced_job(name, self.namespace, propagation_policy="Background")
        for pod in self.core.list_namespaced_pod(self.namespace).items:
            self.delete_pod(pod.metadata.name)


def is_of(metadata, job):
    labels = metadata.labels or {}
    return labels.get("dlrover-nb/job") == job or any(o.name == job for o in metadata.owner_references or ())


@pytest.fixture
def place(nodes, namespace, shared_state, monkeypatch):
    """Return a fresh namespace of the cluster with nodes, and a client in it."""
    place = Place(nodes, namespace(nodes), shared_state, monkeypatch)
    yield place
    place.clear()


@pytest.fixture
def place_without_state(nodes, namespace, shared_state, monkeypatch):
    """Return the same without a volume for the state, so no file outlives a pod; what is shared is at /seed."""
    place = Place(nodes, namespace(nodes), shared_state, monkeypatch, mount="/seed")
    yield place
    place.clear()


@pytest.fixture
def free_place(control_plane, namespace, shared_state, monkeypatch):
    """Return the same on a control plane alone, with a machine on paper: nobody runs its pods."""
    core = core_api(control_plane)
    add_machine(core, "paper")
    place = Place(control_plane, namespace(control_plane), shared_state, monkeypatch)
    yield place
    place.clear()
    core.delete_node("paper")  # other tests find a cluster without machines


def add_machine(core, name):
    """Write down a machine that nobody has; it is never missed (`kube.control_plane`).

    A new machine is tainted as not ready until a controller has seen that it is.
    """
    room = {"cpu": "8", "memory": "16Gi", "pods": "50"}
    ready = {"type": "Ready", "status": "True", "reason": "OnPaper"}
    with contextlib.suppress(ApiException):  # it is there already
        core.create_node({"metadata": {"name": name}})
    core.patch_node_status(name, {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}})
    until(lambda: not core.read_node(name).spec.taints, what=f"{name} to take pods")


@pytest.fixture
def power(nodes):
    """Power nodes off; they are on again, and ready, when the test ends."""
    off = []

    def power_off(node):
        number = node.removeprefix("node")
        off.append(number)
        nodes.script("node.sh", "off", number)

    yield power_off
    for number in off:
        nodes.script("node.sh", "on", number)
    core = core_api(nodes)
    for number in off:
        until(lambda n=number: is_ready(core, f"node{n}"), what=f"node{number}")


def is_ready(core, node):
    told = core.read_node(node)
    ready = any(c.type == "Ready" and c.status == "True" for c in told.status.conditions or ())
    return ready and not told.spec.taints


@pytest.fixture
def api_away(nodes):
    """Stop the API server; it runs again when the test ends."""
    stopped = []

    def stop():
        nodes.stop_api()
        stopped.append(True)

    def start():
        if stopped:
            nodes.start_api()
            stopped.clear()

    yield stop, start
    start()
