"""What every export says of a node: its container, and the options that the plan does not settle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.export.quantities import resources_of
from dlrover_nb.core.structs.job import JobSpec

if TYPE_CHECKING:
    from dlrover_nb.core.export.provenance import Context
    from dlrover_nb.core.structs.resources import Role

DEFAULT_IMAGE = "dlrover-nb:0.1.0"
NODE_CONFIG = "/etc/dlrover-nb/node.json"
JOB_VARIABLE, ROLE_VARIABLE, NODE_VARIABLE = "DLROVER_NB_JOB", "DLROVER_NB_ROLE", "DLROVER_NB_NODE"


@dataclass(frozen=True, slots=True)
class Options:
    """What the plan does not say.

    Parameters
    ----------
    image
        Image with this package and its `torch` extra. The default is a name, no published image: build
        one under it, or give your own.
    command
        Program of every node. It reads a `NodeConfig` from `NODE_CONFIG`, a file that the cluster has to
        provide: it names the job's master and holds its keys, which no export may contain. The role and the
        job, to make it from, stand in ``DLROVER_NB_ROLE`` and ``DLROVER_NB_JOB`` (JSON).
    namespace
        Where it goes; None leaves it to ``kubectl``.
    auto_scale
        Whether DLRover may plan again from there. Not by default: what the user accepted is what runs.
    """

    image: str = DEFAULT_IMAGE
    command: tuple[str, ...] = ("python", "-m", "dlrover_nb.core.runtime.node", NODE_CONFIG)
    namespace: str | None = None
    auto_scale: bool = False


def container(told: Context, role: Role, options: Options, *, node: str = "") -> dict[str, object]:
    """Return the container of a node; requests equal limits (the Guaranteed class).

    The throughput was predicted for just these cores. ``$(`` in the job is doubled, as Kubernetes would
    expand it.
    """
    running = replace(told.job, plan=told.plan)
    quantities = resources_of(told.plan.role(role))
    values = {
        ROLE_VARIABLE: str(role),
        NODE_VARIABLE: node,
        JOB_VARIABLE: to_json(running).decode().replace("$(", "$$("),
    }
    return {
        "name": "main",  # DLRover's operator looks for this name
        "image": options.image,
        "command": list(options.command),
        "env": [{"name": name, "value": value} for name, value in values.items() if value],
        "resources": {"requests": quantities, "limits": dict(quantities)},
    }


def job_in(value: str) -> JobSpec:
    """Return the job that a container's variable holds; `WireError` when it is none."""
    return from_json(value.replace("$$(", "$("), JobSpec)


def head(name: str, options: Options) -> dict[str, object]:
    """Return the metadata that every resource begins with."""
    return {"name": name, **({"namespace": options.namespace} if options.namespace else {})}
