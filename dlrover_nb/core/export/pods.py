"""A job with a plan as plain Kubernetes: all objects that it needs, for clusters without an operator.

They are those of a submission (`core.manifests.objects`), with two differences. The Secret is
empty, since no export holds a key: the job file is in a ConfigMap, and the master, which may change its own
Secret, makes the keys when it first begins (`backends.kubernetes.exported_master`). And no client releases a
paused Job, so the Job comes last and running. The master makes the pods of the plan; deleting the Job deletes
them, and ``kubectl delete -f`` of the file deletes the rest.

A service account is named with its namespace, so all objects are in one: the one asked for, or ``default``.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.export.alone import FOLDER, JOB_FILE, config_name, fixed, job_file
from dlrover_nb.core.export.nodes import Options, fixed_plan
from dlrover_nb.core.export.provenance import Context, Provenance, context, notes_of
from dlrover_nb.core.manifests.objects import companions, master_job
from dlrover_nb.core.manifests.podspec import image_of
from dlrover_nb.core.structs.pods import PodJob

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import ResourcePlan

EXPORTED_MASTER = "dlrover_nb.core.backends.kubernetes.exported_master"
_FILE = "job-file"


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
    told = context("pods", job, plan, provenance, auto_scale=False)
    options = replace(options, namespace=options.namespace or "default")
    bare = _bare(told, options)
    assert options.namespace is not None
    beside = [_without_values(doc) for doc in companions(bare, code={}, namespace=options.namespace)]
    return (job_file(told, options), *beside, _running(bare, told, options.namespace))


def _bare(told: Context, options: Options) -> PodJob:
    """Return the configuration of the objects, without any key."""
    spec = fixed(told.job, told.plan)
    spec = replace(spec, kubernetes=replace(spec.kubernetes, image=image_of(spec, options.image)))
    run = hashlib.sha256(to_json(spec)).hexdigest()[:8]
    return PodJob(spec, None, run, public_key="", secret_key="", access="")


def _without_values(document: dict[str, Any]) -> dict[str, object]:
    return {key: value for key, value in document.items() if key not in {"data", "stringData"}}


def _running(bare: PodJob, told: Context, namespace: str) -> dict[str, object]:
    """Return the Job, not paused, whose pod reads the job file."""
    document = master_job(bare, namespace=namespace)
    spec = document["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    mounts = [*container["volumeMounts"], {"name": _FILE, "mountPath": FOLDER, "readOnly": True}]
    container = {
        **container,
        "command": [*container["command"][:-1], EXPORTED_MASTER],
        "volumeMounts": mounts,
    }
    file = {
        "name": _FILE,
        "configMap": {"name": config_name(bare.spec.name), "items": [{"key": JOB_FILE, "path": JOB_FILE}]},
    }
    pod = {**pod, "containers": [container], "volumes": [*pod["volumes"], file]}
    template = {**spec["template"], "spec": pod}
    notes = {**document["metadata"].get("annotations", {}), **notes_of(told)}
    return {
        **document,
        "metadata": {**document["metadata"], "annotations": notes},
        "spec": {**spec, "parallelism": 1, "template": template},
    }
