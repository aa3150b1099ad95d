"""Has a user's code tried in a pod without rights, before the job begins.

The master's own container would do, but code that runs there has the master's account, which may create pods
(see `core.runtime.pod.check`). A pod that the cluster takes away is made again; one that ends without a word
has a reason of its own, such as too little memory, and so would the workers.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import NotThere
from dlrover_nb.core.backends.kubernetes.nodes.pod_status import (
    DELETED,
    Ended,
    Preparing,
    Waiting,
    pod_status,
)
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.errors import JobFailedError
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.manifests.objects import with_owner
from dlrover_nb.core.manifests.pods import CHECK_ROLE, check_pod, check_selector
from dlrover_nb.core.models.trainable import CUSTOM
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.wire.pod_contract import CodeTried, check_token

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.backends.kubernetes.nodes.pod_status import PodStatus
    from dlrover_nb.core.driver.calls.service import MasterService
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

N_TRY = 3  # pods, where the cluster takes them away
LOOK_EVERY_S = 1.0


def runs_user_code(spec: JobSpec) -> bool:
    """Whether validating a job runs code of its user: a model of its own, or data read by its own object."""
    return spec.model.name == CUSTOM or spec.data.format == DataFormat.OWN


def checked_in_pod(job: PodJob, api: Api, service: MasterService, *, owner: Doc, report_to: str) -> PodJob:
    """Return the job with what its data and its code determine.

    Parameters
    ----------
    service
        The master's HTTP, which takes the result at `report_to`, and tells clients what is waited for.
    owner
        The object that owns the pod.

    Raises
    ------
    JobFailedError
        What is wrong with the data or the code, or why they could not be tried.
    """
    results: queue.SimpleQueue[CodeTried] = queue.SimpleQueue()
    service.take_check(check_token(job), results.put)
    for left in api.list(POD, selector=check_selector(job.spec.name, job.run)).items:  # by an earlier master
        api.delete(POD, left["metadata"]["name"])
    for _ in range(N_TRY):
        pod = with_owner(check_pod(job, mark=secrets.token_hex(3), report_to=report_to), owner)
        api.create(POD, pod)
        try:
            end = _result_or_end(api, pod["metadata"]["name"], service, results)
        finally:
            with contextlib.suppress(NotThere):
                api.delete(POD, pod["metadata"]["name"])
        if isinstance(end, CodeTried):
            return _completed(job, end)
        why = _why(job, end)
        if end.out_of_memory or end.failed or not end.retryable:
            break
    raise JobFailedError(why)


def _result_or_end(
    api: Api, name: str, service: MasterService, results: queue.SimpleQueue[CodeTried]
) -> CodeTried | NodeExited:
    while True:
        with contextlib.suppress(queue.Empty):
            return results.get(timeout=LOOK_EVERY_S)
        status = _status(api, name)
        if isinstance(status, Ended):
            with contextlib.suppress(queue.Empty):
                return results.get_nowait()  # told between both looks
            return status.exited
        service.set_activity(_doing(status))


def _status(api: Api, name: str) -> PodStatus:
    try:
        return pod_status(CHECK_ROLE, api.get(POD, name))
    except NotThere:
        return Ended(NodeExited(CHECK_ROLE, DELETED))


def _doing(status: PodStatus) -> str:
    match status:
        case Waiting(why):
            return f"the pod that checks the data and the code waits: {why}"
        case Preparing():
            return "the pod that checks the data and the code is starting"
        case _:
            return "a pod checks the data and the code"


def _completed(job: PodJob, result: CodeTried) -> PodJob:
    if result.error or result.features is None:
        raise JobFailedError(result.error or "the pod that checked the code reported no encoding of rows")
    model = replace(job.spec.model, n_dense=result.n_dense, averages=result.averages)
    spec = replace(job.spec, model=model)
    return replace(job, spec=spec, features=result.features)


def _why(job: PodJob, end: NodeExited) -> str:
    what = "the data and the code could not be checked in a pod like a worker's"
    if end.out_of_memory:
        return f"{what}: {job.spec.plan.worker.memory_mib} MiB are not enough; give workers more memory_mib"
    return f"{what}: {end.why}; fix that, and submit again"
