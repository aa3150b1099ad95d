"""Leaves how a job ended, and ends a job whose master never began.

No image can be pulled then, no machine has room, or its data are looked at: there is nobody to tell it to. So
the client does what the master would: it leaves the last picture, lets the Job run no more pods, and removes
those that there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.api_errors import Conflict
from dlrover_nb.core.backends.kubernetes.last_snapshot import end_document
from dlrover_nb.core.backends.kubernetes.master_status import ENDED_NOTE, has_begun
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, JOB, POD
from dlrover_nb.core.manifests.objects import with_owner
from dlrover_nb.core.manifests.pods import node_selector

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.api import Api
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.snapshot import JobSnapshot


def halt(api: Api, last: JobSnapshot, *, run: str, why_not: str) -> None:
    """End a run that has not begun.

    Parameters
    ----------
    last
        What is to be its last picture.
    why_not
        What its master waits for.

    Raises
    ------
    BackendError
        When it had begun: its master comes back, and is to end it without losing what it learnt.
    """
    name = last.spec.name
    owner = api.get(JOB, name)
    if has_begun(owner):
        raise BackendError(f"the master of job {name} comes back ({why_not}); try again when it has")
    leave_end(api, last, run=run, owner=owner)
    api.patch(
        JOB, name, {"metadata": {"annotations": {ENDED_NOTE: str(last.phase)}}, "spec": {"parallelism": 0}}
    )
    for pod in api.list(POD, selector=node_selector(name, run)).items:
        api.delete(POD, pod["metadata"]["name"])


def leave_end(api: Api, last: JobSnapshot, *, run: str, owner: Doc) -> None:
    """Leave a job's last picture with the cluster, to go with its Job.

    One may be there: of a run before, which is being cleared away, or of a try whose answer was lost. It is
    written over, for a master may not delete it.
    """
    end = with_owner(end_document(last, run=run, namespace=api.namespace), owner)
    try:
        api.create(CONFIG_MAP, end)
    except Conflict:
        api.patch(CONFIG_MAP, end["metadata"]["name"], end)
