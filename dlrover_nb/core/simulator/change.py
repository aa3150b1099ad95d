"""A change of plan in progress, and whether its nodes can join one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.core.structs.resources import ResourcePlan


@dataclass(slots=True)
class Change:
    """A change of plan in progress.

    Attributes
    ----------
    replaces
        PS or sizes change: the new nodes take over together; else workers come and go one by one.
    is_fallback
        The previous plan is restored: an unrequested change.
    pause_s
        Seconds without training so far.
    """

    since_s: float
    replaces: bool
    is_fallback: bool = False
    pause_s: float = 0.0


def replaces_nodes(serving: ResourcePlan | None, plan: ResourcePlan) -> bool:
    """Whether more changes than the number of workers; `serving` is what training runs on, None: nothing."""
    if serving is None or serving.ps != plan.ps:
        return True
    now, then = serving.worker, plan.worker
    return (now.cpu, now.memory_mib) != (then.cpu, then.memory_mib)
