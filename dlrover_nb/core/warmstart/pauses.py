"""What changes of plan usually cost on a cluster, from the jobs that ran there.

How long training stands still for other PS depends on disks, networks and how fast nodes start, which no
constant knows. Each job keeps the pauses that it measured (`FitSummary.pauses`); a new job on that cluster
expects their median until it has measured its own.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.job import Migration
    from dlrover_nb.core.structs.past import PastJob

Pauses = tuple[tuple[str, float], ...]

WORKERS, MOVES = "workers", "moves"  # kinds of `planner.transition_kind`


def kept_pauses(pauses: Iterable[tuple[str, float]], migration: Migration) -> Pauses:
    """Return a job's own pauses as they are kept: those of moved parameters with the way they moved."""
    return tuple((_kept(kind, migration), pause_s) for kind, pause_s in pauses)


def usual_pauses(past: Sequence[PastJob], cluster: str, migration: Migration) -> Pauses:
    """Return the seconds to expect of each kind of change that a job on the cluster made.

    Each job counts once, by the median of its own: one that changes its plan all day outweighs no other.
    """
    fits = [job.fit for job in past if job.fit is not None and job.traits.cluster == cluster]
    found = []
    for kind in (WORKERS, MOVES):
        seen = [[s for known, s in fit.pauses if known == _kept(kind, migration)] for fit in fits]
        if medians := [median(own) for own in seen if own]:
            found.append((kind, median(medians)))
    return tuple(found)


def _kept(kind: str, migration: Migration) -> str:
    return f"{kind} {migration}" if kind == MOVES else kind
