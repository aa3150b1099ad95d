"""RayJobs of a namespace, which KubeRay's operator runs: read from their objects, never changed.

KubeRay (1.7) submits a job's entrypoint to the Ray cluster of the job in one of several ways. By default a
Kubernetes Job of the RayJob's name does it and follows the output, so that its pod's log is the job's. In the
other ways the output is kept by the Ray cluster alone.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, NotThere
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.manifests.kinds import POD, RAY_JOB
from dlrover_nb.core.moments import read_moment
from dlrover_nb.core.structs.cluster.unmanaged import UnmanagedJob

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc

logger = logging.getLogger(__name__)

FINAL = {"Complete", "Failed"}  # of the deployment
NEW = "New"  # the operator has not seen it yet
SUBMITTER = "job-name"  # label of the pods of a Job, with its name


class SeesRayJobs:
    """A namespace whose RayJobs are read; fits `core.client.cluster.ListsUnmanagedJobs`."""

    api: Api

    def unmanaged_jobs(self) -> tuple[UnmanagedJob, ...]:
        """Return them, newest first; none where the cluster has no KubeRay, or they may not be listed."""
        try:
            documents = self.api.list(RAY_JOB).items if self.api.has(RAY_JOB) else []
        except (Forbidden, NotThere) as error:
            logger.info("RayJobs cannot be listed: %s", error)
            return ()
        documents.sort(key=lambda each: each["metadata"].get("creationTimestamp") or "", reverse=True)
        return tuple(map(job_of, documents))

    def unmanaged_log(self, job: UnmanagedJob, n_line: int) -> tuple[str, ...]:
        """Return the last lines that one of them wrote."""
        pods = self.api.list(POD, selector=f"{SUBMITTER}={job.name}").items
        if not pods:
            raise NotFoundError(
                f"RayJob {job.name} has no submitter pod (any more), so its output is only in its Ray "
                "cluster: "
                + (", ".join(f"{name} {value}" for name, value in job.facts) or "which is not known yet")
            )
        newest = max(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
        return tuple(deque(self.api.log(newest["metadata"]["name"]), maxlen=n_line))


def job_of(document: Doc) -> UnmanagedJob:
    """Return a RayJob as its object tells it; fields that are missing are not known."""
    head, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    deployment = status.get("jobDeploymentStatus") or NEW
    facts = {
        "namespace": head.get("namespace"),
        "submission": status.get("jobId"),
        "Ray cluster": status.get("rayClusterName"),
        "dashboard": status.get("dashboardURL"),
        "submitted by": spec.get("submissionMode"),
    }
    return UnmanagedJob(
        name=head["name"],
        kind=RAY_JOB.name,
        state=", ".join(filter(None, (deployment, status.get("jobStatus")))),
        is_final=deployment in FINAL,
        entrypoint=spec.get("entrypoint") or "",
        started_at_s=_time(status.get("startTime")),
        ended_at_s=_time(status.get("endTime")),
        message=": ".join(filter(None, (status.get("reason"), status.get("message")))),
        facts=tuple((name, str(value)) for name, value in facts.items() if value),
        ended_by=f"kubectl delete rayjob {head['name']} -n {head.get('namespace', 'default')}",
    )


def _time(text: Any) -> float | None:  # noqa: ANN401 - of the object
    try:
        return read_moment(text) if text else None
    except InvalidValueError:
        return None
