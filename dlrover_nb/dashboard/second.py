"""Requests that wait for a second person: which somebody sees, what they may do about each, and doing it.

A request knows its namespace and job and not the cluster, as the core has none of our keys; a job of that
name in that namespace of a cluster that is watched here is the one. Where two clusters have such a job, the
person chooses; the master still refuses a decision on a version that was not the one seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.structs.commands import Action, Asker, Entry
from dlrover_nb.dashboard.act import Ended, Fate, refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.commands import SecondRequest
    from dlrover_nb.core.structs.people import Person
    from dlrover_nb.core.structs.summary import JobSummary
    from dlrover_nb.dashboard.team import Team


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request as one person sees it.

    Parameters
    ----------
    clusters
        Keys of the clusters that have such a job.
    may_approve
        Whether they may be its second person.
    is_own
        Whether they asked for it: they can take it back, and never approve it.
    """

    request: SecondRequest
    clusters: tuple[str, ...]
    may_approve: bool
    is_own: bool


def waiting(team: Team, person: Person) -> tuple[Waiting, ...]:
    """Return the requests that a person may see, oldest first."""
    found = []
    for request in team.requests.open(team.now_s()):
        held = {key: job.owner for key in team.clusters for job in _jobs(team, person, key, request)}
        is_own = request.first == person.name
        if not held and not is_own:
            continue
        action = request.command.action
        may = not is_own and any(team.may(person, action, key, owner=owner) for key, owner in held.items())
        found.append(Waiting(request, tuple(held), may, is_own))
    return tuple(found)


def _jobs(team: Team, person: Person, key: str, request: SecondRequest) -> tuple[JobSummary, ...]:
    """Return the jobs of a cluster that a request can mean: one, or none."""
    cluster = team.clusters[key]
    if cluster.namespace != request.namespace or not team.may(person, Action.VIEW, key):
        return ()
    return tuple(job for job in cluster.jobs().jobs if job.name == request.command.job)


def closed(team: Team, person: Person, form: Mapping[str, str]) -> Ended:
    """Approve or refuse a request in the name of a person; blocks, so on a thread."""
    name, job = form.get("request", ""), ""
    handle: JobHandle | None = None
    try:
        request = team.requests.find(name)
        job = request.command.job
        handle = team.job(form.get("cluster", ""), job, Asker(person, Entry.DASHBOARD))
        return _done(team, person, form, request, handle)
    except DlroverError as error:
        words = f"{form.get('action', '')} {name}".strip()
        return refused(error, words, {"job": job}, handle)


def _done(
    team: Team, person: Person, form: Mapping[str, str], request: SecondRequest, handle: JobHandle
) -> Ended:
    words, job = request.command.words, request.command.job
    match form.get("action"):
        case "approve":
            made = handle.approve(request)
            said = f" as {made.id}" if made is not None else ""
            return Ended(
                Fate.DONE,
                f"{request.id} is approved: {words} of job {job}, asked by {request.first}, is done{said}.",
            )
        case "refuse":
            asker = Asker(person, Entry.DASHBOARD)
            team.commands.withdraw(request.id, asker, handle.facts(request.command), form.get("reason", ""))
            return Ended(Fate.DONE, f"{request.id} is refused: {words} of job {job} will not be done.")
        case other:
            raise InvalidValueError(
                f"a request can be approved or refused, got {other!r}; load the page again"
            )
