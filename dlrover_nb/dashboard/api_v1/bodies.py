"""What requests hold: strict records, every length and range bounded.

They are records of their own and not those of the core, since what the wire may say must not change when a
record of the core gets a field: no client should be able to send ``by`` or ``id`` of a decision.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from dlrover_nb.core.client.action_request import MOST_BATCH, MOST_FACTOR, ActionRequest
from dlrover_nb.core.structs.job.job import Mode
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import (
    CPU_STEP,
    MOST_CPU,
    MOST_MEMORY_MIB,
    MOST_NODES,
    ResourcePlan,
    RolePlan,
)

MOST_PLANS = 20  # of one question
Id = Annotated[str, Meta(min_length=2, max_length=16, pattern="^[a-z][0-9]{1,14}$")]
Why = Annotated[str, Meta(max_length=1000, description="The reason, for the audit.")]
Count = Annotated[int, Meta(ge=1, le=MOST_NODES)]
Cpu = Annotated[float, Meta(ge=CPU_STEP, le=MOST_CPU, description="Cores per node.")]
Money = Annotated[float, Meta(gt=0, description="In the currency of the job's prices.")]
MemoryMib = Annotated[int, Meta(ge=64, le=MOST_MEMORY_MIB, description="MiB per node.")]


NodeName = Annotated[str, Meta(min_length=1, max_length=128)]
Batches = Annotated[
    dict[NodeName, Annotated[int, Meta(ge=1, le=MOST_BATCH)]], Meta(min_length=1, max_length=MOST_NODES)
]
Cores = Annotated[dict[NodeName, Cpu], Meta(min_length=1, max_length=1)]
NodeMemory = Annotated[dict[NodeName, MemoryMib], Meta(min_length=1, max_length=1)]
Rates = Annotated[
    dict[NodeName, Annotated[float, Meta(gt=0, le=MOST_FACTOR)]], Meta(min_length=1, max_length=MOST_NODES)
]


class RoleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes of a role, and what each may use."""

    count: Count
    cpu: Cpu
    memory_mib: MemoryMib

    def role_plan(self) -> RolePlan:
        """Return it as a record of the core."""
        return RolePlan(self.count, self.cpu, self.memory_mib)


class PlanBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A plan."""

    worker: RoleBody
    ps: RoleBody

    def plan(self) -> ResourcePlan:
        """Return it as a record of the core."""
        return ResourcePlan(self.worker.role_plan(), self.ps.role_plan())


class PinsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Parts of every plan that are fixed; null leaves a part free."""

    workers: Count | None = None
    ps: Count | None = None
    worker_cpu: Cpu | None = None
    ps_cpu: Cpu | None = None
    worker_memory_mib: MemoryMib | None = None
    ps_memory_mib: MemoryMib | None = None

    def pins(self) -> Pins:
        """Return it as a record of the core."""
        return Pins(
            self.workers,
            self.ps,
            self.worker_cpu,
            self.ps_cpu,
            self.worker_memory_mib,
            self.ps_memory_mib,
        )


class WeighBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Plans whose effect is asked for; nothing is changed."""

    plans: Annotated[tuple[PlanBody, ...], Meta(min_length=1, max_length=MOST_PLANS)]


class Accept(Struct, frozen=True, forbid_unknown_fields=True, tag_field="verdict", tag="accept"):
    """Accept a proposal (``p1``), or an action against stragglers (``m1``)."""

    proposal: Id
    why: Why = ""


class Reject(Struct, frozen=True, forbid_unknown_fields=True, tag_field="verdict", tag="reject"):
    """Reject a proposal (``p1``), or an action against stragglers (``m1``)."""

    proposal: Id
    why: Why = ""


class Override(Struct, frozen=True, forbid_unknown_fields=True, tag_field="verdict", tag="override"):
    """Answer a proposal with another plan, which is applied instead."""

    proposal: Id
    plan: PlanBody
    why: Why = ""


class Scale(Struct, frozen=True, forbid_unknown_fields=True, tag_field="verdict", tag="scale"):
    """Change the running job to a plan."""

    plan: PlanBody
    why: Why = ""


class Undo(Struct, frozen=True, forbid_unknown_fields=True, tag_field="verdict", tag="undo"):
    """Revert the latest change that can be taken back; it must still be the decision named."""

    decision: Id
    why: Why = ""


class SetMode(Struct, frozen=True, forbid_unknown_fields=True, tag_field="verdict", tag="mode"):
    """Set who decides from now on."""

    mode: Mode
    why: Why = ""


class Pin(Struct, frozen=True, forbid_unknown_fields=True, tag_field="verdict", tag="pin"):
    """Fix these parts of every plan, and no others."""

    pins: PinsBody
    why: Why = ""


class SetBudget(Struct, frozen=True, forbid_unknown_fields=True, tag_field="verdict", tag="budget"):
    """Set the most that the job may spend in total, with what it has spent; null for no limit."""

    budget_total: Money | None
    why: Why = ""


class Mitigate(Struct, frozen=True, forbid_unknown_fields=True, tag_field="verdict", tag="mitigate"):
    """Order an action against stragglers: one of the first seven fields, or `cores` and `memory` together.

    `restart` starts another node beside the one named, `move` gives a PS fewer parameters, `batches` are
    samples per mini-batch by worker, `backup` is without how many workers a round goes on, `rates` are
    factors on learning rates by worker, `cores` and `memory` (MiB) are what one node may use, whatever the
    plan says of its role.
    """

    restart: NodeName | None = None
    move: NodeName | None = None
    batches: Batches | None = None
    backup: Annotated[int, Meta(ge=0, le=MOST_NODES)] | None = None
    rates: Rates | None = None
    cores: Cores | None = None
    memory: NodeMemory | None = None
    why: Why = ""

    def request(self) -> ActionRequest:
        """Return it as the client's record, which looks the nodes up."""
        return ActionRequest(
            self.restart, self.move, self.batches, self.backup, self.rates, self.cores, self.memory
        )


DecisionBody = Accept | Reject | Override | Scale | Undo | SetMode | Pin | SetBudget | Mitigate


class ReasonBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A command that needs nothing but its reason."""

    why: Why = ""
