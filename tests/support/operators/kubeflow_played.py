"""Kubeflow's training operator (v1.9), played for TFJobs and PyTorchJobs.

A pod and a service of the same name, ``JOB-ROLE-NUMBER``, for each replica; TensorFlow's peers in ``TF_CONFIG`` of the
container ``tensorflow``, torch's in ``MASTER_ADDR`` and the like. The first replica's end is the job's: that of the
Chief or Master, without one that of the first worker, or with ``successPolicy: AllWorkers`` of all. Under
``restartPolicy: ExitCode`` a pod whose program was killed (128 and more) is made anew, and any other failure fails the job.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.operators.played import FAILED, SUCCEEDED, Controller, exit_code, phase, with_variables

if TYPE_CHECKING:
    from collections.abc import Iterator

Doc = dict[str, Any]
_JOB, _TYPE, _INDEX = (
    f"training.kubeflow.org/{word}" for word in ("job-name", "replica-type", "replica-index")
)
_FIRST_SIGNAL = 128


class _Kubeflow(Controller):
    replicas_key = container = port = first = ""
    default_port = 0

    @property
    def replicas(self) -> Doc:
        found: Doc = self.spec[self.replicas_key]
        return found

    def begin(self) -> None:
        """Make all services, and all pods."""
        for role, number in self.members():
            name = self.pod(role, number)
            self.serve(name, self.labels(role, number))
            self.make(role, number)

    def members(self) -> Iterator[tuple[str, int]]:
        """Yield each replica's role and number."""
        for role, replica in self.replicas.items():
            yield from ((role, number) for number in range(replica["replicas"]))

    def pod(self, role: str, number: int) -> str:
        return f"{self.name}-{role.lower()}-{number}"

    def labels(self, role: str, number: int) -> Doc:
        return {_JOB: self.name, _TYPE: role.lower(), _INDEX: str(number)}

    def make(self, role: str, number: int) -> None:
        """Make a pod; where exit codes decide, the operator restarts it, not the kubelet."""
        replica = self.replicas[role]
        restart = replica.get("restartPolicy", "Never")
        spec = replica["template"]["spec"] | {"restartPolicy": "Never" if restart == "ExitCode" else restart}
        spec = with_variables(spec, self.variables(role, number), container=self.container)
        self.start(self.pod(role, number), self.labels(role, number), spec)

    def variables(self, role: str, number: int) -> Doc:
        """Return what finds the peers."""
        raise NotImplementedError

    def listens(self, role: str) -> int:
        """Return the port that a role's container names as the operator wants it, or the default."""
        containers = {each["name"]: each for each in self.replicas[role]["template"]["spec"]["containers"]}
        ports = containers[self.container].get("ports", ())
        return next((p["containerPort"] for p in ports if p["name"] == self.port), self.default_port)

    def result(self) -> str | None:
        pods = self.pods()
        for role, number in self.members():
            pod = pods.get(self.pod(role, number))
            if pod is None:
                self.make(role, number)
            elif phase(pod) == FAILED:
                if self.replicas[role]["restartPolicy"] != "ExitCode" or exit_code(pod) < _FIRST_SIGNAL:
                    return FAILED
                self.end(self.pod(role, number))
        decisive = [pods.get(self.pod(*member)) for member in self.decisive()]
        return SUCCEEDED if all(pod and phase(pod) == SUCCEEDED for pod in decisive) else None

    def decisive(self) -> list[tuple[str, int]]:
        """Return the replicas whose end is the job's."""
        if self.first in self.replicas:
            return [(self.first, 0)]
        everyone = self.spec.get("successPolicy") == "AllWorkers"
        return [member for member in self.members() if member[0] == "Worker" and (everyone or not member[1])]


class TfOperator(_Kubeflow):
    """Plays for a TFJob."""

    replicas_key, container, port, first = "tfReplicaSpecs", "tensorflow", "tfjob-port", "Chief"
    default_port = 2222

    def variables(self, role: str, number: int) -> Doc:
        if len(list(self.members())) == 1:  # a program without peers is not told of any
            return {}
        cluster: dict[str, list[str]] = {}
        for each, i in self.members():
            where = f"{self.pod(each, i)}.{self.api.namespace}.svc:{self.listens(each)}"
            cluster.setdefault(each.lower(), []).append(where)
        task = {"type": role.lower(), "index": number}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}


class TorchOperator(_Kubeflow):
    """Plays for a PyTorchJob; its init container, which waits for the Master's name, is left out."""

    replicas_key, container, port, first = "pytorchReplicaSpecs", "pytorch", "pytorchjob-port", "Master"
    default_port = 23456

    def variables(self, role: str, number: int) -> Doc:
        n_process = self.spec.get("nprocPerNode", "auto")
        n_pod = len(list(self.members()))
        address, port = self.pod("Master", 0), str(self.listens("Master"))
        rank = str(number + (role == "Worker"))
        world = n_pod * (int(n_process) if n_process.isdigit() else 1)
        return {
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            "WORLD_SIZE": str(world),
            "RANK": rank,
            "PET_MASTER_ADDR": address,
            "PET_MASTER_PORT": port,
            "PET_NNODES": str(n_pod),
            "PET_NODE_RANK": rank,
            "PET_NPROC_PER_NODE": n_process,
        }
