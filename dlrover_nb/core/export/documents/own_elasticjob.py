"""A job of our own as an ElasticJob: one file that trains when it is applied, where DLRover's operator runs.

Where an ElasticJob has a replica ``dlrover-master``, the operator makes one pod of its template (with an
index in the name, an owner reference to the ElasticJob, and the ElasticJob's labels), replaces it when it is
lost, and takes the job's phase from it. Workers and parameter servers are that master's work. So the template
is our master's pod, and `worker` and `ps` hold the plan: replicas and resources, nothing else, as our master
reads nothing else there. It follows later changes of them, and ScalePlans of the job.

The pod is not restarted by the kubelet (``Never``): the operator counts pods. Exit code 1 of the master ends
the job at once, so it says 1 of a job that has failed and something else where another master may go on.
Labels and annotations, ours and the user's, stand on the ElasticJob alone: the older schema drops those of a
template, and the operator copies them to the pod that it makes.

Operators up to 0.4.9 take no more than image and variables of the template. They start DLRover's own master
in our image, where it is not found; an annotation says so, as a file cannot know its reader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.export.alone import job_file
from dlrover_nb.core.export.documents.own_master import beside, keyless, reading_file
from dlrover_nb.core.export.nodes import MAIN, Options, guaranteed
from dlrover_nb.core.export.provenance import PREFIX, Context, notes_of
from dlrover_nb.core.export.quantities import resources_of
from dlrover_nb.core.manifests.kinds import ELASTIC_JOB
from dlrover_nb.core.manifests.objects import N_RETRY, master_pod
from dlrover_nb.core.manifests.pod_parts import MASTER_ROLE, labels
from dlrover_nb.core.manifests.podspec import with_own
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.core.structs.wire.pod_contract import storage_advice

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

MASTER = "dlrover-master"  # DLRover's name of the replica
STRATEGY = "ParameterServerStrategy"
NEEDS = "DLRover's operator 0.5.0 or later: earlier ones do not start the command of dlrover-master"
FIXED = "off: the master keeps to replicas and resources below and proposes others; people decide"
FREE = "on: the master begins with replicas and resources below and may change them"


def documents(context: Context, options: Options) -> tuple[dict[str, object], ...]:
    """Return the objects of a job, the ElasticJob last.

    Raises
    ------
    InvalidValueError
        When the job's code is in a notebook.
    """
    options = replace(options, namespace=options.namespace or "default")
    assert options.namespace is not None
    job = keyless(context, options, owner=ELASTIC_JOB.name)
    file: dict[str, Any] = job_file(context, options)
    head = {key: value for key, value in file["metadata"].items() if key != "annotations"}
    rest = beside(job, options.namespace)
    return ({**file, "metadata": head}, *rest, _elastic_job(job, context, options))


def _elastic_job(job: PodJob, context: Context, options: Options) -> dict[str, object]:
    name, plan = job.spec.name, job.spec.plan
    pod = {**reading_file(master_pod(job), name, ELASTIC_JOB.name), "restartPolicy": "Never"}
    master = {"replicas": 1, "restartCount": N_RETRY, "template": {"spec": pod}}
    replicas = {str(role): _replica(plan, role, is_free=context.auto_scale) for role in Role}
    head = {
        "name": name,
        "namespace": options.namespace,
        "labels": labels(name, job.run, MASTER_ROLE),
        "annotations": _notes(job.spec, context),
    }
    return {
        "apiVersion": ELASTIC_JOB.api_version,
        "kind": ELASTIC_JOB.name,
        "metadata": with_own(head, job.spec.kubernetes),
        "spec": {"distributionStrategy": STRATEGY, "replicaSpecs": {**replicas, MASTER: master}},
    }


def _notes(job: JobSpec, context: Context) -> dict[str, str]:
    advice = storage_advice(job)
    own = {"needs": NEEDS, "auto-scale": FREE if context.auto_scale else FIXED, "storage": advice}
    return {f"{PREFIX}{key}": text for key, text in own.items() if text} | notes_of(context)


def _replica(plan: ResourcePlan, role: Role, *, is_free: bool) -> dict[str, object]:
    container = {"name": MAIN, "resources": guaranteed(resources_of(plan.role(role)))}
    return {
        "replicas": plan.role(role).count,
        "autoScale": is_free,
        "template": {"spec": {"containers": [container]}},
    }
