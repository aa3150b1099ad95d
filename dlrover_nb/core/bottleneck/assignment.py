"""Cores of single nodes: taken where they are idle, given where they are used, the sum unchanged.

These functions are the paper's method, of nodes that each have their own. A plan of this product gives all
nodes of a role the same: moves between roles are changes of plan (`remedy_plans`), those within a role
exceptions from it (`node_moves`).
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck.thresholds import PAPER, Thresholds
from dlrover_nb.core.bottleneck.use import efficiency
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.bottleneck.use import NodeUse

Cores = tuple[float, ...]  # of each node, in the order of the nodes
START_PS, START_WORKERS = 1, 2


def start_cores(budget_cores: float, share: float) -> Cores:
    """Return the cores of the first PS and the first two workers: an even part of a share of the budget."""
    n_node = START_PS + START_WORKERS
    return (budget_cores * share / n_node,) * n_node


def scaled(cores: Sequence[float], total: float) -> Cores:
    """Return cores that sum to `total`, in the proportions of now."""
    factor = total / sum(cores)
    return tuple(each * factor for each in cores)


def spread(cores: Sequence[float]) -> Cores:
    """Return the same sum, as much for each: after a node was added to a role."""
    return (fmean(cores),) * len(cores)


def balanced(nodes: Sequence[NodeUse], thresholds: Thresholds = PAPER) -> Cores:
    """Return the cores after the node-level adjustment of each role.

    Where a node uses less than the threshold, the cores of its role are divided in proportion to what its
    nodes use, so that all have the same efficiency. A role with a node that uses nothing stays, as that node
    would get nothing.
    """
    cores: dict[int, float] = {}
    for role in Role:
        own = [i for i, node in enumerate(nodes) if node.role is role]
        cores |= zip(own, _balanced_role([nodes[i] for i in own], thresholds), strict=True)
    return tuple(cores[i] for i in range(len(nodes)))


def _balanced_role(own: Sequence[NodeUse], t: Thresholds) -> Cores:
    now, used = tuple(node.allocated_cores for node in own), [node.cores(t) for node in own]
    if not own or min(used) <= 0 or min(node.efficiency(t) for node in own) >= t.assignment:
        return now
    return tuple(sum(now) * each / sum(used) for each in used)


def idle_cores(cores: float, share: float, others: float, thresholds: Thresholds = PAPER) -> float:
    """Return how many of its cores a role can give to the other one, which has `others`.

    Then it uses the threshold's share of the rest. The other role gets faster in proportion to its cores, and
    this one has as much more to do: else a PS that gave its idle cores away would be the next bottleneck. The
    paper does not say how much moves.
    """
    t, used = thresholds.assignment, share * cores
    return max((t * cores - used) / (t + used / others), 0.0)


def moved(nodes: Sequence[NodeUse], thresholds: Thresholds = PAPER) -> Cores:
    """Return the cores after the component-level adjustment: what one role leaves idle goes to the other.

    Unchanged where both roles are above the threshold, or both below.
    """
    t, now = thresholds, tuple(node.allocated_cores for node in nodes)
    shares = {role: efficiency([node for node in nodes if node.role is role], t) for role in Role}
    giver, taker = sorted(Role, key=shares.__getitem__)
    if not shares[giver] < t.assignment <= shares[taker]:
        return now
    totals = {role: sum(n.allocated_cores for n in nodes if n.role is role) for role in Role}
    idle = idle_cores(totals[giver], shares[giver], totals[taker], t)
    factor = {giver: 1 - idle / totals[giver], taker: 1 + idle / totals[taker]}
    return tuple(node.allocated_cores * factor[node.role] for node in nodes)
