"""Questions to many jobs at once, for pages that compare them: in parallel, and bounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.commands.rights import why_not
from dlrover_nb.core.errors import DlroverError, NotAllowedError
from dlrover_nb.core.structs.decisions.commands import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.common.clusters import WatchedCluster
    from dlrover_nb.dashboard.page import Visit

T = TypeVar("T")

MOST_ASKED = 64  # jobs whose masters one page asks
AT_ONCE = 8


def shown_cluster(visit: Visit) -> WatchedCluster:
    """Return the cluster that a page is about; `NotAllowedError` where the person may not view its jobs."""
    cluster = visit.team.cluster(visit.cluster)
    if refusal := why_not(visit.person, Action.VIEW, namespace=cluster.namespace):
        raise NotAllowedError(refusal)
    return cluster


def ask_all(
    cluster: WatchedCluster, jobs: Iterable[JobSummary], question: Callable[[JobHandle], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """Ask each of the jobs; return the answers by name, and by name why there is none."""
    names = [job.name for job in jobs][:MOST_ASKED]
    answers, missing = dict[str, T](), dict[str, str]()

    def ask(name: str) -> T | DlroverError:
        try:
            return question(cluster.job(name).with_short_timeout)
        except DlroverError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE, "dlrover-ask") as pool:
        for name, answer in zip(names, pool.map(ask, names), strict=True):
            if isinstance(answer, DlroverError):
                missing[name] = str(answer).splitlines()[0]
            else:
                answers[name] = answer
    return answers, missing


def running(jobs: Iterable[JobSummary]) -> list[JobSummary]:
    """Return the jobs that have not ended."""
    return [job for job in jobs if job.live and not job.phase.is_final]


def capacity_of(cluster: WatchedCluster) -> tuple[Capacity | None, str]:
    """Return what the machines offer, or why that is not known."""
    try:
        return cluster.core.capacity(), ""
    except DlroverError as error:
        return None, str(error).splitlines()[0]


def load_of(cluster: WatchedCluster) -> tuple[ClusterLoad | None, str]:
    """Return what machines have, hold and use, or why that is not known."""
    try:
        return cluster.core.load(), ""
    except DlroverError as error:
        return None, str(error).splitlines()[0]


def left_out_words(n_all: int) -> str:
    """Say that not all jobs were asked; empty where they were."""
    return f"{MOST_ASKED} of {n_all:,} jobs were asked." if n_all > MOST_ASKED else ""
