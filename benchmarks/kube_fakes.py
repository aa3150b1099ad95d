"""Masters of many jobs on a control plane alone: a fake kubelet in this file runs their pods.

Nodes are created by this file and never lost (the node controller waits an hour for them). A scheduled pod is
set to running; a deleted one is removed at once; an ended one has failed. All else is real: API server,
scheduler, the backends and their watches. The backends of all jobs share a separate process, called at the
rate of a job's driver, so that its CPU and memory are theirs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NAMESPACE = "bench"
N_NODE, PODS_OF_NODE, NODE_CPU, NODE_GIB = 10, 500, 4000, 4000
N_PS, N_WORKER = 2, 3
LIMIT_S = 300.0
NOBODY_IS_LOST = {"TESTKUBE_NODE_GRACE": "3600s"}
POLL_S, SECOND_S, ROOM_S = 0.25, 1.0, 5.0  # as in `core.driver.loop.job_loop`


class FakeKubelet:
    """Fakes all nodes: sets placed pods to running, and removes deleted ones."""

    def __init__(self, kubeconfig: str) -> None:
        self.core = client.CoreV1Api(config.new_client_from_config(kubeconfig))
        self._begun: set[str] = set()
        self._pool = ThreadPoolExecutor(4)
        self._closed = threading.Event()

    def add_nodes(self) -> None:
        room = {"cpu": str(NODE_CPU), "memory": f"{NODE_GIB}Gi", "pods": str(PODS_OF_NODE)}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "Played"}
        ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        for i in range(N_NODE):
            node = {"metadata": {"name": f"fake-{i}"}}
            self.core.create_node(node)
            status = {"capacity": room, "allocatable": room, "conditions": [ready]}
            self.core.patch_node_status(f"fake-{i}", {"status": status})

    def start(self) -> None:
        threading.Thread(target=self._run, name="fake-kubelet", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._pool.shutdown(cancel_futures=True)

    def fail(self, pod: str) -> None:
        """End a pod like a program that exits with 1."""
        state = {"terminated": {"exitCode": 1, "reason": "Error"}}
        self._patch(pod, {"phase": "Failed", "containerStatuses": [_container(state)]})

    def _run(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(Exception):  # an unreachable server is retried
                self._follow()
            self._closed.wait(0.2)

    def _follow(self) -> None:
        listed = json.loads(self.core.list_namespaced_pod(NAMESPACE, _preload_content=False).data)
        for pod in listed["items"]:
            self._see(pod)
        since = listed["metadata"]["resourceVersion"]
        stream = self.core.list_namespaced_pod(
            NAMESPACE, watch=True, resource_version=since, timeout_seconds=300, _preload_content=False
        )
        for line in _lines(stream):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            if event["type"] != "DELETED":
                self._see(event["object"])

    def _see(self, pod: dict[str, Any]) -> None:
        meta, name = pod["metadata"], pod["metadata"]["name"]
        if meta.get("deletionTimestamp"):
            self._pool.submit(self._let_go, name)
        elif pod["spec"].get("nodeName") and name not in self._begun:
            self._begun.add(name)
            self._pool.submit(self._begin, name)

    def _begin(self, name: str) -> None:
        number = len(self._begun)
        status = {
            "phase": "Running",
            "podIP": f"10.1.{number // 250 % 250}.{number % 250 + 1}",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [_container({"running": {}}, ready=True)],
        }
        self._patch(name, status)

    def _patch(self, name: str, status: dict[str, Any]) -> None:
        try:
            self.core.patch_namespaced_pod_status(name, NAMESPACE, {"status": status}, _preload_content=False)
        except ApiException as error:
            if error.status != 404:
                raise

    def _let_go(self, name: str) -> None:
        with contextlib.suppress(ApiException):
            self.core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0, _preload_content=False)


def _container(state: dict[str, Any], *, ready: bool = False) -> dict[str, Any]:
    return {
        "name": "node",
        "ready": ready,
        "restartCount": 0,
        "image": "none",
        "imageID": "",
        "state": state,
    }


def _lines(stream: Any) -> Iterator[bytes]:
    rest = b""
    for chunk in stream.stream(None, decode_content=False):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from filter(None, whole)


def requests_served(core: client.CoreV1Api) -> dict[str, float]:
    """Return the API server's request counts, by verb and resource; a watch counts when it ends."""
    told = core.api_client.call_api(
        "GET", f"{core.api_client.configuration.host}/metrics", {"Accept": "text/plain"}
    )
    counts: dict[str, float] = {}
    for line in told.read().decode().splitlines():
        if found := re.match(r"apiserver_request_total\{(.*)\} (\S+)", line):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1]))
            key = f"{labels['verb']} {labels['resource']}"
            counts[key] = counts.get(key, 0.0) + float(found[2])
    return counts


class Masters:
    """The process with the backends of all jobs."""

    def __init__(self, kubeconfig: str, n_job: int) -> None:
        command = [sys.executable, __file__, kubeconfig, str(n_job)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        self.seen: list[dict[str, Any]] = []
        self.looked = psutil.Process(self._process.pid)
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.seen.append(json.loads(line))

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        print(word, file=self._process.stdin, flush=True)

    def until(self, what: str, **wanted: Any) -> dict[str, Any]:
        """Wait for a message of the masters."""
        end_s = time.monotonic() + LIMIT_S
        while True:
            for seen in self.seen:
                if what in seen and all(seen.get(key) == value for key, value in wanted.items()):
                    return seen
            if time.monotonic() > end_s or self._process.poll() is not None:
                raise SystemExit(f"the masters did not come to {what}: {self.seen[-3:]}")
            time.sleep(0.02)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def fakes(run: Any, *, n_job: int, rest_s: float, n_end: int, away_s: float) -> dict[str, Any]:
    """Return the figures of `n_job` jobs on a dedicated control plane."""
    from support.kubernetes.kube import await_account

    kubelet = FakeKubelet(run.kubeconfig)
    kubelet.core.create_namespace({"metadata": {"name": NAMESPACE}})
    await_account(kubelet.core, NAMESPACE)
    kubelet.add_nodes()
    kubelet.start()
    idle = _served_per_minute(kubelet.core, min(rest_s, 30.0))
    masters = Masters(as_a_master(run, kubelet.core), n_job)
    try:
        return (
            _begun(masters, n_job)
            | _at_rest(masters, kubelet.core, n_job, rest_s, idle)
            | _notice(masters, kubelet, [f"job-{i % n_job}" for i in range(n_end)])
            | _outage(masters, kubelet, run, n_job, away_s)
        )
    finally:
        masters.close()
        kubelet.close()


def as_a_master(run: Any, core: client.CoreV1Api) -> str:
    """Return a kubeconfig of an account with exactly the rights of a job's master."""
    from dlrover_nb.core.manifests.role_rules import master_rights, role

    rbac, name = client.RbacAuthorizationV1Api(core.api_client), "bench-master"
    core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": name}})
    rbac.create_namespaced_role(NAMESPACE, role(name, master_rights("bench"), namespace=NAMESPACE))
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    rbac.create_namespaced_role_binding(
        NAMESPACE, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    )
    config = yaml.safe_load(Path(run.kubeconfig).read_text())
    config["users"][0]["user"] = {"token": _token_of(core, name)}
    path = run.run / "master.kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


def _token_of(core: client.CoreV1Api, account: str) -> str:
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        for secret in core.list_namespaced_secret(NAMESPACE).items:
            noted = (secret.metadata.annotations or {}).get("kubernetes.io/service-account.name")
            if noted == account and "token" in (secret.data or {}):
                return b64decode(secret.data["token"]).decode()
        time.sleep(0.1)
    raise SystemExit(f"the account {account} was given no token")


def _served_per_minute(core: client.CoreV1Api, window_s: float) -> dict[str, float]:
    before, began_s = requests_served(core), time.monotonic()
    time.sleep(window_s)
    after, took_s = requests_served(core), time.monotonic() - began_s
    return {key: 60 * (n - before.get(key, 0.0)) / took_s for key, n in after.items()}


def _begun(masters: Masters, n_job: int) -> dict[str, Any]:
    begun = masters.until("running")
    return {
        "fakes_jobs": n_job,
        "fakes_pods": n_job * (N_PS + N_WORKER),
        "fakes_all_running_s": round(begun["running"] - begun["began"], 1),
    }


def _at_rest(
    masters: Masters, core: client.CoreV1Api, n_job: int, rest_s: float, idle: dict[str, float]
) -> dict[str, Any]:
    time.sleep(5.0)  # the effects of the start are over
    base_mib = masters.until("base_mib")["base_mib"]
    before_s, began_s = sum(masters.looked.cpu_times()[:2]), time.monotonic()
    masters.say("count")
    served = _served_per_minute(core, rest_s)
    masters.say("count")
    cpu = 100 * (sum(masters.looked.cpu_times()[:2]) - before_s) / (time.monotonic() - began_s)
    first, last = (_nth_count(masters, n) for n in (0, 1))
    asked = 60 * (last["n_request"] - first["n_request"]) / (last["count"] - first["count"])
    ours = {k: max(0.0, n - idle.get(k, 0.0)) for k, n in served.items() if _is_asked_by_masters(k)}
    grown_mib = masters.looked.memory_info().rss / 2**20 - base_mib
    return {
        "fakes_cpu_percent": round(cpu, 1),
        "fakes_cpu_percent_per_job": round(cpu / n_job, 3),
        "fakes_memory_mib": round(grown_mib, 1),
        "fakes_memory_mib_per_job": round(grown_mib / n_job, 2),
        "fakes_requests_per_minute_per_job": round(asked / n_job, 2),
        "fakes_served_per_minute_per_job": round(sum(ours.values()) / n_job, 2),
        "fakes_served": {k: round(n, 1) for k, n in sorted(ours.items()) if n >= 1.0},
    }


def _is_asked_by_masters(key: str) -> bool:
    return key.partition(" ")[2] in {"pods", "resourcequotas", "nodes"}


def _nth_count(masters: Masters, n: int) -> dict[str, Any]:
    end_s = time.monotonic() + LIMIT_S
    while len(counts := [seen for seen in masters.seen if "count" in seen]) <= n:
        if time.monotonic() > end_s:
            raise SystemExit("the masters do not count")
        time.sleep(0.05)
    return counts[n]


def _notice(masters: Masters, kubelet: FakeKubelet, jobs: list[str]) -> dict[str, Any]:
    """End pods one after the other; return how soon each end is reported."""
    took_ms = []
    for n, job in enumerate(jobs):
        node = f"worker-{n // len(set(jobs)) % N_WORKER}"
        took_ms.append(1000 * _told_after(masters, kubelet, job, node))
    took_ms.sort()
    return {
        "fakes_notice_ms_p50": round(took_ms[len(took_ms) // 2], 1),
        "fakes_notice_ms_p95": round(took_ms[int(0.95 * (len(took_ms) - 1))], 1),
    }


def _told_after(masters: Masters, kubelet: FakeKubelet, job: str, node: str) -> float:
    pod = _pod_of(kubelet, job, node)
    began_s = time.time()
    kubelet.fail(pod)
    return float(masters.until("told", job=job, node=node)["told"]) - began_s


def _pod_of(kubelet: FakeKubelet, job: str, node: str) -> str:
    selector = f"dlrover-nb/job={job},dlrover-nb/node={node}"
    answer = kubelet.core.list_namespaced_pod(NAMESPACE, label_selector=selector, _preload_content=False)
    (pod,) = json.loads(answer.data)["items"]
    return str(pod["metadata"]["name"])


def _outage(masters: Masters, kubelet: FakeKubelet, run: Any, n_job: int, away_s: float) -> dict[str, Any]:
    """Stop the API server; return the masters' load, and how soon they notice its return."""
    pods = [_pod_of(kubelet, f"job-{i}", "ps-0") for i in range(n_job)]
    before_s, began_s = sum(masters.looked.cpu_times()[:2]), time.monotonic()
    run.stop_api()
    time.sleep(away_s)
    cpu = 100 * (sum(masters.looked.cpu_times()[:2]) - before_s) / (time.monotonic() - began_s)
    run.start_api()
    failed_s = []
    for pod in pods:
        failed_s.append(time.time())
        kubelet.fail(pod)
    told = sorted(
        masters.until("told", job=f"job-{i}", node="ps-0")["told"] - failed_s[i] for i in range(n_job)
    )
    return {
        "fakes_away_cpu_percent": round(cpu, 1),
        "fakes_back_s_p50": round(told[n_job // 2], 2),
        "fakes_back_s_max": round(told[-1], 2),
        "fakes_requests_to_come_back": round(sum(requests_served(kubelet.core).values())),
    }


# the process of the masters


def run_masters(kubeconfig: str, n_job: int) -> None:
    """Start all jobs' nodes and follow them as drivers would, until stdin ends."""
    words: list[str] = []
    threading.Thread(target=lambda: words.extend(iter(sys.stdin.readline, "")), daemon=True).start()
    from dlrover_nb.core.backends.kubernetes.client.api import connect_api

    first = _backend(connect_api(kubeconfig=kubeconfig, namespace=NAMESPACE), "base")
    first.capacity()
    first.close()
    _say(base_mib=psutil.Process().memory_info().rss / 2**20)
    began = time.time()
    apis = {f"job-{i}": connect_api(kubeconfig=kubeconfig, namespace=NAMESPACE) for i in range(n_job)}
    backends = {job: _backend(api, job) for job, api in apis.items()}
    for job, backend in backends.items():
        _start_nodes(job, backend)
    _follow_all(backends, apis.values(), words, began)


def _backend(api: Any, job: str) -> Any:
    from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
    from dlrover_nb.core.backends.kubernetes.nodes.site import Site
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

    features = FeatureSpec("label", (), (), n_train=1, n_eval=1)
    shape = NodeShape(NODE_CPU, NODE_GIB * 1024)  # as observed by the client: masters may not list machines
    told = PodJob(JobSpec(job), features, "00000000", "", "", "", capacity=Capacity((shape,) * N_NODE))
    return KubernetesBackend(told, Site(api, None, "10.0.0.1:7070"))


def _start_nodes(job: str, backend: Any) -> None:
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import Role
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

    roles = [(Role.PS, i) for i in range(N_PS)] + [(Role.WORKER, i) for i in range(N_WORKER)]
    for role, i in roles:
        config = NodeConfig(
            node=f"{role}-{i}",
            role=role,
            spec=JobSpec(job),
            features=FeatureSpec("label", (), (), n_train=1, n_eval=1),
            cpu=1.0,
            memory_mib=1024,
            master="tcp://10.0.0.1:7070",
            listen="tcp://10.0.0.2",
            folder="/tmp",
            public_key="",
            secret_key="",
        )
        backend.start_node(config)


def _follow_all(backends: Mapping[str, Any], apis: Iterable[Any], words: list[str], began: float) -> None:
    """Call each backend as a driver does, at its rate, until nobody reads the results."""
    looked = dict.fromkeys(backends, (0.0, 0.0))
    waits, n_count = set(backends), 0
    while True:
        turn_s = time.monotonic()
        for job, backend in backends.items():
            for gone in backend.poll():
                _say(told=time.time(), job=job, node=gone.node, why=gone.why)
            second_s, room_s = looked[job]
            if turn_s >= second_s + SECOND_S:
                second_s = turn_s
                backend.waiting()
                if job in waits and _all_run(backend):
                    waits.remove(job)
                    if not waits:
                        _say(running=time.time(), began=began)
            if turn_s >= room_s + ROOM_S:
                room_s = turn_s
                with contextlib.suppress(BackendError):
                    backend.capacity(), backend.room()
            looked[job] = second_s, room_s
        while n_count < len(words):
            n_count += 1
            _say(count=time.time(), n_request=sum(api.n_request for api in apis))
        time.sleep(max(0.0, turn_s + POLL_S - time.monotonic()))


def _all_run(backend: Any) -> bool:
    pods = backend._informer.items().values()  # noqa: SLF001 - as the backend sees them
    return [pod["status"].get("phase") for pod in pods] == ["Running"] * (N_PS + N_WORKER)


def _say(**word: Any) -> None:
    print(json.dumps(word), flush=True)


if __name__ == "__main__":
    run_masters(sys.argv[1], int(sys.argv[2]))
