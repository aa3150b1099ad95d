"""A job with a plan as plain Kubernetes: all objects that it needs, for clusters without an operator.

They are those of a submission, with two differences. The Secret is empty (`export.documents.own_master`). And
no client releases a paused Job, so the Job comes last and running. The master makes the pods of the plan;
deleting the Job deletes them, and ``kubectl delete -f`` of the file deletes the rest.

A service account is named with its namespace, so all objects are in one: the one asked for, or ``default``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.export.alone import job_file
from dlrover_nb.core.export.documents.own_master import beside, keyless, reading_file
from dlrover_nb.core.export.nodes import Options, fixed_plan
from dlrover_nb.core.export.provenance import Context, Provenance, context_of, notes_of
from dlrover_nb.core.manifests.objects import master_job

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.wire.pod_contract import PodJob


def pods(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the objects of `job` on `plan` in order of creation.

    Raises
    ------
    InvalidValueError
        When auto-scaling is set (nothing provides it), or the job's code is in a notebook.
    """
    fixed_plan("a set of plain pods", options)
    context = context_of("pods", job, plan, provenance, auto_scale=False, with_secrets=options.with_secrets)
    options = replace(options, namespace=options.namespace or "default")
    assert options.namespace is not None
    bare = keyless(context, options)
    rest = beside(bare, options.namespace)
    return (job_file(context, options), *rest, _running(bare, context, options.namespace))


def _running(bare: PodJob, context: Context, namespace: str) -> dict[str, object]:
    """Return the Job, not paused, whose pod reads the job file."""
    document = master_job(bare, namespace=namespace)
    spec = document["spec"]
    pod = reading_file(spec["template"]["spec"], bare.spec.name)
    template = {**spec["template"], "spec": pod}
    notes = {**document["metadata"].get("annotations", {}), **notes_of(context)}
    return {
        **document,
        "metadata": {**document["metadata"], "annotations": notes},
        "spec": {**spec, "parallelism": 1, "template": template},
    }
