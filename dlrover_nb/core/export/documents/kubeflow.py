"""A job with a plan as TFJob or PyTorchJob, for clusters that run Kubeflow's training operator.

An external job's roles become replicas that run its image and command; the operator sets the peers in
``TF_CONFIG``, or in ``MASTER_ADDR`` and similar variables, just as our own master does. The first worker of a
TensorFlow job is the Chief where the job requests it and has no role of that name; an evaluator is a replica
too. PyTorch has no parameter servers: the chief, or else the first worker, is
the Master, the rendezvous of the others, so the plan's PS are in the annotation alone. A replica that fails
by itself (exit codes 1 to 127) stays ended; one that was killed (128 and more: out of memory, its machine
gone) is restarted.

A job of our own is one replica that runs all of it (`alone`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.alone import job_file, whole
from dlrover_nb.core.export.nodes import (
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
    from collections.abc import Mapping

    from dlrover_nb.core.structs.job.external import ExternalSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

API_VERSION = "kubeflow.org/v1"


@dataclass(frozen=True, slots=True)
class _Kind:
    """The operator's names for one kind of job."""

    export: str
    resource: str
    framework: Framework
    replicas: str
    container: str
    port: str
    first: str  # the single replica whose end is the job's end
    instead: str  # kind of export for the other framework
    roles: tuple[Role, ...]  # beside worker and PS


_TF = _Kind(
    "tfjob",
    "TFJob",
    Framework.TENSORFLOW,
    "tfReplicaSpecs",
    "tensorflow",
    "tfjob-port",
    "Chief",
    "pytorchjob",
    (CHIEF, EVALUATOR),
)
_TORCH = _Kind(
    "pytorchjob",
    "PyTorchJob",
    Framework.TORCH,
    "pytorchReplicaSpecs",
    "pytorch",
    "pytorchjob-port",
    "Master",
    "tfjob",
    (CHIEF,),
)


def tfjob(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the TFJob that runs `job` on `plan`, after the ConfigMap that it needs.

    Raises
    ------
    InvalidValueError
        When its programs do not read ``TF_CONFIG``, auto-scaling is set, or its code is in a notebook.
    """
    return _exported(_TF, job, plan, provenance, options)


def pytorchjob(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the PyTorchJob that runs `job` on `plan`; as `tfjob`, for programs that torch starts."""
    return _exported(_TORCH, job, plan, provenance, options)


def _exported(
    kind: _Kind, job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    fixed_plan(f"a {kind.resource}", options)
    context = context_of(
        kind.export, job, plan, provenance, auto_scale=False, with_secrets=options.with_secrets
    )
    external = context.job.foreign
    if external is None:
        pod = whole(context, options, name=kind.container)
        return job_file(context, options), _document(
            kind, context, options, {kind.first: _replica(1, pod_template(context.job, pod), "Never")}
        )
    meets_without_us(f"a {kind.resource}", context.job, is_placed=True)
    no_roles(f"a {kind.resource}", context.job, kind.roles)
    if external.framework is not kind.framework:
        raise InvalidValueError(
            f"the programs of job {job.name} are started by {external.framework}, which a {kind.resource} "
            f"does not do; export a {kind.instead}"
        )
    replicas = {
        name: _replica(
            count, placed_template(context, role, _program_pod(kind, context, role, options)), "ExitCode"
        )
        for name, (role, count) in _replicas(kind, external, plan).items()
    }
    return (_document(kind, context, options, replicas),)


def _replicas(kind: _Kind, external: ExternalSpec, plan: ResourcePlan) -> dict[str, tuple[Role, int]]:
    """Return role and count by the name of the replica; none that is empty."""
    chief, evaluator = external.fixed(CHIEF), external.fixed(EVALUATOR)
    leads = chief is None and (kind is _TORCH or external.chief)
    replicas = {
        "PS": (Role.PS, plan.ps.count if kind is _TF else 0),
        kind.first: (Role.WORKER if leads else CHIEF, int(leads or chief is not None)),
        "Worker": (Role.WORKER, plan.worker.count - leads),
        "Evaluator": (EVALUATOR, int(evaluator is not None)),
    }
    return {name: replica for name, replica in replicas.items() if replica[1]}


def _program_pod(kind: _Kind, context: Context, role: Role, options: Options) -> dict[str, object]:
    assert context.job.foreign is not None
    main = program(context, role, options, name=kind.container)
    ports = [{"name": kind.port, "containerPort": context.job.foreign.port}]
    return {
        key: value
        for key, value in pod_spec(context.job, {**main, "ports": ports}).items()
        if key != "restartPolicy"  # the replica's counts
    }


def _replica(count: int, template: Mapping[str, object], restart: str) -> dict[str, object]:
    return {"replicas": count, "restartPolicy": restart, "template": template}


def _document(
    kind: _Kind, context: Context, options: Options, replicas: dict[str, dict[str, object]]
) -> dict[str, object]:
    policy = {"cleanPodPolicy": "Running", **ttl(context.job.kubernetes)}
    spec: dict[str, object] = {"runPolicy": policy, kind.replicas: replicas}
    if kind.first not in replicas:
        spec["successPolicy"] = "AllWorkers"  # by default the first worker's end would end the others
    external = context.job.foreign
    if kind is _TORCH and external is not None:
        spec["nprocPerNode"] = str(external.n_process)
    if external is not None and external.dynamic_workers:
        spec["enableDynamicWorker"] = True
    return {
        "apiVersion": API_VERSION,
        "kind": kind.resource,
        "metadata": top(context, options),
        "spec": spec,
    }
