"""A job with a plan as DLRover's ElasticJob, for clusters that run its operator.

The plan is fixed in the document: `replicas` and resources are set and `autoScale` is off, so that the
accepted plan is what runs; DLRover's own optimizer would change it otherwise. `Options.auto_scale` allows
that, and an annotation records the choice. Nothing is suspended.

Two generations of the schema are in circulation, under one name and version:

``elasticjob``
    The present operator's. Only fields of both are used, so either cluster accepts it.
``elasticjob-0``
    The older one that ``kubectl apply -k`` installs. Its operator has two more switches, which are set rather
    than left to their defaults: `enableElasticScheduling` is whether it starts and ends pods by itself (as
    `autoScale`), `enableDynamicSharding` whether its master distributes the data (no: ours does). An API
    server with the present schema refuses both under strict validation.

A job of our own comes with our master (`own_elasticjob`). An external job's roles run their own image and
command, which find DLRover's master and each other by the variables that DLRover sets. Torch has no parameter
servers, only workers.

The job's own labels and annotations (`kubernetes.labels`) stand on the ElasticJob, and on pod templates of
the present schema alone: in the older one their metadata has no fields, and the API server would drop them
silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.export.documents.own_elasticjob import documents
from dlrover_nb.core.export.nodes import MAIN, Options, meets_without_us, no_roles, program, top
from dlrover_nb.core.export.provenance import (
    PREFIX,
    Context,
    Provenance,
    context_of,
)
from dlrover_nb.core.manifests.podspec import pod_spec, pod_template
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

API_VERSION = "elastic.iml.github.io/v1alpha1"
PARAMETER_SERVER, ALL_REDUCE = "ParameterServerStrategy", "AllreduceStrategy"
OLDER = "elasticjob-0"
RESTARTS = 3  # DLRover's default number of restarts of one replica
FIXED = "off: replicas and resources are those of the plan, DLRover plans nothing by itself"
FREE = "on: DLRover begins with this plan and may change it"


def present(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the ElasticJob that runs `job` on `plan`, for the present operator."""
    return _documents("elasticjob", job, plan, provenance, options)


def older(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the ElasticJob that runs `job` on `plan`, for the older operator."""
    *rest, document = _documents(OLDER, job, plan, provenance, options)
    plans = options.auto_scale and job.foreign is not None  # our master does that for a job of our own
    switches = {"enableElasticScheduling": plans, "enableDynamicSharding": False}
    return (*rest, {**document, "spec": {**switches, **_group(document["spec"])}})


def _documents(
    kind: str, job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    context = context_of(
        kind, job, plan, provenance, auto_scale=options.auto_scale, with_secrets=options.with_secrets
    )
    return documents(context, options) if context.job.foreign is None else (_external(context, options),)


def _external(context: Context, options: Options) -> dict[str, object]:
    job = context.job
    meets_without_us("an ElasticJob", job)
    no_roles("an ElasticJob", job)
    chosen = {f"{PREFIX}auto-scale": FREE if options.auto_scale else FIXED}
    torch = context.job.foreign is not None and context.job.foreign.framework is Framework.TORCH
    spec: dict[str, object] = {"distributionStrategy": ALL_REDUCE if torch else PARAMETER_SERVER}
    if options.auto_scale and (limits := _limits(job)):
        spec["resourceLimits"] = limits
    spec["replicaSpecs"] = {
        str(role): _replica(context, role, options) for role in ((Role.WORKER,) if torch else Role)
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "ElasticJob",
        "metadata": top(context, options, chosen),
        "spec": spec,
    }


def _limits(job: JobSpec) -> dict[str, str]:
    """Return the job's quota: the maximum that DLRover's own plans may give it."""
    cpu, memory_mib = job.bounds.quota_cpu, job.bounds.quota_memory_mib
    return ({} if cpu is None else {"cpu": f"{cpu:g}"}) | (
        {} if memory_mib is None else {"memory": f"{memory_mib}Mi"}
    )


def _replica(context: Context, role: Role, options: Options) -> dict[str, object]:
    pod = pod_spec(context.job, program(context, role, options, name=MAIN))
    return {
        "replicas": context.plan.role(role).count,
        "autoScale": options.auto_scale,
        "restartCount": RESTARTS,
        "template": {"spec": pod} if context.kind == OLDER else pod_template(context.job, pod),
    }


def _group(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value
