"""A job with a plan as DLRover's ElasticJob, for clusters that run its operator.

The plan is fixed in the document: `replicas` are set, `autoScale` is off and nothing is suspended, so that
what the user accepted is what runs; DLRover's own optimizer would change it otherwise. Requests equal limits
(the Guaranteed class): the throughput was predicted for just these cores. Fields are those that both schemas
in use know, the operator's present one and the older one that `kubectl apply -k` installs. No label is put on
pod templates: in both schemas their metadata has no fields, and the API server would drop them silently.

Where the plan came from stands in annotations: text only, no credentials, and no data except the file's path.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.export.files import write
from dlrover_nb.core.structs.decisions import Verdict
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.yamltext import to_yaml

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

    from dlrover_nb.core.structs.decisions import Decision, Prediction
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan
    from dlrover_nb.core.structs.snapshot import JobSnapshot

__all__ = ["Pod", "Provenance", "elasticjob", "provenance_of", "to_yaml", "validate", "write"]

API_VERSION = "elastic.iml.github.io/v1alpha1"
PREFIX = "dlrover-nb"  # of annotation keys
MAX_NOTE = 1000  # characters of a free text; Kubernetes allows 256 KiB for all annotations together
RESTARTS = 3  # DLRover's usual number of restarts of one replica
DEFAULT_IMAGE = "dlrover-nb:0.1.0"
NODE_CONFIG = "/etc/dlrover-nb/node.json"


@dataclass(frozen=True, slots=True)
class Pod:
    """What the plan does not say about the pods.

    Parameters
    ----------
    image
        Image with this package and its `torch` extra. The default is a name, no published image: build
        one under it, or give your own.
    command
        Program of every node. It reads a `NodeConfig` from `NODE_CONFIG`, a file that the cluster has to
        provide: it names the job's master and holds its keys, which no export may contain. The role and the
        job, to make it from, stand in ``DLROVER_NB_ROLE`` and ``DLROVER_NB_JOB`` (JSON).
    namespace
        Where the job goes; None leaves it to ``kubectl``.
    """

    image: str = DEFAULT_IMAGE
    command: tuple[str, ...] = ("python", "-m", "dlrover_nb.core.runtime.node", NODE_CONFIG)
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Why this plan: the decision that set it and what was predicted for it; None where there is none."""

    decision: Decision | None = None
    prediction: Prediction | None = None


def provenance_of(snapshot: JobSnapshot, plan: ResourcePlan) -> Provenance:
    """Find the latest decision for `plan` in a job, and the prediction that was made for it."""
    proposals = {p.id: p for p in snapshot.proposals}
    predictions = {p.candidate.plan: p.candidate.prediction for p in snapshot.proposals}
    predictions |= {m.plan: m.predicted for m in snapshot.markers if m.predicted is not None}

    def decided(decision: Decision) -> ResourcePlan | None:
        if decision.verdict is Verdict.ACCEPT and decision.proposal in proposals:
            return proposals[decision.proposal].candidate.plan
        return decision.plan

    decision = next((d for d in reversed(snapshot.decisions) if decided(d) == plan), None)
    return Provenance(decision, predictions.get(plan))


def elasticjob(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance | None = None, pod: Pod | None = None
) -> dict[str, object]:
    """Return the ElasticJob that runs `job` on `plan`.

    ``DLROVER_NB_JOB`` holds the job as JSON; ``$(`` in it is doubled, as Kubernetes would expand it.
    """
    pod, running = pod or Pod(), replace(job, plan=plan)
    metadata: dict[str, object] = {"name": job.name}
    if pod.namespace:
        metadata["namespace"] = pod.namespace
    metadata["annotations"] = _annotations(job, plan, provenance or Provenance())
    return {
        "apiVersion": API_VERSION,
        "kind": "ElasticJob",
        "metadata": metadata,
        "spec": {
            "distributionStrategy": "ParameterServerStrategy",
            "replicaSpecs": {str(role): _replica(running, role, plan.role(role), pod) for role in Role},
        },
    }


def _replica(job: JobSpec, role: Role, plan: RolePlan, pod: Pod) -> dict[str, object]:
    quantities = {"cpu": f"{round(plan.cpu * 1000)}m", "memory": f"{plan.memory_mib}Mi"}
    container = {
        "name": "main",  # the operator looks for this name
        "image": pod.image,
        "command": list(pod.command),
        "env": [
            {"name": "DLROVER_NB_ROLE", "value": str(role)},
            {"name": "DLROVER_NB_JOB", "value": to_json(job).decode().replace("$(", "$$(")},
        ],
        "resources": {"requests": quantities, "limits": quantities},
    }
    return {
        "replicas": plan.count,
        "autoScale": False,
        "restartCount": RESTARTS,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }


def _annotations(job: JobSpec, plan: ResourcePlan, provenance: Provenance) -> dict[str, str]:
    notes = {"plan": str(plan), "job-spec-sha256": hashlib.sha256(to_json(job)).hexdigest()}
    if (decision := provenance.decision) is not None:
        notes |= {
            "decision": f"{decision.id} {decision.verdict}".strip(),
            "decided-by": decision.by,
            "decided-at": datetime.fromtimestamp(decision.at_s, UTC).isoformat(timespec="seconds"),
            "why": decision.why[:MAX_NOTE],
            "proposal": decision.proposal or "",
        }
    if (told := provenance.prediction) is not None:
        band = f"{told.samples_per_s:.0f} ({told.low:.0f} to {told.high:.0f}, 90 % band)"
        notes["predicted-samples-per-s"] = f"{band}, extrapolated" if told.extrapolates else band
    return {f"{PREFIX}/{key}": text for key, text in notes.items() if text}


def validate(document: object) -> tuple[str, ...]:
    """Return what DLRover's schema finds wrong with an ElasticJob, unknown fields included."""
    return tuple(
        f"{'/'.join(map(str, error.absolute_path)) or 'document'}: {error.message[:200]}"
        for error in _validator().iter_errors(document)
    )


@cache
def _validator() -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - 0.1 s that only an export needs

    text = resources.files("dlrover_nb.core.export").joinpath("elasticjob.schema.json").read_text("utf-8")
    return Draft202012Validator(json.loads(text))
