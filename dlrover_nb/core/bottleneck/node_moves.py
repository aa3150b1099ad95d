"""Cores that move between nodes of one role, as sizes of single nodes: exceptions from the plan.

A role keeps the cores of its plan. Where one node is idle and another one short, the idle one keeps so many
that it uses the threshold's share of them, and what is free goes to those that are short, the smallest first.
Those that give come first, since what they leave is what the others get: each change is one node's, so the
sum may be lower for a while but is never higher. A node between idle and short keeps what it has: else one
that gave cores away would ask for them as its use scatters.

The paper divides cores in proportion to what nodes use (`assignment.balanced`). In a real job that made nodes
which were short alike keep an unequal size for ever, as both use all that they have, and moved cores where
no node was short of any.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, inf
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.structs.decisions.actions import Proposed, SetSize
from dlrover_nb.core.structs.plan.capacity import in_steps
from dlrover_nb.core.structs.plan.resources import CPU_STEP, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.bottleneck.use import JobUse, NodeUse
    from dlrover_nb.core.structs.job.tuning import Nearchus
    from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds

MATERIAL = 0.2  # of a node's cores: means of a few reports scatter, and each change disturbs the next means


def node_moves(use: JobUse, bounds: PlanBounds, pins: Pins) -> tuple[Proposed, ...]:
    """Return the sizes of single nodes by which each role's cores go where they are used; see the module.

    None for a role whose size is pinned, or of which a node keeps its size.
    """
    pinned = {Role.WORKER: pins.worker_cpu, Role.PS: pins.ps_cpu}
    least = {Role.WORKER: bounds.worker_cpus, Role.PS: bounds.ps_cpus}
    moves: list[Proposed] = []
    for role in Role:
        own = use.of({role})
        if pinned[role] is None and not any(node.node in use.pinned for node in own):
            smallest = min(least[role], default=CPU_STEP)
            moves += _within(own, use.plan.role(role).total_cpu, smallest, use.tuning)
    return tuple(moves)


def _within(own: Sequence[NodeUse], total: float, least: float, tuning: Nearchus) -> list[Proposed]:
    """Return the changes of one role, those that give cores first."""
    now, used = [node.allocated_cores for node in own], [node.efficiency() for node in own]
    short = [each >= tuning.job_efficiency for each in used]
    if not any(short) or min(used) <= 0:
        return []
    reduced = [
        min(max(_rounded_up(node.cores() / tuning.node_efficiency), least), cores)
        if share < tuning.node_efficiency
        else cores
        for node, cores, share in zip(own, now, used, strict=True)
    ]
    level = _level([c for c, is_short in zip(reduced, short, strict=True) if is_short], total - sum(reduced))
    if not any(is_short and level > (1 + MATERIAL) * c for c, is_short in zip(reduced, short, strict=True)):
        return []  # no node would get enough of it
    free = max(total - sum(now), 0.0)
    wanted = [
        min(max(_rounded(level), cores), _rounded(cores + free)) if is_short else cores
        for cores, is_short in zip(reduced, short, strict=True)
    ]
    moves = zip(own, wanted, strict=True)
    material = [(n, cpu) for n, cpu in moves if abs(cpu - n.allocated_cores) > MATERIAL * n.allocated_cores]
    return [
        Proposed(SetSize(node.node, node.role, cpu, node.memory_mib), _why(node, own, total))
        for node, cpu in sorted(material, key=lambda move: move[1] - move[0].allocated_cores)
    ]


def _level(cores: Sequence[float], free: float) -> float:
    """Return up to how many cores the smallest nodes are filled with what is free."""
    ranked = sorted(cores)
    for n, (below, above) in enumerate(pairwise([*ranked, inf]), start=1):
        if free < n * (above - below):
            return below + free / n
        free -= n * (above - below)
    raise AssertionError(cores)


def _rounded(cpu: float) -> float:
    return round(in_steps(cpu) * CPU_STEP, 2)


def _rounded_up(cpu: float) -> float:
    return round(ceil(cpu / CPU_STEP - 1e-6) * CPU_STEP, 2)


def _why(node: NodeUse, own: Sequence[NodeUse], total: float) -> str:
    others = [each.efficiency() for each in own if each is not node]
    mean = sum(others) / len(others)
    roles = "workers" if node.role is Role.WORKER else "parameter servers"
    return (
        f"By nearchus: {node.node} uses {percent(node.efficiency())} of its cores and the others "
        f"{percent(mean)}; the {total:g} cores of all {len(own)} {roles} go where they are used"
    )
