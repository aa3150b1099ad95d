"""Status of a job's master, derived from its Job or ElasticJob and its pods: pure, on documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.backends.kubernetes.nodes.pod_status import cut
from dlrover_nb.core.manifests.pod_parts import MASTER_ROLE, PREFIX, run_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.manifests.kinds import Doc

BEGUN_NOTE = f"{PREFIX}begun"  # annotation of the Job: when the job began, by its master's clock
ENDED_NOTE = f"{PREFIX}ended"  # annotation of the Job: it was ended before it began


@dataclass(frozen=True, slots=True)
class Answering:
    """The master is in this pod."""

    pod: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """The master has not started; `why` not."""

    why: str


@dataclass(frozen=True, slots=True)
class Over:
    """The Job has ended; `why` it failed, empty when its master ended as it should."""

    why: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another run has the same name."""


MasterStatus = Answering | Beginning | Over | Replaced


def master_status(job: Mapping[str, Any], pods: Iterable[Doc], *, run: str) -> MasterStatus:
    """Return the status of a run's master.

    Parameters
    ----------
    job
        The Job.
    pods
        The master's pods, of this run.
    """
    if run_of(job) != run:
        return Replaced()
    if ENDED_NOTE in _notes(job):
        return Over("")
    mine = (pod for pod in pods if _is_owned(pod, job))
    living = [pod for pod in mine if "deletionTimestamp" not in pod["metadata"] and _phase(pod) != "Failed"]
    newest = max(living, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
    if newest is not None and is_ready(newest):
        return Answering(newest["metadata"]["name"])
    if (why := end_of_job(job)) is not None:
        return Over(why)
    return Beginning(why_not_ready(newest) if newest else _why_no_pod(job))


def _why_no_pod(job: Mapping[str, Any]) -> str:
    if is_paused(job):
        return "its submission is not complete; if its client died, delete the job"
    return "the cluster has not created its master's pod yet"


def why_not_made(events: Iterable[Doc]) -> str:
    """Return why a Job's pod is not created, by the Job's events; empty: no reason is known."""
    warnings = [event for event in events if event.get("type") == "Warning"]
    newest = max(warnings, key=lambda event: str(event.get("lastTimestamp") or ""), default=None)
    return f"its master's pod cannot be created: {_reason(newest)}" if newest else ""


def end_of_job(job: Mapping[str, Any]) -> str | None:
    """Return why a Job or an ElasticJob failed, empty when it is complete; None while it is neither."""
    status = job.get("status", {})
    if status.get("phase") in {"Succeeded", "Failed"}:  # DLRover's operator says it so
        conditions: list[Doc] = (status.get("status") or {}).get("conditions") or [{}]
        return _reason(conditions[-1]) if status["phase"] == "Failed" else ""
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition["type"] in {"Complete", "Failed"}:
            return _reason(condition) if condition["type"] == "Failed" else ""
    return None


def has_begun(job: Mapping[str, Any]) -> bool:
    """Whether a master of the job began to run it."""
    return BEGUN_NOTE in _notes(job)


def begun_s(job: Mapping[str, Any]) -> float | None:
    """Return when the job began; None: it has not."""
    return float(_notes(job)[BEGUN_NOTE]) if has_begun(job) else None


def is_paused(job: Mapping[str, Any]) -> bool:
    """Whether a Job is still paused: its client is still submitting it, or died."""
    return not job["spec"].get("parallelism", 1)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod answers."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def why_not_ready(pod: Mapping[str, Any]) -> str:
    """Return why a pod waits, in the cluster's words."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses") or ():
        if container.get("name", MASTER_ROLE) != MASTER_ROLE:
            continue  # of a mesh or an injector
        state = container.get("state", {})
        if waiting := state.get("waiting"):
            last = container.get("lastState", {}).get("terminated", {})
            message = last.get("message") or waiting.get("message")
            return f"its master waits: {_reason({'reason': waiting.get('reason'), 'message': message})}"
        if ended := state.get("terminated"):
            return f"its master's program ended: {_reason(ended)}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"its master waits for a machine: {_reason(condition)}"
    if _phase(pod) == "Running":
        return "its master is starting"
    return "its master's pod is being scheduled"


def _notes(job: Mapping[str, Any]) -> Mapping[str, str]:
    return job["metadata"].get("annotations") or {}


def _is_owned(pod: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Whether the Job owns a pod: anybody may set labels, and a request contains the access token."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == job["metadata"]["uid"] for owner in owners)


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _reason(state: Mapping[str, Any]) -> str:
    words = (str(state.get("reason") or ""), cut(str(state.get("message") or "")))
    return ": ".join(word for word in words if word) or "no reason given"
