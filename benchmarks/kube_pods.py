"""Real jobs in real pods and on a local Ray of the same machine: time to first step and to scale-out.

A first step is observed in the worker's report, one per second, so that a time includes up to a second of
waiting, on both alike.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from lengths import end_cleanly

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import STATE
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle

PLAN = ResourcePlan(worker=RolePlan(1, 0.4, 512), ps=RolePlan(1, 0.2, 256))
MORE = replace(PLAN, worker=RolePlan(2, 0.4, 512))
LOOK_S = 0.05
LIMIT_S = 180.0
AUDIT = {  # each request once: when it begins, since a watch lasts
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


def pods(run: Any, *, n_time: int, on_ray: bool) -> dict[str, Any]:
    """Return the figures of both, medians of `n_time` jobs one after the other."""
    with namespace(run) as (cluster, _):
        figures = _times(cluster, n_time, "")
    if on_ray:
        cluster = connect("ray", cpus=4)
        end_cleanly()  # Ray has put its own handler in place
        try:
            figures |= _times(cluster, n_time, "_ray")
        finally:
            cluster.shutdown(force=True)
    return figures


@contextlib.contextmanager
def namespace(run: Any) -> Iterator[tuple[Cluster, str]]:
    """Connect to a fresh namespace whose pods run this machine's files and share a folder of it."""
    from support.kubernetes.kube import await_account, core_api, host_files

    core, name = core_api(run), f"b-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": name}})
    await_account(core, name)
    state = Path(tempfile.mkdtemp(prefix="tk-state-"))
    state.chmod(0o777)
    files: dict[str, Any] = host_files()
    files["volumes"] = [*files["volumes"], {"mount": STATE, "host_path": str(state)}]
    defaults = {"metadata": {"name": "dlrover-nb"}, "data": {"defaults.yaml": yaml.safe_dump(files)}}
    core.create_namespaced_config_map(name, defaults)
    os.environ["KUBECONFIG"] = run.kubeconfig
    try:
        yield connect("kubernetes", namespace=name), name
    finally:
        core.delete_namespace(name)
        shutil.rmtree(state, ignore_errors=True)


def at_rest(run: Any, rest_s: float) -> dict[str, Any]:
    """Return the requests of an idle job's master to the API server, by the server's audit log."""
    with audited(run) as log, namespace(run) as (cluster, name):
        handle = cluster.submit(JobSpec("rest", plan=PLAN, mode=Mode.MANUAL, n_epoch=10_000))
        _until_workers_step(handle, 1)
        time.sleep(10.0)  # what followed the start is over
        before = _asked(log, name)
        time.sleep(rest_s)
        told = _asked(log, name) - before
        handle.stop()
    return {
        "pods_requests_per_minute": round(60 * told.total() / rest_s, 1),
        "pods_requests": dict(sorted(told.items())),
    }


@contextlib.contextmanager
def audited(run: Any) -> Iterator[Path]:
    """Enable the API server's audit log; it is restarted for that, and again afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="tk-audit-"))
    policy, log, command = folder / "policy.yaml", folder / "audit.log", run.run / "api-command"
    policy.write_text(yaml.safe_dump(AUDIT))
    run.stop_api()
    plain = command.read_text()
    command.write_text(f"{plain} --audit-policy-file={policy} --audit-log-path={log}")
    run.start_api()
    try:
        yield log
    finally:
        run.stop_api()
        command.write_text(plain)
        run.start_api()
        shutil.rmtree(folder, ignore_errors=True)


def _asked(log: Path, namespace: str) -> Counter[str]:
    """Return the requests of a namespace's service accounts so far, each once."""
    account = f"system:serviceaccount:{namespace}:"
    told: Counter[str] = Counter()
    for entry in map(json.loads, log.read_text().splitlines()):
        if entry["user"]["username"].startswith(account):
            told[f"{entry['verb']} {entry['objectRef']['resource']}"] += 1
    return told


def _times(cluster: Cluster, n_time: int, where: str) -> dict[str, Any]:
    rows = [_one(cluster, f"bench-{i}") for i in range(n_time)]
    figures: dict[str, Any] = {}
    for place, name in enumerate(("submit_s", "submit_to_first_step_s", "scale_out_s")):
        values = [row[place] for row in rows]
        figures[f"{name}{where}"] = round(statistics.median(values), 2)
        figures[f"{name}{where}_each"] = [round(value, 2) for value in values]
    return figures


def _one(cluster: Cluster, name: str) -> tuple[float, float, float]:
    """Run a job until its second worker trains; return the seconds of submit, first step and scale-out."""
    began_s = time.monotonic()
    handle = cluster.submit(JobSpec(name, plan=PLAN, mode=Mode.MANUAL, n_epoch=10_000))
    submitted_s = time.monotonic()
    _until_workers_step(handle, 1)
    first_s = time.monotonic()
    _until(lambda: handle.snapshot().running == PLAN)
    decided_s = time.monotonic()
    handle.decide(Scale.to(MORE, why="benchmark"))
    _until_workers_step(handle, 2)
    grown_s = time.monotonic()
    handle.stop()
    return submitted_s - began_s, first_s - began_s, grown_s - decided_s


def _until_workers_step(handle: JobHandle, n_worker: int) -> None:
    def step() -> bool:
        workers = [node.last for node in handle.snapshot().nodes if node.role is Role.WORKER]
        return sum(last is not None and last.n_iter > 0 for last in workers) >= n_worker

    _until(step)


def _until(condition: Any) -> None:
    end_s = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(BackendError):  # its master is starting
            if condition():
                return
        if time.monotonic() > end_s:
            raise SystemExit(f"it did not come to that within {LIMIT_S:g} s")
        time.sleep(LOOK_S)
