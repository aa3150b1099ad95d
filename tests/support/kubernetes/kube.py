"""Fixtures of tests against a real Kubernetes: a control plane alone, or one with nodes that run real pods.

They start the test cluster that lies in ``kube`` of the folder that ``DLROVER_NB_SHARED`` names (``../shared``
by default) and end it with the run. With ``DLROVER_NB_TEST_KUBE`` (run directory of a cluster with nodes that is up) the pods
run there, and it is left up.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from suite.missing import SHARED, missing
from urllib3.exceptions import HTTPError

from dlrover_nb.core.backends.kubernetes.jobs.access import check_access
from dlrover_nb.core.manifests.kinds import ROLE, ROLE_BINDING
from dlrover_nb.core.manifests.role_rules import USER, binding, role
from support.waiting import LIMIT_S, until

ROOT = Path(__file__).resolve().parents[3]
KUBE = SHARED / "kube"
INSTALLED = Path(
    os.environ.get("TESTKUBE_HOME")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "testkube-1.20.2"
)
KUBERNETES = "dlrover_nb.core.backends.kubernetes"
PATIENT_S = 60.0
PATIENT = {  # limits for somebody who waits at a keyboard
    "jobs.link": ("FIND_LIMIT_S", "AWAY_S"),
    "cluster": ("CONNECT_LIMIT_S", "ANSWER_LIMIT_S"),
    "client.http_transport": ("CONNECT_LIMIT_S",),
    "room.capacity_informer": ("FIRST_LIMIT_S",),
    "jobs.submission": ("TOKEN_LIMIT_S",),
}
IMAGE = "docker.io/local/host:1"  # empty: pods mount this machine's own files


@dataclass(frozen=True)
class TestCluster:
    """A test cluster that is up."""

    __test__ = False

    run: Path

    @property
    def kubeconfig(self) -> str:
        return str(self.run / "kubeconfig")

    @property
    def alice(self) -> str:
        """Kubeconfig of a user without any rights."""
        return str(self.run / "alice.kubeconfig")

    def acting_as(self, user: str) -> str:
        """Write the kubeconfig of an administrator who acts as another user; return its path."""
        told = yaml.safe_load(Path(self.kubeconfig).read_text())
        told["users"][0]["user"]["as"] = user
        path = self.run / f"{user.replace(':', '-')}.acting.kubeconfig"  # a colon divides paths
        path.write_text(yaml.safe_dump(told))
        return str(path)

    def script(self, name: str, *arguments: str) -> str:
        """Run one of the test cluster's scripts on it; return what it said."""
        done = subprocess.run(
            [str(KUBE / name), *arguments],
            env=os.environ | {"TESTKUBE_RUN": str(self.run)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S + 60,
            check=False,
        )
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def stop_api(self) -> None:
        """Kill the API server; `start_api` brings it back with what it knew."""
        server = self._api_server()
        (self.run / "api-command").write_text(shlex.join(server.cmdline()))
        server.kill()
        until(lambda: not _lives(server.pid), what="its end")

    def start_api(self) -> None:
        """Start the API server that `stop_api` killed, and wait until it answers."""
        server = self._launch_api()

        def answers():
            nonlocal server
            if not _lives(server):  # on a loaded machine it gives up by itself
                server = self._launch_api()
            return self._is_ready()

        until(answers, what="a ready API server")

    def _launch_api(self) -> int:
        """Start the API server's command; return the id of the process to look at."""
        command = (self.run / "api-command").read_text()
        inside = self.run / "pids" / "init"  # with nodes: the cluster has namespaces of its own
        enter = f"nsenter -t {inside.read_text().split()[0]} -m -p -n -u -i " if inside.exists() else ""
        log = shlex.quote(str(self.run / "log" / "kube-apiserver.log"))
        started = f"setsid {enter}{command} >>{log} 2>&1 </dev/null & echo $!"
        pid = subprocess.run(
            ["bash", "-c", started], check=True, capture_output=True, text=True
        ).stdout.strip()
        if not enter:
            ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
            (self.run / "pids" / "kube-apiserver").write_text(f"{pid} {ticks}\n")  # down.sh ends it
        return int(pid)

    def _api_server(self) -> psutil.Process:
        """Return the process of this cluster's API server, by the certificates that it was given."""
        mark = f"--client-ca-file={self.run}/certs/ca.crt"
        for process in psutil.process_iter(["name", "cmdline"]):
            if process.info["name"] == "kube-apiserver" and mark in (process.info["cmdline"] or ()):
                return process
        raise AssertionError(f"no API server of {self.run} runs")

    def _is_ready(self) -> bool:
        try:
            core_api(self).list_namespace(limit=1, _request_timeout=2)
        except (ApiException, HTTPError):
            return False
        return True


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _demand(mode: str) -> None:
    """Skip the test where no test cluster can be started."""
    if not (KUBE / "up.sh").exists():
        missing("kube", "no test cluster lies beside this checkout")
    if not (INSTALLED / "kube-apiserver").exists():
        missing("kube", "the test cluster is not installed: make kube")
    if mode == "node" and os.geteuid() != 0:
        missing("pods", "nodes of the test cluster need root")
    if mode == "node" and not Path("/sys/fs/cgroup/memory").is_dir():
        missing("pods", "nodes of the test cluster need cgroup v1")


@contextmanager
def started(mode: str, **variables: str):
    """Start a test cluster in a run directory of its own and end it; skip the test where none can be."""
    _demand(mode)
    cluster = TestCluster(Path(tempfile.mkdtemp(prefix="tk-")))
    try:
        _bring_up(cluster, mode, variables)
        yield cluster
    finally:  # also of what a time limit interrupted
        cluster.script("down.sh")
        shutil.rmtree(cluster.run, ignore_errors=True)


def _bring_up(cluster, mode, variables):
    own = {"TESTKUBE_TIMEOUT": f"{LIMIT_S:.0f}", "TESTKUBE_RUN": str(cluster.run)}
    done = subprocess.run(
        [str(KUBE / "up.sh"), mode],
        env=os.environ | variables | own,
        capture_output=True,
        text=True,
        timeout=LIMIT_S + 60,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"the test cluster does not start: {done.stderr}")


@pytest.fixture(autouse=True)
def kube_patience(request):
    """Let an API server and a master answer late, as they share a busy machine with these tests."""
    if not any(request.node.get_closest_marker(name) for name in ("kube", "pods")):
        yield
        return
    from dlrover_nb.core.backends.kubernetes.jobs.link import KubernetesLink  # noqa: PLC0415 - most tests need none

    with (
        pytest.MonkeyPatch.context() as patch
    ):  # not the test's own, which is undone before its other fixtures
        for module, limits in PATIENT.items():
            for limit in limits:
                patch.setattr(f"{KUBERNETES}.{module}.{limit}", PATIENT_S)
        patch.setitem(KubernetesLink.__init__.__kwdefaults__, "back_limit_s", LIMIT_S)
        yield


@pytest.fixture(scope="session")
def control_plane():
    """A control plane of this run, without nodes; it may be stopped and broken by tests that mend it."""
    with started("cp", TESTKUBE_NODE_GRACE="3600s") as cluster:  # machines on paper are never missed
        yield cluster


@contextmanager
def with_nodes():
    """Take the cluster with two nodes that is up, or start one."""
    if there := os.environ.get("DLROVER_NB_TEST_KUBE"):
        yield TestCluster(Path(there))
        return
    with (
        one_on_this_machine("dlrover-nb-test-nodes"),
        started("node", NODES="2", TESTKUBE_NODE_GRACE="20s") as cluster,
    ):
        yield cluster


@contextmanager
def one_on_this_machine(name: str):
    """Hold what exists once on a machine; another run, of another checkout, waits until this one is done."""
    with (Path(tempfile.gettempdir()) / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed, also by the end of the process
        yield


@pytest.fixture(scope="session")
def nodes():
    """A cluster with two nodes that run real pods."""
    with with_nodes() as cluster:
        yield cluster


@pytest.fixture
def namespace(request):
    """Make fresh namespaces on a cluster: ``namespace(cluster)``; they go with the test."""
    made: list[tuple[object, str]] = []

    def make(cluster: TestCluster) -> str:
        core, name = core_api(cluster), f"t-{uuid.uuid4().hex[:8]}"
        core.create_namespace({"metadata": {"name": name}})
        made.append((core, name))
        await_account(core, name)
        return name

    yield make
    for core, name in made:
        for pod in core.list_namespaced_pod(name).items:
            _delete_pod(core, name, pod.metadata.name)
        core.delete_namespace(name)


def core_api(cluster: TestCluster):
    """Return the client's own CoreV1Api of the administrator."""
    return client.CoreV1Api(config.new_client_from_config(cluster.kubeconfig))


def await_account(core, name):
    """Wait for the default service account and its token: pods are refused before."""

    def has_token():
        return any(account.secrets for account in core.list_namespaced_service_account(name).items)

    until(has_token, what=f"the service account of namespace {name}")


def grant(api, rights, user):
    """Give a user these rights in a namespace, by a Role and a binding of the user's name."""
    given = role(f"of-{user}", rights, namespace=api.namespace)
    api.create(ROLE, given)
    api.create(ROLE_BINDING, binding(given, user))


def await_rights(api, rights=USER):
    """Wait until the API server allows these rights: it watches Roles, and learns of a new one a moment later."""
    until(lambda: not check_access(api, rights).missing, what="the rights of a Role")


def _delete_pod(core, namespace, name):
    try:
        core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
    except ApiException as error:
        if error.status != 404:
            raise


def host_files() -> dict[str, object]:
    """Return the `KubernetesSpec` fields with which pods run this machine's Python and this checkout."""
    places = []
    wanted = {"/usr", "/etc", str(ROOT), sys.prefix, sys.base_prefix, *map(str, _linked())}
    for place in sorted(wanted, key=len):
        if not any(place == p or place.startswith(f"{p}/") for p in places):
            places.append(place)
    return {
        "image": IMAGE,
        "pull_policy": "Never",
        "python": sys.executable,
        "master_cpu": 0.5,  # it begins in half the time
        "env": [f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1"],
        "volumes": [{"mount": place, "host_path": place, "read_only": True} for place in places],
    }


def _linked() -> list[Path]:
    """Return where the interpreter really lies, when the virtual environment's is a link."""
    return [Path(sys.executable).resolve().parent.parent]
