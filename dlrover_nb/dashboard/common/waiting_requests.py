"""Commands that wait for a second person, as the front ends of a server look at them.

A request that was made here names its cluster by our key. One of an agent, or of an older release, names its
job and namespace alone: its cluster is found among those that this server watches, and where two could be
meant, the request is refused rather than guessed at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import NotFoundError

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.commands import SecondRequest
    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.common.team import Team


def visible_requests(team: Team, person: Person) -> tuple[SecondRequest, ...]:
    """Return the requests that wait, of the namespaces that a person may see, oldest first."""
    waiting = team.requests.open(team.now_s())
    return tuple(each for each in waiting if team.sees(person, each.namespace))


def clusters_of(team: Team, request: SecondRequest) -> tuple[str, ...]:
    """Return the keys of the clusters here that a request can mean: its own, or those of its namespace."""
    named = {request.cluster} if request.cluster else team.clusters.keys()
    return tuple(
        key for key, each in team.clusters.items() if key in named and each.namespace == request.namespace
    )


def cluster_of(team: Team, request: SecondRequest) -> str:
    """Return the key of the cluster where the job of a request runs.

    Raises
    ------
    NotFoundError
        When no cluster here has it, or several do.
    """
    name = request.command.job
    here = clusters_of(team, request)
    having = [key for key in here if any(job.name == name for job in team.cluster(key).jobs().jobs)]
    keys = having or here
    if len(keys) == 1:
        return keys[0]
    where = f"is on {' and '.join(keys)}" if keys else "is on no cluster of this server"
    raise NotFoundError(
        f"{request.id} must be about a job of one cluster, but {name} {where}; ask for it again there"
    )
