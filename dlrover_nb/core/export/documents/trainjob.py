"""A job with a plan as TrainJob, for clusters that run Kubeflow Trainer (the operator's second generation).

A TrainJob names a runtime, a template of pods that administrators keep, and says what is its own: image,
command, variables, nodes, and resources of each. Torch programs fit that: they run under the runtime
``torch-distributed``, which comes with the operator. It sets torchrun's variables; those that
``torch.distributed`` reads without torchrun are added here. Port and security settings are the runtime's.

What a TrainJob cannot say in every release (overrides of pods were renamed twice while the API stayed
``v1alpha1``) is in a TrainingRuntime of the job's own, beside it: volumes and other settings of pods, several
roles, and the pod of a job of ours (`alone`). That needs the right to create one, which the operator's role
for editors lacks; so torch jobs without such settings do without. Roles that read ``TF_CONFIG`` are the
JobSet of the same job (`jobset`), since the operator makes exactly the JobSet of a runtime's template, under
the TrainJob's name. Its counts stand in the template alone: a TrainJob that changed them would contradict
``TF_CONFIG``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.alone import job_file
from dlrover_nb.core.export.documents.jobset import (
    OWN_NUMBER,
    RESTARTS,
    check_name,
    programs_set,
    replicated,
    whole_set,
)
from dlrover_nb.core.export.nodes import (
    Options,
    fixed_plan,
    head,
    labels_of,
    meets_without_us,
    no_roles,
    program,
    top,
)
from dlrover_nb.core.export.provenance import Context, Provenance, context_of
from dlrover_nb.core.manifests.kinds import TRAIN_JOB, TRAINING_RUNTIME
from dlrover_nb.core.manifests.podspec import pod_spec, pod_template, ttl
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.external import ExternalSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

CLUSTER_RUNTIME = "ClusterTrainingRuntime"
TORCH_RUNTIME = "torch-distributed"
NODE = "node"  # the operator's name of the replicated Job and of the container that a TrainJob's trainer sets
STEP, TRAINER = "trainer.kubeflow.org/trainjob-ancestor-step", "trainer"  # label of that Job
PORT = 29500  # of the rendezvous, which the operator fixes
RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
_OF_TRAINER = {"command", "env", "resources"}  # fields of a container that a TrainJob's trainer says


def trainjob(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the TrainJob that runs `job` on `plan`, after the runtime and the ConfigMap that it needs.

    Raises
    ------
    InvalidValueError
        When auto-scaling is set, its programs need our master, its settings are such that the operator would
        refuse them, its name is too long, or its code is in a notebook.
    """
    fixed_plan("a TrainJob", options)
    context = context_of(
        "trainjob", job, plan, provenance, auto_scale=False, with_secrets=options.with_secrets
    )
    external = context.job.foreign
    is_set = external is not None and external.framework is Framework.TENSORFLOW
    meets_without_us("a TrainJob", context.job, is_placed=is_set)
    if external is None:
        spec = whole_set(context, options, name=NODE, main=NODE)
        runtime = _runtime(context, options, {"numNodes": 1}, _labelled(spec))
        return job_file(context, options), runtime, _document(context, options)
    if external.framework is Framework.TENSORFLOW:
        _check_priority(context.job)
        return _runtime(context, options, None, programs_set(context, options)), _document(context, options)
    no_roles("a TrainJob of torch programs", context.job)
    return _torch(context, options, external)


def _check_priority(job: JobSpec) -> None:
    if job.kubernetes.priority_class:
        raise InvalidValueError(
            f"a TrainJob of several roles cannot have a priority class, got {job.kubernetes.priority_class} "
            f"(kubernetes.priority_class of job {job.name}); export a tfjob or jobset"
        )


def _torch(context: Context, options: Options, external: ExternalSpec) -> tuple[dict[str, object], ...]:
    check_name(context.job.name, {NODE: context.plan.worker.count})
    trainer, template = _trainer(context, options, external), _torch_set(context, options)
    kubernetes = context.job.kubernetes
    plain = replace(context.job, kubernetes=KubernetesSpec(image=kubernetes.image, env=kubernetes.env))
    if template == _torch_set(replace(context, job=plain), options):
        return (_document(context, options, TORCH_RUNTIME, CLUSTER_RUNTIME, trainer),)
    policy: dict[str, object] = {
        "torch": {}
    }  # Trainer 2.2 took the processes out of it: the trainer says them
    return _runtime(context, options, policy, template), _document(context, options, trainer=trainer)


def _torch_set(context: Context, options: Options) -> dict[str, object]:
    """Return the template of a torch job: what a TrainJob's trainer does not say of its pods."""
    main = program(context, Role.WORKER, options, name=NODE)
    pod = pod_spec(context.job, {key: value for key, value in main.items() if key not in _OF_TRAINER})
    jobs = [replicated(NODE, context.plan.worker.count, pod_template(context.job, pod))]
    policy = {"failurePolicy": {"maxRestarts": RESTARTS}, **ttl(context.job.kubernetes)}
    return _labelled({**policy, "replicatedJobs": jobs})


def _trainer(context: Context, options: Options, external: ExternalSpec) -> dict[str, object]:
    main: dict[str, Any] = program(context, Role.WORKER, options, name=NODE)
    own = {variable["name"]: variable for variable in main.get("env", ())}
    if reserved := sorted(own.keys() & set(RESERVED)):
        raise InvalidValueError(
            f"a TrainJob sets {and_list(reserved)} itself, and its operator refuses them in a job's "
            f"variables; leave them out of job {context.job.name}"
        )
    env = {**_rendezvous(context, external), **own}
    return {
        "image": main["image"],
        "command": main["command"],
        "env": list(env.values()),
        "numNodes": context.plan.worker.count,
        "numProcPerNode": external.n_process,
        "resourcesPerNode": main["resources"],
    }


def _rendezvous(context: Context, external: ExternalSpec) -> dict[str, dict[str, object]]:
    """Return the variables of programs without torchrun; it sets them for its own processes."""
    name = context.job.name
    values: dict[str, dict[str, object]] = {
        "MASTER_ADDR": {"value": f"{name}-{NODE}-0-0.{name}"},
        "MASTER_PORT": {"value": str(PORT)},
    }
    if external.n_process == 1:
        values |= {"WORLD_SIZE": {"value": str(context.plan.worker.count)}, "RANK": {"valueFrom": OWN_NUMBER}}
    return {key: {"name": key, **value} for key, value in values.items()}


def _labelled(spec: dict[str, Any]) -> dict[str, object]:
    """Return a JobSet's spec whose one replicated Job is marked as what a TrainJob's trainer is about."""
    (job,) = spec["replicatedJobs"]
    template = {"metadata": {"labels": {STEP: TRAINER}}, **job["template"]}
    return {**spec, "replicatedJobs": [{**job, "template": template}]}


def _runtime(
    context: Context, options: Options, policy: dict[str, object] | None, template: dict[str, object]
) -> dict[str, object]:
    return {
        "apiVersion": TRAINING_RUNTIME.api_version,
        "kind": TRAINING_RUNTIME.name,
        "metadata": {**head(context.job.name, options), "labels": labels_of(context.job)},
        "spec": {**({"mlPolicy": policy} if policy else {}), "template": {"spec": template}},
    }


def _document(
    context: Context,
    options: Options,
    runtime: str = "",
    kind: str = TRAINING_RUNTIME.name,
    trainer: dict[str, object] | None = None,
) -> dict[str, object]:
    """Return the TrainJob; `runtime`: its name, by default that of the job."""
    ref = {"apiGroup": TRAIN_JOB.group, "kind": kind, "name": runtime or context.job.name}
    return {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": TRAIN_JOB.name,
        "metadata": top(context, options),
        "spec": {"runtimeRef": ref, **({"trainer": trainer} if trainer else {})},
    }
