"""What an action against stragglers costs the job, in words: what a user weighs against its gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.structs.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
)
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.structs.actions import Action


def cost_words(action: Action) -> str:
    """Return what an action costs."""
    match action:
        case AdjustBatches():
            return "nothing: the global batch stays as it is, and all workers change at one iteration"
        case BackupWorkers(n=0):
            return "nothing"
        case BackupWorkers(n=n):
            whose = "that worker" if n == 1 else "those workers"
            return f"the work of {whose} in each iteration, whose rows are trained again later"
        case AdjustRates():
            return "smaller steps on the rows of slow workers"
        case KillRestart(role=Role.WORKER):
            return "the start of another worker beside it; training goes on"
        case KillRestart():
            return "the start of another PS beside it, and a pause of some 0.1 s when it takes over"
        case MoveBuckets():
            return (
                "a pause of some 0.1 s when others take over; rows are copied before, while training goes on"
            )
        case _ as never:
            assert_never(never)
