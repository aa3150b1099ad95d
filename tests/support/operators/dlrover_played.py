"""DLRover's operator and its master, played on a real API server with its real definitions.

Neither is here: this writes what they write, at the places where their code does (the operator: the status of
an ElasticJob by the phase of its master's pod; the master: pods named ``JOB-edljob-ROLE-NUMBER`` with its
labels, and an owner in each ScalePlan that it takes up).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.manifests.kinds import ELASTIC_JOB, POD, SCALE_PLAN

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api


def pod(job: str, role: str, number: int, spec: Any, owner: Any) -> Any:
    """Return a pod as DLRover's master makes it."""
    head = owner["metadata"]
    return {
        "metadata": {
            "name": f"{job}-edljob-{role}-{number}",
            "labels": {
                "app": "dlrover",
                "elasticjob.dlrover/name": job,
                "elasticjob.dlrover/replica-type": role,
                "elasticjob.dlrover/replica-index": str(number),
                "elasticjob.dlrover/rank-index": str(number),
            },
            "ownerReferences": [
                {
                    "apiVersion": ELASTIC_JOB.api_version,
                    "kind": "ElasticJob",
                    "name": head["name"],
                    "uid": head["uid"],
                }
            ],
        },
        "spec": spec,
    }


class Dlrover:
    """Plays both for one job, step by step."""

    def __init__(self, api: Api, job: str) -> None:
        self.api, self.job = api, job

    def make(self, role: str, number: int, resource: Any = None) -> str:
        """Make a pod from the job's template, with a TF_CONFIG, as DLRover's master does."""
        owner = self.api.get(ELASTIC_JOB, self.job)
        spec = owner["spec"]["replicaSpecs"][role]["template"]["spec"]
        config = {"cluster": {}, "task": {"type": role, "index": number}}
        spec["containers"][0]["env"].append({"name": "TF_CONFIG", "value": json.dumps(config)})
        if resource:
            spec["containers"][0]["resources"] = {"requests": resource, "limits": resource}
        made = pod(self.job, role, number, spec, owner)
        self.api.create(POD, made)
        return str(made["metadata"]["name"])

    def runs(self, *names: str, phase: str = "Running") -> None:
        """Write the phase of pods that no kubelet runs."""
        for name in names:
            self.api.patch(POD, name, {"status": {"phase": phase}}, subresource="status")

    def says(self, phase: str, message: str) -> None:
        """Write the status of the ElasticJob."""
        conditions = [{"type": phase, "status": "True", "message": message}]
        inner = {"conditions": conditions, "replicaStatuses": {}}
        status = {"status": {"phase": phase, "status": inner}}
        self.api.patch(ELASTIC_JOB, self.job, status, subresource="status")

    def plans(self) -> list[Any]:
        """Return the ScalePlans that DLRover's master finds by its labels, the oldest first."""
        selector = f"elasticjob.dlrover/name={self.job},scale-type=manual"
        found = self.api.list(SCALE_PLAN, selector=selector).items
        return sorted(found, key=lambda each: each["metadata"]["name"])

    def take_up(self, plan: Any) -> None:
        """Mark a ScalePlan as DLRover's master does."""
        (owner,) = plan["metadata"]["ownerReferences"]
        taken = {**owner, "kind": "elasticjob", "blockOwnerDeletion": True}
        head = {"metadata": {"ownerReferences": [taken]}}
        self.api.patch(SCALE_PLAN, plan["metadata"]["name"], head)
