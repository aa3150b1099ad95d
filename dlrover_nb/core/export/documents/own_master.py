"""Parts of an export that starts the master of a job by itself: `pods`, and an ElasticJob of our own job.

The objects are those of a submission (`core.manifests.objects`), but no export holds a key. So the Secret is
empty, the job is in a ConfigMap as a job file, and the master, which may change its own Secret, makes the
keys when it first begins (`backends.kubernetes.exported_master`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.export.alone import FOLDER, JOB_FILE, config_name, fixed
from dlrover_nb.core.manifests.kinds import JOB
from dlrover_nb.core.manifests.objects import companions
from dlrover_nb.core.manifests.podspec import image_of
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from dlrover_nb.core.export.nodes import Options
    from dlrover_nb.core.export.provenance import Context

EXPORTED_MASTER = "dlrover_nb.core.backends.kubernetes.exported_master"
_FILE = "job-file"


def keyless(context: Context, options: Options, *, owner: str = JOB.name) -> PodJob:
    """Return the configuration of the objects, without any key; `owner` is the kind that owns them."""
    spec = fixed(context.job, context.plan)
    spec = replace(spec, kubernetes=replace(spec.kubernetes, image=image_of(spec, options.image)))
    return PodJob(spec, None, run="", public_key="", secret_key="", access="", owner=owner)


def beside(job: PodJob, namespace: str) -> tuple[dict[str, object], ...]:
    """Return the objects that the master needs beside its job file, without values."""
    return tuple(_without_values(each) for each in companions(job, code={}, namespace=namespace))


def reading_file(pod: dict[str, Any], job: str, *words: str) -> dict[str, Any]:
    """Return the spec of a master's pod that reads the job file; `words` follow its program's name."""
    (container,) = pod["containers"]
    container = {
        **container,
        "command": [*container["command"][:-1], EXPORTED_MASTER, *words],
        "volumeMounts": [
            *container["volumeMounts"],
            {"name": _FILE, "mountPath": FOLDER, "readOnly": True},
        ],
    }
    items = [{"key": JOB_FILE, "path": JOB_FILE}]
    file = {"name": _FILE, "configMap": {"name": config_name(job), "items": items}}
    return {**pod, "containers": [container], "volumes": [*pod["volumes"], file]}


def _without_values(document: dict[str, Any]) -> dict[str, object]:
    return {key: value for key, value in document.items() if key not in {"data", "stringData"}}
