"""Saves a job's last snapshot, and ends a job whose master never began.

Its image cannot be pulled, no machine has room, or its data are being inspected: no master can take the
command. So the client acts in its place: it saves the last snapshot, pauses the owner, and deletes its pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import Conflict
from dlrover_nb.core.backends.kubernetes.jobs.last_snapshot import end_document
from dlrover_nb.core.backends.kubernetes.jobs.master_status import ENDED_NOTE, has_begun
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, JOB, POD
from dlrover_nb.core.manifests.objects import with_owner
from dlrover_nb.core.manifests.pods import check_selector, node_selector

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc, Kind
    from dlrover_nb.core.structs.decisions.query_answers import LogLine
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


def halt(api: Api, last: JobSnapshot, *, run: str, why_not: str, kind: Kind = JOB) -> None:
    """End a run that has not begun.

    Parameters
    ----------
    last
        Its last snapshot.
    why_not
        What its master waits for.
    kind
        Of the object that keeps the master's pod. A pod that DLRover's operator still makes ends at once.

    Raises
    ------
    BackendError
        When it had begun: its master restarts, and must end it without losing training.
    """
    name = last.spec.name
    owner = api.get(kind, name)
    if has_begun(owner):
        raise BackendError(f"the master of job {name} is restarting ({why_not}); try again when it is ready")
    leave_end(api, last, run=run, owner=owner)
    pause = {"parallelism": 0} if kind is JOB else {"suspend": True}  # dropped by the older ElasticJob
    api.patch(kind, name, {"metadata": {"annotations": {ENDED_NOTE: str(last.phase)}}, "spec": pause})
    for selector in (node_selector(name, run), check_selector(name, run)):
        for pod in api.list(POD, selector=selector).items:
            api.delete(POD, pod["metadata"]["name"])


def leave_end(api: Api, last: JobSnapshot, *, run: str, owner: Doc, lines: tuple[LogLine, ...] = ()) -> None:
    """Save a job's last snapshot, and the last lines of its nodes, in the cluster, owned by its Job.

    An existing one is overwritten, since a master may not delete it: it is of an earlier run that is being
    deleted, or of a try whose answer was lost.
    """
    end = with_owner(end_document(last, run=run, namespace=api.namespace, lines=lines), owner)
    try:
        api.create(CONFIG_MAP, end)
    except Conflict:
        api.patch(CONFIG_MAP, end["metadata"]["name"], end)
