"""Rendezvous of a job's programs: the variables that TensorFlow and torch read.

Both get addresses, never names: not every cluster resolves names of pods, and a pod's own address is known as
soon as it runs. So variables are made once all members have an address, and again when one is replaced.

Where several programs share an address, as on one machine, it is given with a port of the program's own, and
no program takes the job's.

TensorFlow reads ``TF_CONFIG``: the addresses of all tasks by kind, and the own task. It has the kinds
``chief``, ``worker`` and ``ps``; an ``evaluator`` has a task, and is no member of the training cluster.

Roles beside the world (`ExternalSpec.beside`) get ``DLROVER_NB_ROLES``, in the form of ``TF_CONFIG``: the
addresses of the world and of their own role, and their own task. None of the world knows them, so that they
come and go without it.

Torch programs are started by torchrun, which takes its options from ``PET_*`` variables, or read
``MASTER_ADDR``, ``RANK`` and ``WORLD_SIZE`` themselves: both are set. torchrun's agents meet at a store.
If one worker held it, as torchrun does by default, the loss of that worker would end the others. So the store
is a separate program, in place of the parameter server that a torch job does not have; it outlives any worker
and keeps running, with variables that never change.

Elastic programs (`Framework.DDP`) ask their master for their peers: their variables never change either.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.external import CHIEF, EVALUATOR, ExternalSpec, Framework
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


NAMES = (
    "TF_CONFIG",
    "DLROVER_NB_ROLES",
    "DLROVER_NB_STORE_PORT",
    "DLROVER_NB_ELASTIC",
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_RDZV_BACKEND",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
    "PET_RDZV_CONF",
    "PET_LOCAL_ADDR",
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "NODE_RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
)  # all variables that a member may be told

_WITH_PORT = re.compile(r"(\[.*\]|[^:]+):(\d+)")


@dataclass(frozen=True, slots=True)
class Member:
    """One program of a job, in the order of its role's indices."""

    node: str
    role: Role
    address: str  # of its pod; or ``HOST:PORT``


def environment(spec: ExternalSpec, members: Sequence[Member], node: str, *, rendezvous_id: str) -> str:
    """Return the variables of one member, a line ``NAME=VALUE`` each.

    Parameters
    ----------
    members
        All members; of each role oldest first. For a role beside the world those of its own role too.
    node
        The member whose variables are returned.
    rendezvous_id
        Unique name of this rendezvous.
    """
    own = next(member for member in members if member.node == node)
    if own.role not in spec.world:
        return _lines(_beside(spec, members, own))
    if spec.framework is Framework.TENSORFLOW:
        return _lines({"TF_CONFIG": json.dumps(_tf_config(spec, members, own), separators=(",", ":"))})
    if own.role is Role.PS:
        return _lines({"DLROVER_NB_STORE_PORT": str(_parts(own.address, spec.port)[1])})
    if spec.framework is Framework.DDP:
        return _lines({"DLROVER_NB_ELASTIC": "1"})
    return _lines(_torch(spec, members, own, rendezvous_id))


def _tf_config(spec: ExternalSpec, members: Sequence[Member], own: Member) -> dict[str, object]:
    tasks = _tasks(spec, members)
    kind = next(kind for kind, tasked in tasks.items() if own in tasked)
    if spec.dynamic_workers:
        return _sparse(spec, tasks, kind, own)
    return {"cluster": _addresses(spec, tasks), "task": {"type": kind, "index": tasks[kind].index(own)}}


def _sparse(
    spec: ExternalSpec, tasks: Mapping[str, Sequence[Member]], kind: str, own: Member
) -> dict[str, object]:
    """Return a cluster without the other workers, as Kubeflow's ``enableDynamicWorker`` has it.

    A worker's index is the number in its name: it must not change when another worker leaves.
    """
    without_workers = {each: tasked for each, tasked in tasks.items() if each != str(Role.WORKER)}
    cluster: dict[str, object] = dict(_addresses(spec, without_workers))
    if kind != str(Role.WORKER):
        return {"cluster": cluster, "task": {"type": kind, "index": tasks[kind].index(own)}}
    index = int(own.node.rpartition("-")[2])
    cluster[kind] = {str(index): endpoint(own.address, spec.port)}
    return {"cluster": cluster, "task": {"type": kind, "index": index}}


def _tasks(spec: ExternalSpec, members: Sequence[Member]) -> dict[str, Sequence[Member]]:
    """Return the members of the world by TensorFlow's kinds."""
    workers, ps, n_chief = _of(members, Role.WORKER), _of(members, Role.PS), int(spec.first_worker_leads)
    chiefs = [*_of(members, CHIEF), *workers[:n_chief]]
    return {"chief": chiefs, "worker": workers[n_chief:], "ps": ps}


def _addresses(spec: ExternalSpec, tasks: Mapping[str, Sequence[Member]]) -> dict[str, list[str]]:
    return {
        kind: [endpoint(each.address, spec.port) for each in tasked]
        for kind, tasked in tasks.items()
        if tasked
    }


def _beside(spec: ExternalSpec, members: Sequence[Member], own: Member) -> dict[str, str]:
    is_tf, alike = spec.framework is Framework.TENSORFLOW, _of(members, own.role)
    by_role = {str(role): _of(members, role) for role in spec.world}
    world = _addresses(spec, _tasks(spec, members) if is_tf else by_role)
    task = {"type": str(own.role), "index": alike.index(own)}
    variables = {"DLROVER_NB_ROLES": {"cluster": world | _addresses(spec, {own.role: alike}), "task": task}}
    if is_tf and own.role is EVALUATOR:
        variables["TF_CONFIG"] = {"cluster": world, "task": task}
    return {name: json.dumps(text, separators=(",", ":")) for name, text in variables.items()}


def _torch(spec: ExternalSpec, members: Sequence[Member], own: Member, rendezvous_id: str) -> dict[str, str]:
    workers = [*_of(members, CHIEF), *_of(members, Role.WORKER)]
    store = _of(members, Role.PS)[0]
    rank, n_worker = str(workers.index(own)), str(len(workers))
    first, port = _parts(workers[0].address, spec.port + 1)
    return {
        "PET_NNODES": n_worker,
        "PET_NPROC_PER_NODE": str(spec.n_process),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": endpoint(store.address, spec.port),
        "PET_RDZV_ID": rendezvous_id,
        "PET_RDZV_CONF": "is_host=false",
        "PET_LOCAL_ADDR": _parts(own.address, 0)[0],
        "MASTER_ADDR": first,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": n_worker,
        "RANK": rank,
        "NODE_RANK": rank,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


def _of(members: Sequence[Member], role: Role) -> list[Member]:
    return [member for member in members if member.role is role]


def endpoint(address: str, port: int) -> str:
    """Return ``HOST:PORT`` of a program: with the port of its address, or else the job's."""
    host, port = _parts(address, port)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parts(address: str, port: int) -> tuple[str, int]:
    """Return the host of an address, and its port, or else the one given; IPv6 has colons of its own."""
    if (match := _WITH_PORT.fullmatch(address)) is None:
        return address, port
    return match[1].strip("[]"), int(match[2])


def _lines(variables: Mapping[str, str]) -> str:
    assert variables.keys() <= set(NAMES)
    return "\n".join(f"{name}={value}" for name, value in variables.items())
