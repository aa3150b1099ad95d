"""Where jobs are, for the list of a cluster that has none.

A person who has started a job and finds an empty table has looked in another place than the job is in: on
another cluster of this server, or on this machine in a way that the server does not watch. The second is said
to the server's own account alone: others need not know what runs there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.client.handle import user_name
from dlrover_nb.core.connect.on_machine import has_ray, local_jobs
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.widgets import units

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dlrover_nb.dashboard.page import Visit

MOST_NAMED = 3
LOCAL, RAY = "local", "ray"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A place with jobs: in words, and the address of its list; empty: this server does not watch it."""

    words: str
    href: str = ""


def elsewhere(visit: Visit) -> tuple[Elsewhere, ...]:
    """Return where there are jobs beside the cluster of the visit."""
    team, places = visit.team, []
    for key, cluster in team.clusters.items():
        names = [job.name for job in cluster.jobs().jobs]
        if key != visit.cluster and names and team.may(visit.person, Action.VIEW, key):
            words = f"{units.counted(len(names), 'job')} on {key}: {_named(names)}"
            places.append(Elsewhere(words, f"jobs?{urlencode({'cluster': key})}"))
    is_own = visit.person.name == user_name() and not visit.can_leave
    return (*places, *(_on_machine(team.clusters.keys()) if is_own else ()))


def _on_machine(watched: Collection[str]) -> tuple[Elsewhere, ...]:
    places = []
    if LOCAL not in watched and (names := local_jobs()):
        words = f"{units.counted(len(names), 'job')} of this machine's own processes: {_named(names)}"
        places.append(Elsewhere(f"{words}; start the server with --cluster {LOCAL} to see them"))
    if RAY not in watched and has_ray():
        words = f"a Ray runs on this machine; start the server with --cluster {RAY} to see its jobs"
        places.append(Elsewhere(words))
    return tuple(places)


def _named(names: Sequence[str]) -> str:
    return f"{', '.join(names[:MOST_NAMED])}{', …' if len(names) > MOST_NAMED else ''}"
