"""Requests that wait for a second person: which a person sees, what they may do about each, and doing it.

A request that was made here names its cluster. One of an agent knows its namespace and job alone: a job of
that name in that namespace of a cluster that is watched here is the one, and where two clusters have such a
job, the person chooses. The master still refuses a decision on a version that was not the one seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry
from dlrover_nb.dashboard.common.waiting_requests import clusters_of
from dlrover_nb.dashboard.forms.act import Ended, Fate, refused
from dlrover_nb.dashboard.page import MOST_REASON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.decisions.commands import SecondRequest
    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.common.team import Team


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
        Whether they asked for it, and so can only take it back. What their agent proposed in their name is
        theirs to decide, unless a rule wants a second person anyway.
    """

    request: SecondRequest
    clusters: tuple[str, ...]
    may_approve: bool
    is_own: bool


def waiting(team: Team, person: Person) -> tuple[Waiting, ...]:
    """Return the requests that a person may see, oldest first."""
    rows = []
    for request in team.requests.open(team.now_s()):
        owners = {
            key: job.owner for key in clusters_of(team, request) for job in _jobs(team, person, key, request)
        }
        is_first = request.first == person.name
        is_own = is_first and bool(team.commands.why_not_approve(request, person.name))
        if not owners and not is_first:
            continue
        action = request.command.action
        may = not is_own and any(team.may(person, action, key, owner=owner) for key, owner in owners.items())
        rows.append(Waiting(request, tuple(owners), may, is_own))
    return tuple(rows)


def _jobs(team: Team, person: Person, key: str, request: SecondRequest) -> tuple[JobSummary, ...]:
    """Return the jobs of a cluster that a request can mean: one, or none."""
    if not team.may(person, Action.VIEW, key):
        return ()
    return tuple(job for job in team.cluster(key).jobs().jobs if job.name == request.command.job)


def closed(team: Team, person: Person, form: Mapping[str, str]) -> Ended:
    """Approve or refuse a request in the name of a person; blocks, so on a thread."""
    name, job = form.get("request", ""), ""
    handle: JobHandle | None = None
    try:
        request = team.requests.find(name)
        job = request.command.job
        handle = team.job(_key(team, request, form), job, Asker(person, Entry.DASHBOARD))
        return _done(team, person, form, request, handle)
    except DlroverError as error:
        words = f"{form.get('action', '')} {name}".strip()
        return refused(error, words, {"job": job}, handle)


def _key(team: Team, request: SecondRequest, form: Mapping[str, str]) -> str:
    """Return the key of the cluster that the form names; `NotFoundError` where the request is not of it."""
    key, clusters = form.get("cluster", ""), clusters_of(team, request)
    if key not in clusters:
        where = f"on {' or '.join(clusters)}" if clusters else "on no cluster of this server"
        raise NotFoundError(f"{request.id} is about a job {where}, got {shown(key)}; load the page again")
    return key


def _done(
    team: Team, person: Person, form: Mapping[str, str], request: SecondRequest, handle: JobHandle
) -> Ended:
    words, job = request.command.words, request.command.job
    match form.get("action"):
        case "approve":
            made = handle.approve(request)
            as_id = f" as {made.id}" if made is not None else ""
            return Ended(
                Fate.DONE,
                f"{request.id} is approved: {words} of job {job}, asked by {request.first}, is done{as_id}.",
            )
        case "refuse":
            asker = Asker(person, Entry.DASHBOARD)
            why = form.get("reason", "").strip()[:MOST_REASON]
            team.commands.withdraw(request.id, asker, handle.facts(request.command), why)
            return Ended(Fate.DONE, f"{request.id} is refused: {words} of job {job} will not be done.")
        case other:
            raise InvalidValueError(
                f"a request can be approved or refused, got {other!r}; load the page again"
            )
