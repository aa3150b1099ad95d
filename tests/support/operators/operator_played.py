"""DLRover's operator as an ElasticJob with a ``dlrover-master`` sees it, played on a real API server.

The operator itself is not here. Its public behaviour in its own words: it makes one pod of the template with
the job's labels and annotations, itself as the owner, and the pod's address as a variable, beside a Service.
A master that ended otherwise than with 0 or 1, or that vanished, is followed by one of the next index, until
there were more failures than `restartCount`. 0 is the job's success, 1 its failure. The status of the
ElasticJob says so. Workers and parameter servers are the master's.
"""

from __future__ import annotations

import logging
import threading
from copy import deepcopy

from dlrover_nb.core.backends.kubernetes.client.api_errors import ApiError, Conflict
from dlrover_nb.core.manifests.kinds import ELASTIC_JOB, POD, SERVICE

LOOK_EVERY_S = 0.3
MASTER, PORT = "dlrover-master", 50001
JOB_LABEL, TYPE_LABEL, INDEX_LABEL = (
    f"elasticjob.dlrover/{key}" for key in ("name", "replica-type", "replica-index")
)


class PlayedOperator:
    """Reconciles the ElasticJobs of one namespace in a thread, until `close`."""

    def __init__(self, api) -> None:
        self._api = api
        self._made: dict[str, int] = {}  # by uid of a job: index of its newest master
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="played-operator", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            try:
                for job in self._api.list(ELASTIC_JOB).items:
                    if "deletionTimestamp" not in job["metadata"]:
                        self._reconcile(job)
            except ApiError as error:  # again, as a controller does
                logging.getLogger(__name__).warning("%s", error)

    def _reconcile(self, job) -> None:
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        if (job.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
            return
        if uid not in self._made:
            self._say(job, "Created", f"ElasticJob {name} is created.")
            self._make(job, 0)
            return
        index = self._made[uid]
        found = {pod["metadata"]["name"]: pod for pod in self._masters(name)}
        pod = found.get(_pod_name(name, index))
        phase = pod["status"]["phase"] if pod else "Failed"
        if phase == "Succeeded":
            self._say(job, "Succeeded", "The job master is succeeded.")
        elif phase == "Failed" and pod and _exit_code(pod) == 1:
            self._say(job, "Failed", f"The job master {_pod_name(name, index)} failed with exitcode=1.")
        elif phase == "Failed" and index + 1 > job["spec"]["replicaSpecs"][MASTER].get("restartCount", 0):
            self._say(job, "Failed", f"The job master failed {index + 1} times.")
        elif phase == "Failed":
            self._make(job, index + 1)
        else:
            self._say(job, phase, f"The job master is {phase.lower()}.")

    def _masters(self, name):
        return self._api.list(POD, selector=f"{JOB_LABEL}={name},{TYPE_LABEL}={MASTER}").items

    def _make(self, job, index: int) -> None:
        head, spec = job["metadata"], deepcopy(job["spec"]["replicaSpecs"][MASTER]["template"]["spec"])
        ip = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        spec["containers"][0].setdefault("env", []).append(ip)
        owner = {
            "apiVersion": ELASTIC_JOB.api_version,
            "kind": "ElasticJob",
            "name": head["name"],
            "uid": head["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        own = {JOB_LABEL: head["name"], TYPE_LABEL: MASTER, INDEX_LABEL: str(index)}
        pod = {
            "name": _pod_name(head["name"], index),
            "labels": head.get("labels", {}) | own,
            "annotations": head.get("annotations", {}),
            "ownerReferences": [owner],
        }
        service = {"name": f"elasticjob-{head['name']}-{MASTER}", "ownerReferences": [owner]}
        ports = {"selector": own | {INDEX_LABEL: None}, "ports": [{"port": PORT}]}
        self._create(POD, {"metadata": pod, "spec": spec})
        self._create(SERVICE, {"metadata": service, "spec": ports | {"selector": {JOB_LABEL: head["name"]}}})
        self._made[head["uid"]] = index

    def _create(self, kind, document) -> None:
        try:
            self._api.create(kind, document)
        except Conflict:
            return  # it is there

    def _say(self, job, phase: str, message: str) -> None:
        if (job.get("status") or {}).get("phase") == phase:
            return
        condition = {"type": phase, "status": "True", "reason": f"Job{phase}", "message": message}
        inner = {"conditions": [condition], "replicaStatuses": {MASTER: {"active": int(phase == "Running")}}}
        status = {"status": {"phase": phase, "status": inner}}
        self._api.patch(ELASTIC_JOB, job["metadata"]["name"], status, subresource="status")


def _pod_name(job: str, index: int) -> str:
    return f"elasticjob-{job}-{MASTER}-{index}"


def _exit_code(pod) -> int | None:
    states = [container["state"] for container in pod["status"].get("containerStatuses") or ()]
    return states[0]["terminated"]["exitCode"] if states and "terminated" in states[0] else None
