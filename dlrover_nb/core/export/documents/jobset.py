"""A job with a plan as JobSet: a Job for each role, which start, succeed and fail as one.

An external job's roles become replicated Jobs with as many pods as the plan has nodes. JobSet gives each pod
a stable name (``JOB-worker-0-1.JOB``) but not the names of its peers, so ``TF_CONFIG``, or what torch reads,
is written here; a pod's own number comes from its annotation. The set succeeds when the chief does, or all
workers where there is none: parameter servers never end by themselves.

A job of our own is one Job whose pod runs all of it (`alone`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.alone import job_file, whole
from dlrover_nb.core.export.groups import child, group, items
from dlrover_nb.core.export.nodes import (
    MAIN,
    Options,
    fixed_plan,
    meets_without_us,
    no_roles,
    placed_template,
    program,
    top,
)
from dlrover_nb.core.export.provenance import Context, Provenance, context_of
from dlrover_nb.core.manifests.podspec import pod_spec, pod_template, ttl
from dlrover_nb.core.structs.job.external import CHIEF, EVALUATOR, Framework
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dlrover_nb.core.export.groups import Group, Replicas
    from dlrover_nb.core.structs.job.external import ExternalSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

API_VERSION = "jobset.x-k8s.io/v1alpha2"
_WHOLE = "job"  # the replicated Job of a job of ours
_LONGEST = 63  # of a pod's name, which JobSet checks before it makes any
RESTARTS = 3  # of the whole set: one restarted program alone could not rejoin the others
_INDEX = "DLROVER_NB_INDEX"
OWN_NUMBER = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}


def jobset(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the JobSet that runs `job` on `plan`, after the ConfigMap that one of our own needs.

    Raises
    ------
    InvalidValueError
        When auto-scaling is set, its programs need our master, its name is too long, or its code is in a
        notebook.
    """
    fixed_plan("a JobSet", options)
    context = context_of("jobset", job, plan, provenance, auto_scale=False, with_secrets=options.with_secrets)
    if context.job.foreign is None:
        return job_file(context, options), _document(context, options, whole_set(context, options))
    return (_document(context, options, programs_set(context, options)),)


def whole_set(
    context: Context, options: Options, *, name: str = _WHOLE, main: str = MAIN
) -> dict[str, object]:
    """Return the spec of the JobSet that runs a job of ours in one pod.

    Parameters
    ----------
    name, main
        Names of the replicated Job and of its container.
    """
    check_name(context.job.name, {name: 1})
    jobs = [replicated(name, 1, pod_template(context.job, whole(context, options, name=main)))]
    return {"replicatedJobs": jobs, **ttl(context.job.kubernetes)}


def programs_set(context: Context, options: Options) -> dict[str, object]:
    """Return the spec of the JobSet that runs the roles of an external job.

    Raises
    ------
    InvalidValueError
        When its programs need our master, or its name is too long.
    """
    meets_without_us("a JobSet", context.job, is_placed=True)
    external = context.job.foreign
    assert external is not None
    counts = _counts(context.job, external, context.plan)
    check_name(context.job.name, counts)
    jobs = [replicated(name, n, _template(context, name, counts, options)) for name, n in counts.items()]
    chief = external.fixed(CHIEF)
    leads = external.first_worker_leads if chief is None else chief.is_awaited
    first = str(CHIEF if leads else Role.WORKER)
    last = [first, *(each.name for each in external.roles if each.is_awaited and each.role is not CHIEF)]
    return {
        "network": {"enableDNSHostnames": True, "subdomain": context.job.name},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": last},
        "failurePolicy": {"maxRestarts": RESTARTS},
        "replicatedJobs": jobs,
        **ttl(context.job.kubernetes),
    }


def check_name(job: str, counts: dict[str, int]) -> None:
    """Refuse a name with which JobSet would refuse the set, for the names of its pods."""
    beside = max(len(f"-{name}-0-{n - 1}-xxxxx") for name, n in counts.items())
    if len(job) + beside > _LONGEST:
        raise InvalidValueError(
            f"a JobSet of this plan needs a job name of at most {_LONGEST - beside} characters, got {job} "
            f"({len(job)}); submit it under a shorter one, or export pods"
        )


def _counts(job: JobSpec, external: ExternalSpec, plan: ResourcePlan) -> dict[str, int]:
    """Return the pods of each replicated Job; torch has no parameter servers.

    A chief of torch programs is refused: it has rank 0, and no variable says that workers begin with 1.
    """
    fixed = {each.name: each.count for each in external.roles}
    if external.framework is Framework.TORCH:
        no_roles("a JobSet of torch programs", job, [each.role for each in external.beside])
        return fixed | {str(Role.WORKER): plan.worker.count}
    leads = external.first_worker_leads
    counts = {
        str(Role.PS): plan.ps.count,
        **({str(CHIEF): 1} if leads else {}),
        **fixed,
        str(Role.WORKER): plan.worker.count - leads,
    }
    return {name: count for name, count in counts.items() if count}


def _template(context: Context, name: str, counts: dict[str, int], options: Options) -> dict[str, object]:
    external = context.job.foreign
    assert external is not None
    role = Role.WORKER if external.first_worker_leads and name == CHIEF else Role(name)
    main = program(context, role, options, name=MAIN)
    own = main.get("env")
    env = [
        *(own if isinstance(own, list) else []),
        {"name": _INDEX, "valueFrom": OWN_NUMBER},
        *_rendezvous(context.job.name, external, name, counts),
    ]
    ports = [{"name": "program", "containerPort": external.port}]
    return placed_template(context, role, pod_spec(context.job, {**main, "env": env, "ports": ports}))


def _rendezvous(
    job: str, external: ExternalSpec, name: str, counts: dict[str, int]
) -> list[dict[str, object]]:
    """Return the variables that give programs their peers; those beside the world get it in ours."""
    beside = {str(each.role) for each in external.beside}
    if name in beside:
        world = {role: n for role, n in counts.items() if role not in beside}
        ours = _task("DLROVER_NB_ROLES", job, external, name, {**world, name: counts[name]})
        is_known = external.framework is Framework.TENSORFLOW and name == EVALUATOR
        return [ours, *([_task("TF_CONFIG", job, external, name, world)] if is_known else [])]
    if external.framework is Framework.TORCH:
        first = f"{job}-{Role.WORKER}-0-0.{job}"
        values = {
            "MASTER_ADDR": first,
            "MASTER_PORT": str(external.port),
            "PET_MASTER_ADDR": first,
            "PET_MASTER_PORT": str(external.port),
            "PET_NNODES": str(counts[Role.WORKER]),
            "PET_NODE_RANK": f"$({_INDEX})",
            "PET_NPROC_PER_NODE": str(external.n_process),
        }
        if external.n_process == 1:
            values |= {"WORLD_SIZE": str(counts[Role.WORKER]), "RANK": f"$({_INDEX})"}
        return [{"name": key, "value": value} for key, value in values.items()]
    world = {role: n for role, n in counts.items() if role not in beside}
    return [_task("TF_CONFIG", job, external, name, world)]


def _task(
    variable: str, job: str, external: ExternalSpec, name: str, counts: dict[str, int]
) -> dict[str, object]:
    """Return a variable with the addresses of all tasks, and the own task."""
    cluster = {
        role: [f"{job}-{role}-0-{i}.{job}:{external.port}" for i in range(n)] for role, n in counts.items()
    }
    text = json.dumps({"cluster": cluster, "task": {"type": name, "index": 0}})
    return {"name": variable, "value": text.replace('"index": 0', f'"index": $({_INDEX})')}


def replicated(name: str, n_pod: int, template: Mapping[str, object]) -> dict[str, object]:
    """Return a replicated Job with so many pods."""
    job = {"parallelism": n_pod, "completions": n_pod, "completionMode": "Indexed", "backoffLimit": 0}
    return {"name": name, "replicas": 1, "template": {"spec": {**job, "template": template}}}


def _document(context: Context, options: Options, spec: dict[str, object]) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": top(context, options),
        "spec": spec,
    }


def replicas(document: Group) -> Iterator[Replicas]:
    """Yield the groups of a JobSet's pods."""
    for each in items(child(document, "spec"), "replicatedJobs"):
        job = child(child(group(each, "replicated job"), "template"), "spec")
        n_pod = _times(each.get("replicas", 1), job.get("parallelism", 1))
        yield str(each.get("name")), {"replicas": n_pod}, child(job, "template")


def _times(n_job: object, n_pod: object) -> object:
    """Return the pods of all jobs; a value that is no number is returned unchanged, for the error."""
    return n_job * n_pod if isinstance(n_job, int) and isinstance(n_pod, int) else n_pod
