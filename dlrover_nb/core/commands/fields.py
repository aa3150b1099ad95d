"""The types of what requests hold: bounds for decoders, and words for help texts, forms and agents."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import (
    CPU_STEP,
    MOST_CPU,
    MOST_GPU,
    MOST_MEMORY_MIB,
    MOST_NODES,
    ResourcePlan,
    RolePlan,
)

MOST_BATCH, MOST_FACTOR, MOST_TIMES = 10_000_000, 1000.0, 1024  # of a worker


def _says(metavar: str, text: str, *, flag: str = "", **bounds: Any) -> Meta:  # noqa: ANN401 - as `Meta` takes them
    """Return what a field means, its name in a help text, and its flag where that has another name."""
    return Meta(description=text, extra={"metavar": metavar, "flag": flag}, **bounds)


def _id(metavar: str, text: str) -> Meta:
    return _says(metavar, text, min_length=2, max_length=16, pattern="^[a-z][0-9]{1,14}$")


Why = Annotated[str, Meta(max_length=1000, description="The reason, for the audit.")]
AnsweredId = Annotated[str, _id("ID", "Id of the proposal or action, such as p3 or m1.")]
ProposalId = Annotated[str, _id("PROPOSAL", "Id of the proposal, such as p3.")]
DecisionId = Annotated[str, _id("DECISION", "Id of the latest decision that you know, such as d3.")]
ModeName = Annotated[Mode, _says("MODE", "Manual, suggest or auto.")]
Money = Annotated[float, _says("MONEY|off", "The most that the job may spend, with what it has.", gt=0)]
Cancels = Annotated[
    bool, _says("", "Only cancel it while it is being applied; leave it once it is in place.")
]
Clear = Annotated[bool, _says("", "Remove the existing pins first.")]

Count = Annotated[int, Meta(ge=1, le=MOST_NODES)]
Cpu = Annotated[float, Meta(ge=CPU_STEP, le=MOST_CPU, description="Cores per node.")]
MemoryMib = Annotated[int, Meta(ge=64, le=MOST_MEMORY_MIB, description="MiB per node.")]
Gpu = Annotated[int, Meta(ge=0, le=MOST_GPU, description="GPUs per node: the job's own, or 0 to leave them.")]
Workers = Annotated[Count, _says("N", "Number of workers.")]
Ps = Annotated[Count, _says("N", "Number of parameter servers.")]
WorkerCpu = Annotated[Cpu, _says("CORES", "Cores of each worker.")]
PsCpu = Annotated[Cpu, _says("CORES", "Cores of each parameter server.")]
WorkerMemory = Annotated[MemoryMib, _says("MIB", "Memory of each worker.", flag="worker-memory")]
PsMemory = Annotated[MemoryMib, _says("MIB", "Memory of each parameter server.", flag="ps-memory")]

NodeName = Annotated[str, Meta(min_length=1, max_length=128)]
Restarted = Annotated[NodeName, _says("NODE", "Start another node beside this one, which then leaves.")]
Relieved = Annotated[NodeName, _says("PS", "Move parameters of a parameter server to the others.")]
Backup = Annotated[int, _says("N", "Go on without the N slowest workers of each step.", ge=0, le=MOST_NODES)]
Batches = Annotated[
    dict[NodeName, Annotated[int, Meta(ge=1, le=MOST_BATCH)]],
    Meta(min_length=1, max_length=MOST_NODES),
    _says("WORKER=N,...", "Samples of one mini-batch of each worker, such as worker-0=256,worker-1=128."),
]
Accumulated = Annotated[
    dict[NodeName, Annotated[int, Meta(ge=1, le=MOST_TIMES)]],
    Meta(min_length=1, max_length=MOST_NODES),
    _says(
        "WORKER=N,...",
        "With batch sizes: how many mini-batches workers compute for one update, such as worker-0=3.",
    ),
]
Rates = Annotated[
    dict[NodeName, Annotated[float, Meta(gt=0, le=MOST_FACTOR)]],
    Meta(min_length=1, max_length=MOST_NODES),
    _says("WORKER=FACTOR,...", "Multiply learning rates of workers, such as worker-0=0.5."),
]
OneCores = Annotated[
    dict[NodeName, Cpu],
    Meta(min_length=1, max_length=1),
    _says("NODE=CORES", "Let one node use other cores than the plan says, such as ps-0=2."),
]
OneMemory = Annotated[
    dict[NodeName, MemoryMib],
    Meta(min_length=1, max_length=1),
    _says("NODE=MIB", "Let one node use other memory than the plan says, such as ps-0=4096."),
]
Shard = Annotated[int, _says("SHARD", "Number of a shard in quarantine.", ge=0)]


class RoleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes of a role, and what each may use."""

    count: Count
    cpu: Cpu
    memory_mib: MemoryMib
    gpu: Gpu = 0

    def role_plan(self) -> RolePlan:
        """Return it as a record of plans."""
        return RolePlan(self.count, self.cpu, self.memory_mib, self.gpu)


class PlanBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole plan."""

    worker: RoleBody
    ps: RoleBody

    def plan(self) -> ResourcePlan:
        """Return it as a record of plans."""
        return ResourcePlan(self.worker.role_plan(), self.ps.role_plan())


class PinsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Parts of every plan that are fixed; null leaves a part free."""

    workers: Count | None = None
    ps: Count | None = None
    worker_cpu: Cpu | None = None
    ps_cpu: Cpu | None = None
    worker_memory_mib: MemoryMib | None = None
    ps_memory_mib: MemoryMib | None = None
