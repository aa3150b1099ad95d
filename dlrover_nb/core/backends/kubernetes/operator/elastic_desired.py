"""Documents for DLRover's operator: the ElasticJob of a job, and the ScalePlans that change it; pure.

Both have the form of an export, plus fields that only a running job has: owners, the present pods, and the
address to which programs report their steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.backends.kubernetes.operator.elastic_observed import alive, misfits
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.nodes import Options, literal
from dlrover_nb.core.export.provenance import Provenance
from dlrover_nb.core.export.quantities import resources_of
from dlrover_nb.core.manifests.kinds import ELASTIC_JOB
from dlrover_nb.core.manifests.pod_parts import PREFIX, REPORT_KEY, labels, owned_by, secret_name
from dlrover_nb.core.manifests.pods import MASTER_NOTE
from dlrover_nb.core.manifests.podspec import with_own
from dlrover_nb.core.master.external.launch.pod_script import REPORT_FILE_VAR, REPORT_TOKEN_VAR
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.core.structs.wire.pod_contract import MASTER_FILE, NODE_VAR, POD_FOLDER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.job.external import ExternalRole
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

ASKED_NOTE, DECISION_NOTE = f"{PREFIX}asked", f"{PREFIX}decision"  # annotations of a ScalePlan


def elastic_job(job: PodJob, kind: str, owner: Doc) -> Doc:
    """Return the ElasticJob of a job, owned by its Job `owner`; `kind` is that of the export."""
    spec, external = job.spec, job.spec.foreign
    assert external is not None
    (document,) = EXPORTERS[kind](spec, spec.plan, Provenance(), Options())
    made: Doc = dict(document)
    head = {"labels": labels(spec.name, job.run), "ownerReferences": owned_by(owner)}
    made["metadata"] = with_own(made["metadata"] | head, spec.kubernetes)
    for role, replica in made["spec"]["replicaSpecs"].items():
        program = external.worker if role == Role.WORKER else external.ps
        replica["template"]["spec"] = _reporting(replica["template"]["spec"], spec, program)
    return made


def _reporting(pod: Doc, spec: JobSpec, program: ExternalRole) -> Doc:
    """Return a pod whose program has the report address, and its command and variables with their secrets.

    An export has placeholders for these; here they are passed on.
    """
    (main,) = pod["containers"]
    given = dict(item.split("=", 1) for item in (*spec.kubernetes.env, *program.env))
    token = {"secretKeyRef": {"name": secret_name(spec.name), "key": REPORT_KEY}}
    env: list[Any] = [
        *(variable for variable in main.get("env", ()) if variable["name"] not in given),
        *({"name": name, "value": given[name]} for name in sorted(given)),
        {"name": NODE_VAR, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": REPORT_FILE_VAR, "value": MASTER_FILE},
        {"name": REPORT_TOKEN_VAR, "valueFrom": token},
    ]
    note = {"fieldPath": f"metadata.annotations['{MASTER_NOTE}']"}
    volume = {"name": "pod", "downwardAPI": {"items": [{"path": "master", "fieldRef": note}]}}
    mount = {"name": "pod", "mountPath": POD_FOLDER, "readOnly": True}
    main = main | {
        "command": literal(program.command),
        "env": env,
        "volumeMounts": [*main.get("volumeMounts", ()), mount],
    }
    return pod | {"containers": [main], "volumes": [*pod.get("volumes", ()), volume]}


def scale_plan(
    spec: JobSpec, plan: ResourcePlan, decision: str, owner: Doc, *, pods: Iterable[Doc], number: int
) -> Doc:
    """Return the ScalePlan that moves a running job to a plan.

    Parameters
    ----------
    decision
        The decision behind it; empty: none, as in the rollback of a plan that failed.
    owner
        The ElasticJob. The reference does not block deletion: a blocking one marks that DLRover's master has
        taken the ScalePlan up.
    pods
        Present pods of the job: those that stay with other resources are named.
    number
        Not used by the job before: DLRover acts on each name once.
    """
    (document,) = EXPORTERS["scaleplan"](spec, plan, Provenance(), Options())
    made: Doc = dict(document)
    head, ours = owner["metadata"], made["metadata"]
    reference = {
        "apiVersion": ELASTIC_JOB.api_version,
        "kind": ELASTIC_JOB.name,
        "name": head["name"],
        "uid": head["uid"],
    }
    notes = {ASKED_NOTE: to_json(plan).decode()} | ({DECISION_NOTE: decision} if decision else {})
    made["metadata"] = ours | {
        "name": f"{spec.name}-s{number}-{head['uid'][:8]}",
        "annotations": ours["annotations"] | notes,
        "ownerReferences": [reference],
    }
    if moved := _moved(plan, pods):
        made["spec"] = made["spec"] | {"migratePods": moved}
    return made


def _moved(plan: ResourcePlan, pods: Iterable[Doc]) -> list[Doc]:
    there = alive(pods)
    return [
        {"name": pod["metadata"]["name"], "resource": resources_of(plan.role(role))}
        for role in (Role.PS, Role.WORKER)
        for pod in misfits(plan.role(role), there[role][: plan.role(role).count])
    ]


def numbered(scales: Iterable[Doc], job_uid: str) -> dict[int, Doc]:
    """Return our ScalePlans of an ElasticJob by number, without others' and those of an earlier run."""
    return {
        int(scale["metadata"]["name"].rsplit("-", 2)[1][1:]): scale
        for scale in scales
        if ASKED_NOTE in (scale["metadata"].get("annotations") or {})
        and any(owner["uid"] == job_uid for owner in scale["metadata"].get("ownerReferences") or ())
    }


def latest(scales: Collection[Doc], job_uid: str) -> Doc | None:
    """Return the newest of our ScalePlans of an ElasticJob; None: there is none."""
    by_number = numbered(scales, job_uid)
    return by_number[max(by_number)] if by_number else None


def requested_plan(scale: Doc | None, first: ResourcePlan) -> ResourcePlan:
    """Return the plan requested last: that of a ScalePlan, else the job's first plan."""
    if scale is None:
        return first
    return from_json(scale["metadata"]["annotations"][ASKED_NOTE].encode(), ResourcePlan)
