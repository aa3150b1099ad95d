"""DLRover's operator and its master, played on a real API server with its real definitions.

Neither is here: this writes what they write, at the places where their code does (the operator: the status of
an ElasticJob by the phase of its master's pod; the master: pods named ``JOB-edljob-ROLE-NUMBER`` with its
labels, and an owner in each ScalePlan that it takes up).
"""

from __future__ import annotations

import json
from typing import Any

import yaml
from exports import CRDS
from waiting import until

from dlrover_nb.core.backends.kubernetes.api import Api, NotThere
from dlrover_nb.core.manifests.kinds import CRD, ELASTIC_JOB, POD, SCALE_PLAN

OLDER, PRESENT = "manifests_bases_crd.HEAD.yaml", "elasticjobs.HEAD.yaml"  # the latter has no ScalePlans


def installed(api: Api, file: str):
    """Install the definitions of a file of the real ones; generator of one, which removes them."""
    documents = yaml.load_all((CRDS / "dlrover" / file).read_text("utf-8"), yaml.CSafeLoader)
    wanted = [d for d in documents if d and d["kind"] == "CustomResourceDefinition"]
    names = [document["metadata"]["name"] for document in wanted]
    for document in wanted:
        api.create(CRD, document)
    kinds = [kind for kind in (ELASTIC_JOB, SCALE_PLAN) if f"{kind.plural}.{kind.group}" in names]
    until(lambda: all(_is_served(api, name) for name in names))
    until(lambda: all(map(api.has, kinds)))  # discovery follows a little later
    yield file
    for name in names:
        api.delete(CRD, name)
    until(lambda: not any(is_there(api, name) for name in names))


def _is_served(api: Api, name: str) -> bool:
    conditions = api.get(CRD, name)["status"].get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def is_there(api: Api, name: str) -> bool:
    """Whether there is a definition of that name."""
    try:
        api.get(CRD, name)
    except NotThere:
        return False
    return True


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
