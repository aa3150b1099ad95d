"""Detects DLRover's operator, decides which jobs it runs, and creates such a job.

The operator is detected by API discovery. The generation of its schema is read from the resource definition
where the account may read it; otherwise the document uses only fields that both generations have.

The ElasticJob belongs to the job's own Job, whose master follows it (`operated`): deleting the Job deletes
the ElasticJob.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import Conflict, Forbidden, NotThere
from dlrover_nb.core.backends.kubernetes.operator.elastic_desired import elastic_job
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.export.documents.own_elasticjob import MASTER, NEEDS
from dlrover_nb.core.manifests.kinds import CRD, DEPLOYMENT, ELASTIC_JOB, SCALE_PLAN
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.kubernetes import AUTO, DLROVER, NONE
from dlrover_nb.core.structs.job.spec_choices import Admission

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

_OPERATOR_IMAGE = re.compile(r"elasticjob-controller|dlrover")
_RELEASE = re.compile(r":\D*(\d+)\.(\d+)\.(\d+)[^/]*$")
FIRST_WITH_COMMAND = (0, 5, 0)
_SWITCH = "enableElasticScheduling"  # of the older schema alone
_DEFINITION = f"{ELASTIC_JOB.plural}.{ELASTIC_JOB.group}"
NO_OPERATOR = (
    f"no operator of DLRover serves {_DEFINITION} on this cluster; leave kubernetes.operator out, and the "
    "job's own master runs its pods"
)


class Operator(StrEnum):
    """Which operator a cluster has, by the schema of its jobs; the values are kinds of export."""

    NONE = ""
    PRESENT = "elasticjob"
    OLDER = "elasticjob-0"


def operator_of(api: Api) -> Operator:
    """Return which operator a cluster has; without one jobs are plain pods."""
    if not api.has(ELASTIC_JOB):
        return Operator.NONE
    try:
        definition = api.get(CRD, _DEFINITION)
    except (Forbidden, NotThere):
        return Operator.PRESENT
    versions = definition["spec"]["versions"]
    schemas = [each["schema"]["openAPIV3Schema"]["properties"]["spec"] for each in versions if each["served"]]
    return Operator.OLDER if any(_SWITCH in each["properties"] for each in schemas) else Operator.PRESENT


def operator_facts(api: Api) -> tuple[tuple[str, str], ...]:
    """Return the lines on the operator shown on connecting; nothing where there is none."""
    kind = operator_of(api)
    if kind is Operator.NONE:
        return ()
    plans = "takes ScalePlans" if api.has(SCALE_PLAN) else "takes no ScalePlans"
    return (("DLRover's operator", f"is installed and {plans}; export --kind {kind} fits it"),)


def operator_version(api: Api) -> tuple[int, ...]:
    """Return the release of DLRover's operator, by the tag of its image; empty: it is not known.

    Its Deployment is in any namespace, which few users may read, and its tag may name no release.
    """
    try:
        deployments = api.within("").list(DEPLOYMENT).items
    except (Forbidden, NotThere):
        return ()
    containers = [c for each in deployments for c in each["spec"]["template"]["spec"]["containers"]]
    tags = [_RELEASE.search(c["image"]) for c in containers if _OPERATOR_IMAGE.search(c["image"])]
    return min((tuple(map(int, tag.groups())) for tag in tags if tag), default=())


def why_no_export(api: Api, documents: Iterable[Doc]) -> str:
    """Return why the cluster's operator cannot run documents; empty: it can, or its release is not known."""
    masters = [each for each in documents if MASTER in (each.get("spec") or {}).get("replicaSpecs", {})]
    if not masters or not api.has(ELASTIC_JOB):
        return ""
    version = operator_version(api)
    if not version or version >= FIRST_WITH_COMMAND:
        return ""
    return (
        f"it needs {NEEDS}; this cluster has {'.'.join(map(str, version))}. Use --kind pods, which needs no "
        "operator, or name the --namespace of another cluster"
    )


def create(api: Api, job: PodJob, owner: Doc) -> Doc:
    """Create the ElasticJob of a job for its plan, and return it as stored.

    One that an earlier run left and the cluster has not deleted yet is deleted first.

    Raises
    ------
    NotFoundError
        When the cluster has no operator.
    InvalidValueError
        When an ElasticJob of that name exists that is not ours.
    """
    kind, name = operator_of(api), job.spec.name
    if kind is Operator.NONE:
        raise NotFoundError(NO_OPERATOR)
    document = elastic_job(job, kind, owner)
    try:
        return api.create(ELASTIC_JOB, document)
    except Conflict as error:
        there = api.get(ELASTIC_JOB, name)["metadata"]
        if there.get("labels", {}).get(JOB_LABEL) is None:
            raise InvalidValueError(
                f"namespace {api.namespace} has an ElasticJob {name} that was not created by this product; "
                "delete it, or choose another name"
            ) from error
        api.delete(ELASTIC_JOB, name, propagation="Background", uid=there["uid"])
        return api.create(ELASTIC_JOB, document)


def refuse_operator(spec: JobSpec) -> None:
    """Refuse a job of our own runtime whose user requests the operator."""
    if spec.foreign is None and spec.kubernetes.operator == DLROVER:
        raise InvalidValueError(
            f"job {spec.name} trains with our own runtime, whose master makes its pods; DLRover's operator "
            "runs jobs whose roles are an image and a command (external:)"
        )


def settled(spec: JobSpec, api: Api) -> JobSpec:
    """Return the job with the choice of operator settled: DLRover's operator, or the job's own master.

    Raises
    ------
    NotFoundError
        When the job requests the operator, and the cluster has none.
    InvalidValueError
        When the job requests the operator for torch programs, for roles that it does not start, or in the
        queue, as its pods start at once.
    """
    wanted, external = spec.kubernetes.operator, spec.foreign
    if external is None or wanted in {"", NONE}:
        return _with(spec, NONE)
    is_there = operator_of(api) is not Operator.NONE
    if wanted == AUTO:
        is_plain = not (external.roles or external.placed) and spec.admission is Admission.AT_ONCE
        fits = is_there and external.framework is Framework.TENSORFLOW and is_plain
        return _with(spec, DLROVER if fits else NONE)
    if spec.admission is Admission.QUEUE:
        raise InvalidValueError(
            "operator: dlrover starts pods at once, got admission: queue; leave operator out, and the job's "
            "own master starts them when the brain admits it"
        )
    if external.framework is Framework.TORCH:
        raise InvalidValueError(
            "operator: dlrover runs only tensorflow programs, got torch, which DLRover starts with its "
            "own launcher; leave operator out, or export --kind elasticjob"
        )
    if external.placed:
        raise InvalidValueError(
            f"operator: dlrover places pods itself, got together_with or apart_from of {external.placed[0]}; "
            "leave operator out"
        )
    if external.roles:
        raise InvalidValueError(
            f"operator: dlrover starts workers and ps alone, got {external.roles[0].name} in external.roles; "
            "leave operator out"
        )
    if not is_there:
        raise NotFoundError(NO_OPERATOR)
    return spec


def _with(spec: JobSpec, operator: str) -> JobSpec:
    return replace(spec, kubernetes=replace(spec.kubernetes, operator=operator))
