"""A whole job in one pod, for systems that start pods without support for our runtime.

Our nodes find each other through their master and its keys, not through ``TF_CONFIG`` or ``MASTER_ADDR``,
and no export holds keys. So a TFJob, PyTorchJob or JobSet of our own job has one replica, in which the job
runs as local processes (`backends.local`): the command line submits its job file, makes the keys, and waits
for the end; a killed master is started again there too. A Ray in the pod was rejected: the image of a
job's pods has none, and it took 2 GiB and most of a core beside the nodes. The pod requests all of the plan
together, so a queue admits or refuses the job as a whole; it needs a machine of that size. To run on several
machines, export to `pods`.

The job file is in a ConfigMap beside it. It is the same that ``submit --file`` accepts, and edits of it take
effect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.nodes import Options, guaranteed, head, labels_of
from dlrover_nb.core.export.provenance import notes_of
from dlrover_nb.core.jobfile import dump_job
from dlrover_nb.core.manifests.podspec import container_of, image_of, pod_spec
from dlrover_nb.core.structs.job.kubernetes import STATE, gpu_resource
from dlrover_nb.core.structs.job.spec_choices import Mode

if TYPE_CHECKING:
    from dlrover_nb.core.export.provenance import Context
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

PICKLED = "pickle:"  # code in the run folder of its job
FOLDER, JOB_FILE = "/dlrover-nb/file", "job.yaml"
CLIENT_MIB, CLIENT_CPU = 512, 0.1  # of the command line, beside the nodes' and the master's resources
_PLACES: tuple[dict[str, object], ...] = (
    {"name": "job", "mountPath": FOLDER, "readOnly": True},
    {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the pod alone
    {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - as above
)


def job_file(context: Context, options: Options) -> dict[str, object]:
    """Return the ConfigMap with the job on its plan, as a job file.

    Raises
    ------
    InvalidValueError
        When the job's code is in a notebook: a file cannot hold it.
    """
    for what, place in (("model", context.job.model.code), ("data", context.job.data.path)):
        if place.startswith(PICKLED):
            raise InvalidValueError(
                f"the user's own {what} of job {context.job.name} is only in the notebook that made it; put "
                f"it into a module of the image, name it as module:name, and export again"
            )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **head(config_name(context.job.name), options),
            "labels": labels_of(context.job),
            "annotations": notes_of(context),
        },
        "data": {JOB_FILE: dump_job(fixed(context.job, context.plan, is_free=context.auto_scale))},
    }


def fixed(job: JobSpec, plan: ResourcePlan, *, is_free: bool = False) -> JobSpec:
    """Return the job on `plan`, not in auto mode, so that it stays on it; `is_free`: in auto mode."""
    mode = Mode.AUTO if is_free else Mode.SUGGEST if job.mode is Mode.AUTO else job.mode
    return replace(job, plan=plan, warm_start=False, mode=mode)


def config_name(job: str) -> str:
    """Return the name of the ConfigMap with a job's file."""
    return f"{job}-job"


def _command(job: JobSpec) -> list[str]:
    """Return the words that submit the job file and wait for the job's end."""
    python = job.kubernetes.python or "python"
    return [python, "-m", "dlrover_nb.cli", "submit", "--file", f"{FOLDER}/{JOB_FILE}", "--wait"]


def whole(context: Context, options: Options, *, name: str) -> dict[str, object]:
    """Return the spec of the pod that runs all of a job; `name` is the container's."""
    fields: dict[str, object] = {
        "name": name,
        "image": image_of(context.job, options.image),
        "command": _command(context.job),
        "env": _environment(context.job),
        "resources": guaranteed(need(context.plan, context.job)),
    }
    main = container_of(context.job, fields, mounts=_PLACES)
    return pod_spec(context.job, main, beside=_volumes(context.job))


def _environment(job: JobSpec) -> list[dict[str, object]]:
    """Return the variables of a user without a name: its home, and where its jobs run."""
    state = {"XDG_STATE_HOME": STATE} if job.kubernetes.keeps_state else {}
    variables = {"HOME": "/tmp", "USER": "dlrover-nb", "DLROVER_NB_ADDRESS": "local", **state}  # noqa: S108
    return [{"name": name, "value": value} for name, value in variables.items()]


def _volumes(job: JobSpec) -> list[dict[str, object]]:
    """Return the volumes that a submitter mounts."""
    return [
        {"name": "job", "configMap": {"name": config_name(job.name)}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]


def need(plan: ResourcePlan, job: JobSpec) -> dict[str, str]:
    """Return what a pod needs to hold a whole job, as quantities."""
    cpu = plan.worker.total_cpu + plan.ps.total_cpu + job.kubernetes.master_cpu + CLIENT_CPU
    nodes_mib = plan.worker.total_memory_mib + plan.ps.total_memory_mib
    memory_mib = nodes_mib + job.kubernetes.master_memory_mib + CLIENT_MIB
    amounts = {"cpu": f"{round(cpu * 1000)}m", "memory": f"{memory_mib}Mi"}
    return {**amounts, **gpu_resource(plan.total_gpu)}
