"""A change of plan in progress: whether its nodes join one by one, and whether others leave first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.spec_choices import Migration

if TYPE_CHECKING:
    from dlrover_nb.core.simulator.cluster import SimCluster
    from dlrover_nb.core.simulator.one_job.sim_nodes import SimNodes
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(slots=True)
class Change:
    """A change of plan in progress.

    Attributes
    ----------
    replaces
        PS or sizes change: the new nodes take over together; else workers come and go one by one.
    is_restart
        The old nodes have left, and the new ones read what they saved.
    is_fallback
        The previous plan is restored: an unrequested change.
    is_paused
        The new nodes take over: nothing trains.
    pause_s
        Seconds without training so far.
    """

    replaces: bool
    is_restart: bool = False
    is_fallback: bool = False
    is_paused: bool = False
    pause_s: float = 0.0


def replaces_nodes(serving: ResourcePlan | None, plan: ResourcePlan) -> bool:
    """Whether more changes than the number of workers; `serving` is what training runs on, None: nothing."""
    if serving is None or serving.ps != plan.ps:
        return True
    now, then = serving.worker, plan.worker
    return (now.cpu, now.memory_mib) != (then.cpu, then.memory_mib)


def restarts_now(change: Change, nodes: SimNodes, cluster: SimCluster, migration: Migration) -> bool:
    """Whether the old nodes leave now, so that the new ones can start.

    They do by choice of `migration`, and where both do not find room at once; but they train on until the new
    ones are sure of that room: a change that is given up has to find its old plan at work.
    """
    if not change.replaces or change.is_restart:
        return False
    if migration is Migration.SEAMLESS and not nodes.unplaced:
        return False
    old = [node.place for node in nodes.unwanted if node.place is not None]
    return cluster.has_room(nodes.waiting_needs, instead_of=old)
