"""Parts of a node common to all exports: its container, and the options that the plan does not set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.provenance import PREFIX, notes_of
from dlrover_nb.core.export.quantities import resources_of
from dlrover_nb.core.manifests.podspec import (
    beside_roles,
    container_of,
    image_of,
    pod_template,
    variables,
    with_own,
)
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.job import JobSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from dlrover_nb.core.export.provenance import Context
    from dlrover_nb.core.structs.plan.resources import Role

MAIN = "main"  # DLRover's operator looks for this name
JOB_LABEL, ROLE_LABEL = f"{PREFIX}job", f"{PREFIX}role"
JOB_VARIABLE = "DLROVER_NB_JOB"  # of nodes in exports of release 0.1: the job


@dataclass(frozen=True, slots=True)
class Options:
    """Settings that the plan does not contain.

    Parameters
    ----------
    image
        Image with this package and its extra `torch`; `pods` and the ElasticJob need the extra `kubernetes`
        too. Empty: the job's own (``kubernetes.image``), else a name that is no published image: build one
        under it. An external job's roles keep their own images.
    namespace
        Target namespace; None leaves it to ``kubectl``.
    auto_scale
        Whether an ElasticJob's master (ours, or DLRover's of an external job) may change the plan later. Not
        by default: the plan that the user accepted runs.
    with_secrets
        Whether the documents hold the job's secrets, which all who may read the objects can then read too.
    """

    image: str = ""
    namespace: str | None = None
    auto_scale: bool = False
    with_secrets: bool = False


def program(context: Context, role: Role, options: Options, *, name: str) -> dict[str, object]:
    """Return the container of an external job's role, under the name that its operator expects."""
    external = context.job.foreign
    assert external is not None
    own, fixed = external.program(role), external.fixed(role)
    plan = context.plan.role(role) if fixed is None else fixed.plan
    return container_of(
        context.job,
        {
            "name": name,
            "image": own.image or image_of(context.job, options.image),
            "command": literal(own.command),
            "env": variables(own.env),
            "resources": guaranteed(resources_of(plan)),
        },
    )


def literal(words: Iterable[str]) -> list[str]:
    """Return the words of a command so that Kubernetes replaces no variable in them."""
    return [word.replace("$(", "$$(") for word in words]


def guaranteed(quantities: dict[str, str]) -> dict[str, object]:
    """Return resources whose requests equal their limits."""
    return {"requests": quantities, "limits": dict(quantities)}


def fixed_plan(what: str, options: Options) -> None:
    """Refuse auto-scaling by DLRover where it is not installed; `what` begins the sentence."""
    if options.auto_scale:
        raise InvalidValueError(
            f"{what} sets a plan and cannot let DLRover change it; export an elasticjob to let it plan"
        )


def placed_template(context: Context, role: Role, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the template of a pod of an external job's role, with where it runs among the other roles."""
    job, external = context.job, context.job.foreign
    assert external is not None
    if not external.placed:
        return pod_template(job, pod)
    of_job = {JOB_LABEL: job.name}
    affinity = beside_roles(pod.get("affinity") or {}, external.program(role), of_job, ROLE_LABEL)
    template: dict[str, Any] = pod_template(job, {**pod, **({"affinity": affinity} if affinity else {})})
    metadata = template.get("metadata", {})
    labels = {**metadata.get("labels", {}), **of_job, ROLE_LABEL: str(role)}
    return {**template, "metadata": {**metadata, "labels": labels}}


def meets_without_us(what: str, job: JobSpec, *, is_placed: bool = False) -> None:
    """Refuse what only our master does where none is started; `what` is what is made.

    That is to tell programs their peers when they ask for them, and to place roles by each other, unless
    their pods say it (`is_placed`).
    """
    if job.foreign is not None and job.foreign.placed and not is_placed:
        raise InvalidValueError(
            f"together_with and apart_from of job {job.name} need labels and an affinity of each role's "
            f"pods, which {what} does not set; export pods, a jobset or a tfjob"
        )
    if job.foreign is not None and job.foreign.framework is Framework.DDP:
        raise InvalidValueError(
            f"the programs of job {job.name} ask this product's master for their peers (framework: ddp), and "
            f"{what} starts none; export pods"
        )


def no_roles(what: str, job: JobSpec, among: Collection[Role] = ()) -> None:
    """Refuse roles beside worker and PS, except `among`, that what is made (`what`) cannot have."""
    roles = () if job.foreign is None else job.foreign.roles
    if other := [each.name for each in roles if each.role not in among]:
        raise InvalidValueError(
            f"{what} cannot have the roles {and_list(other)} of job {job.name}; export pods"
        )


def labels_of(job: JobSpec) -> dict[str, str]:
    """Return the labels of a job's objects."""
    return {
        "app.kubernetes.io/part-of": job.name,
        "app.kubernetes.io/managed-by": "dlrover-nb",
        JOB_LABEL: job.name,
    }


def job_in(value: str) -> JobSpec:
    """Return the job in a container's variable; `WireError` when it is none."""
    return from_json(value.replace("$$(", "$("), JobSpec)


def top(context: Context, options: Options, notes: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return the metadata of the object that is the job: with `notes`, and what the job says itself."""
    metadata = {**head(context.job.name, options), "annotations": {**(notes or {}), **notes_of(context)}}
    return with_own(metadata, context.job.kubernetes)


def head(name: str, options: Options) -> dict[str, object]:
    """Return the metadata that every resource begins with."""
    return {"name": name, **({"namespace": options.namespace} if options.namespace else {})}
