"""What changes of plan usually cost on a cluster, from the jobs that ran there.

How long training stands still for other PS depends on disks, networks and how fast nodes start, which no
constant knows. Each job keeps the pauses that it measured (`FitSummary.pauses`); a new job on that cluster
expects their median until it has measured its own.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.views.past_jobs import TransitionKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.views.past_jobs import PastJob

Pauses = tuple[tuple[str, float], ...]


def usual_pauses(past: Sequence[PastJob], cluster: str) -> Pauses:
    """Return the seconds to expect of each kind of change that a job on the cluster made.

    Each job counts once, by the median of its own: one that changes its plan all day outweighs no other.
    """
    fits = [job.fit for job in past if job.fit is not None and job.traits.cluster == cluster]
    usual = []
    for kind in TransitionKind:
        pauses = [[seconds for change, seconds in fit.pauses if change == kind] for fit in fits]
        if medians := [median(own) for own in pauses if own]:
            usual.append((str(kind), median(medians)))
    return tuple(usual)
