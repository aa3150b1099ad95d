"""State of a node from its pod's object: starting, waiting and why, running, or ended and why.

A function of one document, without history. Several fields of a pod tell, and the most certain is read first:
its container has terminated, the kubelet or a controller gave the pod up, it is being deleted, its container
cannot be created, it is not scheduled. The reason is the cluster's own text; added text says what it means
for a job.

Whether a new node would end in the same way is decided here too. An invalid image name is permanent. A
registry that does not answer may recover, and a missing Secret may be created: both are waited for, for a
limited time.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.manifests.pods import CONTAINER
from dlrover_nb.core.runtime.process.last_words import is_failure, last_error, parsed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.manifests.kinds import Doc

PULL_LIMIT_S = 180.0  # for a registry to recover, or an image to be pushed
DELETED = "a user or program deleted its pod"
MEND_LIMIT_S = 120.0  # for a missing Secret or ConfigMap to be created
_LONGEST = 300  # characters of a reason; the cause of an error stands at its end
_NEVER = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"})
_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
_NO_PROGRAM = ("no such file or directory", "executable file not found", "permission denied")
_BESIDE = frozenset({"MissingClusterDNS", "FailedScheduling", "DNSConfigForming"})  # these block nothing
_START_ERRORS = frozenset({"StartError", "ContainerCannotRun"})
_GIVEN_UP = {
    "Evicted": "evicted",
    "Preempting": "preempted by a pod of higher priority",
    "Preempted": "preempted by a pod of higher priority",
    "NodeLost": "its machine does not answer",
    "Shutdown": "its machine was shut down",
    "NodeShutdown": "its machine was shut down",
    "Terminated": "its machine was shut down",
    "NodeAffinity": "its machine no longer has the labels that it needs",
}
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by a pod of higher priority",
    "DeletionByTaintManager": "its machine does not answer, or no longer takes such pods",
    "EvictionByEvictionAPI": "evicted, for example because its machine is drained",
    "DeletionByPodGC": "its machine is gone",
    "TerminationByKubelet": "ended by its machine",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """It cannot begin yet.

    Parameters
    ----------
    why
        In the cluster's words.
    limit_s
        How long that may last before a new node is useless too; None: forever, as for missing room.
    """

    why: str
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Preparing:
    """It has a machine (None: not scheduled yet), and its container is being created.

    `is_taken`: the machine's kubelet has acknowledged it, which takes a moment. A machine that has just lost
    power still gets pods, and a cluster that does not evict (most of a small one is down, say) leaves them.
    """

    machine: str | None
    is_taken: bool


@dataclass(frozen=True, slots=True)
class Running:
    """Its container runs."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """Its pod is being deleted, and has not ended yet.

    Parameters
    ----------
    grace_s
        Its grace period.
    why
        The reason for the deletion, as far as the cluster reports it; empty: unknown.
    machine
        Where it is.
    """

    grace_s: float
    why: str
    machine: str


@dataclass(frozen=True, slots=True)
class Ended:
    """It has ended; whether its pod terminated, so that nothing of it runs."""

    exited: NodeExited
    is_final: bool = True


PodStatus: TypeAlias = Waiting | Preparing | Running | Leaving | Ended


def pod_status(node: str, pod: Doc) -> PodStatus:
    """Return the state of a pod's node."""
    status, state = pod.get("status") or {}, _state(pod)
    is_final = status.get("phase") in {"Failed", "Succeeded"}
    if terminated := state.get("terminated"):
        return Ended(_terminated(node, pod, terminated), is_final)
    if is_final:
        return Ended(_given_up(node, pod))
    if "deletionTimestamp" in pod["metadata"]:
        grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        return Leaving(grace_s, disruption(pod), machine_of(pod))
    if "running" in state or status.get("phase") in {"Running", "Unknown"}:
        return Running()
    return _not_begun(node, pod, state.get("waiting") or {})


def machine_of(pod: Doc) -> str:
    """Return the name of the machine that a pod is on; empty: of none yet."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def disruption(pod: Doc) -> str:
    """Return why the cluster itself ends a pod, as far as reported; Kubernetes does since 1.25."""
    target = condition(pod, "DisruptionTarget")
    if not target or target.get("status") != "True":
        return ""
    reason = str(target.get("reason") or "")
    return _joined(_DISRUPTIONS.get(reason, reason), target.get("message"))


def trouble(events: Iterable[Doc]) -> str:
    """Return the message of the newest event that keeps a pod from beginning; empty: there is none.

    A running pull is no fault, but explains the delay.
    """
    troubles = [
        event for event in events if event.get("type") == "Warning" or event.get("reason") == "Pulling"
    ]
    troubles = [event for event in troubles if event.get("reason") not in _BESIDE]
    last = max(troubles, key=_event_time, default=None)
    return _joined(str(last.get("reason") or ""), last.get("message")) if last else ""


def _event_time(event: Doc) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _state(pod: Doc) -> Doc:
    """Return the state of our container, by its name: meshes and injectors put theirs before it."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    state: Doc = next((c.get("state") or {} for c in statuses if c.get("name") == CONTAINER), {})
    return state


def condition(pod: Doc, kind: str) -> Doc | None:
    """Return a condition of a pod by its type."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == kind), None)


def _not_begun(node: str, pod: Doc, waiting: Doc) -> PodStatus:
    placed = condition(pod, "PodScheduled")
    if placed and placed.get("status") == "False":
        return Waiting(cut(str(placed.get("message") or placed.get("reason") or "")))
    reason, machine = str(waiting.get("reason") or ""), machine_of(pod)
    if reason in _ON_ITS_WAY:
        status = pod.get("status") or {}
        return Preparing(machine or None, is_taken="startTime" in status or "containerStatuses" in status)
    why = _joined(reason, waiting.get("message"))
    if reason in _NEVER:
        return Ended(NodeExited(node, why, retryable=False), is_final=False)
    return Waiting(why, PULL_LIMIT_S if reason in _PULL else MEND_LIMIT_S)


def _terminated(node: str, pod: Doc, end: Doc) -> NodeExited:
    code, message = int(end.get("exitCode", 0)), str(end.get("message") or "")
    reason = str(end.get("reason") or "")
    if reason == "OOMKilled" or (reason in _START_ERRORS and "OOM-killed" in message):
        why = "OOMKilled: it ran out of memory and the kernel killed it"
        return NodeExited(node, why, was_killed=True, out_of_memory=True)
    if reason in _START_ERRORS:
        is_hopeless = any(words in message for words in _NO_PROGRAM)
        return NodeExited(node, _joined("it could not be started", message), retryable=not is_hopeless)
    if "deletionTimestamp" in pod["metadata"] or (pod["status"].get("reason") or disruption(pod)):
        return _given_up(node, pod)
    is_killed = code == 128 + signal.SIGKILL
    words, failed = _code_words(code, message), is_failure(code)
    return NodeExited(node, words, was_killed=is_killed, failed=failed, succeeded=code == 0)


def _given_up(node: str, pod: Doc) -> NodeExited:
    """Return the end of a pod whose container did not end by itself."""
    status = pod.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if reason:
        words = f"{_GIVEN_UP[reason]} ({reason})" if reason in _GIVEN_UP else reason
        return NodeExited(node, _joined(words, message))
    if why := disruption(pod):
        return NodeExited(node, why)
    if "deletionTimestamp" in pod["metadata"]:
        return NodeExited(node, DELETED)
    return NodeExited(node, _joined(f"its pod is {status.get('phase')}", message))


def _code_words(code: int, message: str) -> str:
    if code > 128:
        try:
            return f"killed by signal {code - 128} ({signal.Signals(code - 128).name})"
        except ValueError:
            pass  # a code like any other
    if not code:
        return "ended by itself"
    return _joined(f"exit code {code}", last_error(parsed(message)) or _only_line(message))


def _only_line(text: str) -> str:
    """Return what a program wrote about its end, where that is one line and not the end of a log."""
    lines = parsed(text)
    return lines[0][1].strip() if len(lines) == 1 else ""


def _joined(what: str, message: object) -> str:
    what, text = cut(what) or "no reason given", cut(str(message or ""))
    return f"{what}: {text}" if text and text != what else what


def cut(text: str) -> str:
    """Return a message as one line, shortened in the middle."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
