"""Cores that move between nodes of one role, as sizes of single nodes: exceptions from the plan.

A role keeps the cores of its plan. Those that give come first, since what they leave is what the others get:
each change is one node's, so the sum may be lower for a while but is never higher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck.assignment import divided
from dlrover_nb.core.bottleneck.thresholds import PAPER, Thresholds
from dlrover_nb.core.structs.actions import Proposed, SetSize
from dlrover_nb.core.structs.capacity import in_steps
from dlrover_nb.core.structs.resources import CPU_STEP, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.bottleneck.use import JobUse, NodeUse
    from dlrover_nb.core.structs.bounds import Pins, PlanBounds

MATERIAL = 0.2  # of a node's cores: means of a few reports scatter, and each change disturbs the next means


def node_moves(
    use: JobUse, bounds: PlanBounds, pins: Pins, thresholds: Thresholds = PAPER
) -> tuple[Proposed, ...]:
    """Return the sizes of single nodes that divide each role's cores by what its nodes use (section IV-C).

    None for a role whose size is pinned, or of which a node keeps its size.
    """
    pinned = {Role.WORKER: pins.worker_cpu, Role.PS: pins.ps_cpu}
    least = {Role.WORKER: bounds.worker_cpus, Role.PS: bounds.ps_cpus}
    found: list[Proposed] = []
    for role in Role:
        own = use.of({role})
        if pinned[role] is None and not any(node.node in use.kept for node in own):
            smallest = min(least[role], default=CPU_STEP)
            found += _within(own, use.plan.role(role).total_cpu, smallest, thresholds)
    return tuple(found)


def _within(own: Sequence[NodeUse], total: float, least: float, t: Thresholds) -> list[Proposed]:
    """Return the changes of one role, those that give cores first."""
    wanted = [_rounded(each, least) for each in divided(own, total, t)]
    free = total - sum(node.allocated_cores for node in own)
    moves = [
        (node, min(cpu, _rounded(node.allocated_cores + max(free, 0.0), least)))
        for node, cpu in zip(own, wanted, strict=True)
    ]
    material = [(n, cpu) for n, cpu in moves if abs(cpu - n.allocated_cores) > MATERIAL * n.allocated_cores]
    return [
        Proposed(SetSize(node.node, node.role, cpu, node.memory_mib), _why(node, own, total, t))
        for node, cpu in sorted(material, key=lambda move: move[1] - move[0].allocated_cores)
    ]


def _rounded(cpu: float, least: float) -> float:
    return max(round(in_steps(cpu) * CPU_STEP, 2), least)


def _why(node: NodeUse, own: Sequence[NodeUse], total: float, t: Thresholds) -> str:
    others = [each.efficiency(t) for each in own if each is not node]
    mean = sum(others) / len(others)
    roles = "workers" if node.role is Role.WORKER else "parameter servers"
    return (
        f"By nearchus: {node.node} uses {node.efficiency(t):.0%} of its cores and the others {mean:.0%}; "
        f"the {total:g} cores of all {len(own)} {roles} are divided by what each uses"
    )
