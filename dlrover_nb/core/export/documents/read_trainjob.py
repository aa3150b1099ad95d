"""Reads TrainJobs: their replicas, and of one that others wrote the external job that it is.

A TrainJob says a part, and its runtime the rest. The runtime is read where the file has it, and the TrainJob
wins, as in the operator. A runtime alone is the administrators', for any job. Only torch runtimes start
programs as a job of ours does (one command per node, its peers by torchrun's variables), so that jobs of
others (MPI, JAX) give their plan alone. What a job of ours has no place for is reported, by its key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.documents import jobset
from dlrover_nb.core.export.documents.trainjob import CLUSTER_RUNTIME, NODE, PORT, RESERVED, STEP, TRAINER
from dlrover_nb.core.export.groups import child, group, items
from dlrover_nb.core.export.quantities import amount
from dlrover_nb.core.manifests.kinds import TRAIN_JOB, TRAINING_RUNTIME
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import DEFAULT_PLAN, JobSpec
from dlrover_nb.core.structs.job.kubernetes import GPU_RESOURCE, KubernetesSpec
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.core.export.groups import Group, Replicas

_RUNTIMES = (TRAINING_RUNTIME.name, CLUSTER_RUNTIME)
_RUNTIME = "runtime"  # key of a TrainJob under which its runtime is put; the API has none of that name
_TAKEN = {"runtimeRef", "trainer"}  # keys of a spec that are read
_OF_TRAINER = {"image", "command", "args", "env", "numNodes", "numProcPerNode", "resourcesPerNode"}
_SET_ANEW = {*RESERVED, "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}  # variables of the rendezvous
_VARIABLE = re.compile(r"(?<!\$)\$\([A-Za-z_]\w*\)")  # replaced by Kubernetes in commands


def joined(documents: Sequence[Group]) -> list[Group]:
    """Return documents with the runtime of each TrainJob in the TrainJob itself, where there is one."""
    runtimes = {_key(each): each for each in documents if each.get("kind") in _RUNTIMES}
    merged: list[Group] = []
    used: set[tuple[str, str]] = set()
    for document in documents:
        if document.get("kind") != TRAIN_JOB.name:
            merged.append(document)
            continue
        ref = child(child(document, "spec"), "runtimeRef")
        key = str(ref.get("kind") or CLUSTER_RUNTIME), str(ref.get("name"))
        used.add(key)
        merged.append({**document, _RUNTIME: runtimes.get(key)})
    return [each for each in merged if each.get("kind") not in _RUNTIMES or _key(each) not in used]


def _key(document: Group) -> tuple[str, str]:
    return str(document["kind"]), str(child(document, "metadata").get("name"))


def replicas(document: Group) -> Iterator[Replicas]:
    """Yield the groups of a TrainJob's pods; the trainer's are workers."""
    trainer, runtime = child(child(document, "spec"), "trainer"), child(document, _RUNTIME)
    if not runtime:
        own = {"containers": [{"resources": child(trainer, "resourcesPerNode")}]}
        yield str(Role.WORKER), {"replicas": trainer.get("numNodes")}, {"spec": own}
        return
    for (name, replica, template), is_trainer in zip(_in_template(runtime), _marks(runtime), strict=True):
        if not is_trainer:
            yield name, replica, template
            continue
        policy = child(child(runtime, "spec"), "mlPolicy")
        n_node = policy.get("numNodes", 1) if policy else replica["replicas"]
        main = {**_node(template), **_resources(trainer)}
        yield (
            str(Role.WORKER),
            {"replicas": trainer.get("numNodes", n_node)},
            {"spec": {"containers": [main]}},
        )


def _in_template(runtime: Group) -> Iterator[Replicas]:
    return jobset.replicas(child(child(runtime, "spec"), "template"))


def _marks(runtime: Group) -> list[bool]:
    """Return for each replicated Job of a runtime whether it is what the trainer is about."""
    jobs = items(child(child(child(runtime, "spec"), "template"), "spec"), "replicatedJobs")
    heads = [child(child(group(job, "replicated job"), "template"), "metadata") for job in jobs]
    return [child(each, "labels").get(STEP) == TRAINER for each in heads]


def _resources(trainer: Group) -> Group:
    resources = child(trainer, "resourcesPerNode")
    return {"resources": resources} if resources else {}


def _node(template: Group) -> Group:
    """Return the container of a pod that a trainer sets."""
    containers = [group(each, "container") for each in items(child(template, "spec"), "containers")]
    return next((each for each in containers if each.get("name") == NODE), {})


def external_job(document: Group, unknown: list[str]) -> JobSpec | None:
    """Return the job that a TrainJob of others is, on our default plan; None where it cannot be one of ours.

    Parameters
    ----------
    unknown
        What could not be taken over is added to it.
    """
    spec, runtime = child(document, "spec"), child(document, _RUNTIME)
    name = str(child(spec, "runtimeRef").get("name"))
    if not _is_torch(name, runtime):
        unknown.append(
            f"how its programs start: we do not know runtime {name} as one of torch"
            + ("" if runtime else "; put the runtime into the file if it is")
        )
        return None
    marks = _marks(runtime)
    main = next(
        (_node(each[2]) for each, mark in zip(_in_template(runtime), marks, strict=True) if mark),
        dict[Any, Any](),
    )
    trainer = child(spec, "trainer")
    program = {**main, **{key: value for key, value in trainer.items() if value is not None}}
    try:
        job = _job(str(child(document, "metadata").get("name") or ""), program, runtime, unknown)
    except InvalidValueError as error:
        unknown.append(f"the external job: {error}")
        return None
    unknown += _left(spec, trainer, program, name, is_there=bool(runtime))
    return job


def _is_torch(name: str, runtime: Group) -> bool:
    """Whether a runtime starts programs as torch does: by its policy, or without the runtime by its name."""
    return "torch" in (child(child(runtime, "spec"), "mlPolicy") if runtime else name)


def _job(name: str, program: Group, runtime: Group, unknown: list[str]) -> JobSpec:
    if not items(program, "command"):
        raise InvalidValueError("its command is that of the image; set spec.trainer.command")
    command = [str(word) for key in ("command", "args") for word in items(program, key)]
    if references := sorted({each for word in command for each in _VARIABLE.findall(word)}):
        unknown.append(f"{and_list(references)} in the command: variables are not put into commands here")
    worker = ExternalRole(
        command=tuple(word.replace("$$(", "$(") for word in command),
        image=str(program.get("image") or ""),
        env=tuple(_env(program, unknown)),
    )
    unknown.append(
        "n_sample: a TrainJob does not say how many samples it trains; 1 is taken, so no progress is known"
    )
    external = ExternalSpec(
        worker, 1, framework=Framework.TORCH, n_process=_n_process(program, runtime, unknown), port=PORT
    )
    plan = DEFAULT_PLAN.with_gpus((_n_gpu(program), 0))
    return JobSpec(name, foreign=external, plan=plan, kubernetes=KubernetesSpec())


def _n_gpu(program: Group) -> int:
    return int(amount(_of_node(program).get(GPU_RESOURCE, 0), GPU_RESOURCE))


def _of_node(program: Group) -> Group:
    """Return the resources of each node."""
    resources = child(program, "resourcesPerNode") or child(program, "resources")
    return {**child(resources, "requests"), **child(resources, "limits")}


def _env(program: Group, unknown: list[str]) -> Iterator[str]:
    """Yield the variables with a value, but for those that our master sets."""
    for each in items(program, "env"):
        variable = group(each, "env")
        name = str(variable.get("name"))
        if name in _SET_ANEW:
            continue
        if "valueFrom" in variable:
            unknown.append(f"variable {name}: its value is elsewhere; kubernetes.env_secrets names Secrets")
        else:
            yield f"{name}={variable.get('value', '')}"


def _n_process(program: Group, runtime: Group, unknown: list[str]) -> int:
    policy = child(child(child(runtime, "spec"), "mlPolicy"), "torch")
    count = str(program.get("numProcPerNode", policy.get("numProcPerNode", "")))
    if count.isdecimal():
        return int(count)
    unknown.append(f"numProcPerNode: {count or 'not in the document'}; 1 process on each node is taken")
    return 1


def _left(spec: Group, trainer: Group, program: Group, runtime: str, *, is_there: bool) -> Iterator[str]:
    """Yield what is not taken over."""
    yield from (f"spec.{key}: not taken over" for key in spec if key not in _TAKEN and spec[key])
    yield from (f"spec.trainer.{key}: not taken over" for key in trainer if key not in _OF_TRAINER)
    yield from (
        f"{key} of each node: not a part of a plan"
        for key in _of_node(program)
        if key not in {"cpu", "memory", GPU_RESOURCE}
    )
    if is_there:
        yield f"of runtime {runtime} image, command, variables and resources are taken over, nothing else"
    else:
        yield f"what runtime {runtime} gives its pods beside that: not in the document"
