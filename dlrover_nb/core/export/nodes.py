"""Parts of a node common to all exports: its container, and the options that the plan does not set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.provenance import PREFIX
from dlrover_nb.core.export.quantities import resources_of
from dlrover_nb.core.manifests.podspec import container_of, image_of, variables
from dlrover_nb.core.structs.job import JobSpec
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.export.provenance import Context

NODE_CONFIG = "/etc/dlrover-nb/node.json"
MAIN = "main"  # DLRover's operator looks for this name
JOB_LABEL, ROLE_LABEL = f"{PREFIX}job", f"{PREFIX}role"
JOB_VARIABLE, ROLE_VARIABLE, NODE_VARIABLE = "DLROVER_NB_JOB", "DLROVER_NB_ROLE", "DLROVER_NB_NODE"


@dataclass(frozen=True, slots=True)
class Options:
    """Settings that the plan does not contain.

    Parameters
    ----------
    image
        Image with this package and its extra `torch`; kinds that run the whole job by itself (`alone`,
        `rayjob`) need the extra `ray` too. Empty: the job's own (``kubernetes.image``), else a name that is
        no published image: build one under it. An external job's roles keep their own images.
    command
        Program of every node. It reads a `NodeConfig` from `NODE_CONFIG`, a file that the cluster has to
        provide: it names the job's master and holds its keys, which no export may contain. The role and the
        job, to make it from, are in ``DLROVER_NB_ROLE`` and ``DLROVER_NB_JOB`` (JSON).
    namespace
        Target namespace; None leaves it to ``kubectl``.
    auto_scale
        Whether DLRover may change the plan later. Not by default: the plan that the user accepted runs.
    """

    image: str = ""
    command: tuple[str, ...] = ("python", "-m", "dlrover_nb.core.runtime.node", NODE_CONFIG)
    namespace: str | None = None
    auto_scale: bool = False


def container(told: Context, role: Role, options: Options, *, node: str = "") -> dict[str, object]:
    """Return the container of a node; requests equal limits (the Guaranteed class).

    The throughput was predicted for exactly these cores. ``$(`` in the job is doubled, as Kubernetes would
    expand it. An external job's container runs its own program.
    """
    if told.job.foreign is not None:
        return program(told, role, options, name=MAIN)
    running = replace(told.job, plan=told.plan)
    values = {
        ROLE_VARIABLE: str(role),
        NODE_VARIABLE: node,
        JOB_VARIABLE: to_json(running).decode().replace("$(", "$$("),
    }
    return container_of(
        told.job,
        {
            "name": MAIN,
            "image": image_of(told.job, options.image),
            "command": list(options.command),
            "env": [{"name": name, "value": value} for name, value in values.items() if value],
            "resources": guaranteed(resources_of(told.plan.role(role))),
        },
    )


def program(told: Context, role: Role, options: Options, *, name: str) -> dict[str, object]:
    """Return the container of an external job's role, under the name that its operator expects."""
    external = told.job.foreign
    assert external is not None
    own = external.worker if role is Role.WORKER else external.ps
    return container_of(
        told.job,
        {
            "name": name,
            "image": own.image or image_of(told.job, options.image),
            "command": [word.replace("$(", "$$(") for word in own.command],
            "env": variables(own.env),
            "resources": guaranteed(resources_of(told.plan.role(role))),
        },
    )


def guaranteed(quantities: dict[str, str]) -> dict[str, object]:
    """Return resources whose requests equal their limits."""
    return {"requests": quantities, "limits": dict(quantities)}


def fixed_plan(what: str, options: Options) -> None:
    """Refuse auto-scaling by DLRover where it is not installed; `what` begins the sentence."""
    if options.auto_scale:
        raise InvalidValueError(
            f"{what} sets a plan and cannot let DLRover change it; export an elasticjob to let it plan"
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


def head(name: str, options: Options) -> dict[str, object]:
    """Return the metadata that every resource begins with."""
    return {"name": name, **({"namespace": options.namespace} if options.namespace else {})}
