"""Reconciles the pods of a job: desired nodes and observed pods in, orders to the API server out.

Level-triggered: orders are computed anew from the desired nodes and the pods that there are. So an order that
was lost, refused or carried out twice does no harm, and a restart of the API server needs no special case.
No I/O, no clock, no lock: the backend's worker carries out the orders one after the other, and reports their
results back.

The newest few failed pods stay, so that their logs can be read; they hold no resources. All other pods are
deleted as soon as they are not desired.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.backends.kubernetes.nodes.orders import AskWhy, Create, Delete, LookFor, Point
from dlrover_nb.core.backends.kubernetes.nodes.pod_status import (
    DELETED,
    PULL_LIMIT_S,
    Ended,
    Leaving,
    Preparing,
    Running,
    Waiting,
    pod_status,
)
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.manifests.pod_parts import NODE_LABEL
from dlrover_nb.core.manifests.pods import MASTER_NOTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.backends.kubernetes.nodes.orders import Action
    from dlrover_nb.core.backends.kubernetes.nodes.pod_status import PodStatus
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.plan.capacity import NodeLimits

GRACE_S = 1  # for a node that is stopped
FORCE_AFTER_S = 15.0  # until a pod that was deleted with grace is removed by force
LOST_AFTER_S = 5.0  # beyond its grace, until a pod that does not end counts as lost with its machine
UNSEEN_S = 10.0  # until a pod that was made and is not observed is looked up
AGAIN_S = 5.0  # until an order that changed nothing is repeated
SLOW_S = 10.0  # a container is usually made by then; later the node counts as waiting
PREPARE_LIMIT_S = 900.0  # for a container to be made: a large image over a slow line
UNTAKEN_LIMIT_S = 60.0  # for a machine to notice a pod; one silent for 40 s gets no new pods
ASK_EVERY_S, LONGEST_ASK_S = 15.0, 300.0  # between queries of why pods take long: they double
N_KEPT = 5  # failed pods


@dataclass(slots=True)
class _Entry:
    """One node that was started and whose pod is not deleted yet."""

    node: str
    name: str  # of its pod
    pod: Doc | None  # to make; None: another master made it
    is_reported_on: bool = True  # False: left by another master, or an old failed one
    is_desired: bool = True
    is_reported: bool = False
    is_observed: bool = False
    is_adopted: bool = False  # and not observed by this master yet
    made_at_s: float | None = None
    delay: str = ""  # why it could not be made so far
    waits: Waiting | Preparing | None = None
    waits_since_s: float = 0.0
    explanation: str = ""  # why it takes long, by its events
    events_read_s: float = float("-inf")
    deletion_ordered_s: float | None = None  # since when its pod is being deleted
    ordered_at_s: float = float("-inf")  # when an order about its pod was given last


class PodReconciler:
    """The pods of one run of a job: those that are desired, and those that are observed.

    Pods are identified by the label of their node; pods of other runs and jobs must not be passed to it.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._node_names: set[str] = set()
        self._failed_pods: list[str] = []  # names of failed pods that stay, oldest first
        self._ended: list[NodeExited] = []
        self._endpoint = ""
        self._takes_in_unknown = self._is_closed = False
        self._n_left = 0
        self._make_after_s = self._ask_after_s = float("-inf")
        self._ask_every_s = ASK_EVERY_S

    # desired state

    def knows(self, node: str) -> bool:
        """Whether a node of this id was started before."""
        return node in self._node_names

    def add_node(self, node: str, pod: Doc) -> None:
        """Desire a node; its pod is created by the next `reconcile`."""
        self._node_names.add(node)
        self._entries[node] = _Entry(node, pod["metadata"]["name"], pod)

    def add_failed(self, node: str, why: str) -> None:
        """Add a node whose pod cannot be described; it is reported as ended."""
        self._node_names.add(node)
        self._ended.append(NodeExited(node, why, retryable=False))

    def set_master_endpoint(self, endpoint: str) -> None:
        """Set the master's endpoint, which `reconcile` writes to all pods."""
        self._endpoint = endpoint

    def remove_node(self, node: str) -> None:
        """Stop a node, if there is one of this id."""
        if (entry := self._entries.get(node)) and entry.is_desired:
            entry.is_desired, entry.deletion_ordered_s = False, None  # others may have deleted it long ago

    def adopt(self, pods: Mapping[str, str], at_s: float) -> None:
        """Adopt nodes of an earlier master, by the names of their pods; all other pods are deleted."""
        self._node_names.update(pods)
        self._takes_in_unknown = True
        for node, name in pods.items():
            self._entries[node] = _Entry(node, name, None, is_observed=True, is_adopted=True, made_at_s=at_s)

    def close(self) -> None:
        """Delete all pods."""
        self._is_closed = self._takes_in_unknown = True
        self._n_left = max(1, len(self._entries))  # until they were observed
        for entry in self._entries.values():
            entry.is_desired = False

    # results of orders

    def pod_created(self, node: str, at_s: float) -> None:
        """Note that a pod was created, or exists already."""
        if entry := self._entries.get(node):
            entry.made_at_s, entry.delay = at_s, ""

    def pod_refused(self, node: str, why: str, limits: NodeLimits | None = None) -> None:
        """Note that the API server refuses this pod for good, and by which limits, if a rule refuses it."""
        if entry := self._entries.pop(node, None):
            self._report(entry, NodeExited(node, why, retryable=False, refused=limits))

    def refuse_all_pods(self, why: str) -> None:
        """Note that the API server refuses every pod of the job."""
        for node in [entry.node for entry in self._entries.values() if entry.made_at_s is None]:
            self.pod_refused(node, why)

    def pod_delayed(self, node: str, why: str, *, until_s: float) -> None:
        """Note that no pod can be created now; all that are to be created wait."""
        self._make_after_s = until_s
        for entry in self._entries.values():
            if entry.made_at_s is None:
                entry.delay = why
        if tried := self._entries.get(node):
            tried.ordered_at_s = until_s  # another one is tried first the next time

    def pod_explained(self, node: str, why: str) -> None:
        """Note why a pod takes long; empty: its events give no reason."""
        if entry := self._entries.get(node):
            entry.explanation = why

    def pod_missing(self, node: str) -> None:
        """Note that a pod that was looked up does not exist."""
        if entry := self._entries.get(node):
            entry.is_observed = True  # it was deleted before it was observed

    # observed state

    def reconcile(self, pods: Mapping[str, Doc], at_s: float) -> tuple[Action, ...]:
        """Return the orders that bring these pods to the desired state."""
        self._failed_pods = [name for name in self._failed_pods if name in pods]
        self._take_in_unknown(pods)
        actions: list[Action] = []
        for entry in tuple(self._entries.values()):
            actions += self._settle(entry, pods.get(entry.name), at_s)
        self._drop_oldest_failed()
        actions += self._ask_why_slow(at_s)
        self._n_left = sum(_is_left(entry, pods.get(entry.name)) for entry in self._entries.values())
        made = [action for action in actions if isinstance(action, Create)]
        made.sort(key=lambda action: self._entries[action.node].ordered_at_s)
        return (*(action for action in actions if not isinstance(action, Create)), *made)

    def exits(self) -> tuple[NodeExited, ...]:
        """Return the nodes that ended since the last call."""
        ended, self._ended = self._ended, []
        return tuple(ended)

    def waiting(self, at_s: float) -> dict[str, str]:
        """Return the nodes that cannot begin, and why."""
        reasons = {entry.node: _wait_reason(entry, at_s) for entry in self._entries.values()}
        return {node: why for node, why in reasons.items() if why is not None}

    def runs(self) -> bool:
        """Whether a desired node runs; an adopted one does until it is observed."""
        desired = (each for each in self._entries.values() if each.is_desired and each.is_observed)
        return any(each.waits is None and not each.is_reported for each in desired)

    @property
    def is_done(self) -> bool:
        """Whether `close` was called and nothing ran any more at the last `reconcile`."""
        return self._is_closed and self._n_left == 0

    def _settle(self, entry: _Entry, pod: Doc | None, at_s: float) -> Iterable[Action]:
        if pod is None:
            return self._settle_absent(entry, at_s)
        entry.is_observed, entry.is_adopted, entry.delay = True, False, ""
        entry.made_at_s = at_s if entry.made_at_s is None else entry.made_at_s
        status = pod_status(entry.node, pod)
        if self._has_ended(entry, status, at_s):
            self._keep_or_remove(entry, pod)
        if entry.node not in self._entries:
            return ()
        if not entry.is_desired:
            return _remove(entry, pod, at_s)
        return self._point(entry, pod, at_s)

    def _settle_absent(self, entry: _Entry, at_s: float) -> Iterable[Action]:
        if entry.made_at_s is None:
            return self._make(entry, at_s)
        if entry.is_observed:
            why = "it ended while its master was away" if entry.is_adopted else DELETED
            self._drop(entry, NodeExited(entry.node, why))
            return ()
        if at_s < max(entry.made_at_s + UNSEEN_S, entry.ordered_at_s + AGAIN_S):
            return ()
        entry.ordered_at_s = at_s
        return (LookFor(entry.node, entry.name),)

    def _make(self, entry: _Entry, at_s: float) -> Iterable[Action]:
        if not entry.is_desired:
            self._drop(entry, NodeExited(entry.node, "it was stopped"))
            return ()
        if entry.pod is None or at_s < self._make_after_s:
            return ()
        if self._endpoint:
            entry.pod["metadata"]["annotations"][MASTER_NOTE] = self._endpoint
        return (Create(entry.node, entry.pod),)

    def _has_ended(self, entry: _Entry, status: PodStatus, at_s: float) -> bool:
        """Report the end of a node, if it has ended; whether nothing of it runs any more."""
        match status:
            case Ended(exited, is_final):
                self._report(entry, exited)
                entry.is_desired = entry.is_desired and is_final
                return is_final
            case Leaving():
                self._observe_leaving(entry, status, at_s)
            case Waiting() | Preparing():
                self._observe_waiting(entry, status, at_s)
            case Running():
                entry.waits = None
            case _ as never:
                assert_never(never)
        return False

    def _observe_leaving(self, entry: _Entry, now: Leaving, at_s: float) -> None:
        entry.waits = None
        if entry.deletion_ordered_s is None:
            entry.deletion_ordered_s = at_s
        if entry.is_desired and at_s >= entry.deletion_ordered_s + now.grace_s + LOST_AFTER_S:
            silent = f", and its machine {now.machine} does not answer" if now.machine else ""
            self._report(entry, NodeExited(entry.node, now.why or DELETED + silent))
            entry.is_desired, entry.deletion_ordered_s = False, at_s - FORCE_AFTER_S

    def _observe_waiting(self, entry: _Entry, now: Waiting | Preparing, at_s: float) -> None:
        before = entry.waits
        if _wait_limit(now) != _wait_limit(before):
            entry.waits_since_s = at_s
        if not (
            _wait_limit(now) == PULL_LIMIT_S and _wait_limit(before) == PULL_LIMIT_S
        ):  # the first one says most
            entry.waits = now
        limit_s = _wait_limit(now)
        if limit_s is not None and entry.is_desired and at_s >= entry.waits_since_s + limit_s:
            why = _wait_reason(entry, at_s) or ""
            late = f"it could not start within {limit_s / 60:g} min: {why}"
            self._report(entry, NodeExited(entry.node, late, retryable=isinstance(now, Preparing)))
            entry.is_desired = False

    def _keep_or_remove(self, entry: _Entry, pod: Doc) -> None:
        """Keep a failed pod for its log; delete one that succeeded, or that was being deleted."""
        is_kept = entry.is_desired and "deletionTimestamp" not in pod["metadata"] and _has_failed(pod)
        if is_kept:
            self._failed_pods.append(entry.name)
            self._entries.pop(entry.node)
            self._make_after_s = float("-inf")  # it may have held the resources that others wait for
        else:
            entry.is_desired = False

    def _ask_why_slow(self, at_s: float) -> Iterable[Action]:
        """Return a query of why a pod takes long: one at a time, each pod in turn."""
        slow = [entry for entry in self._entries.values() if _is_slow(entry, at_s) and entry.is_desired]
        if not slow:
            self._ask_every_s = ASK_EVERY_S
        if not slow or at_s < self._ask_after_s:
            return ()
        entry = min(slow, key=lambda each: each.events_read_s)
        entry.events_read_s, self._ask_after_s = at_s, at_s + self._ask_every_s
        self._ask_every_s = min(LONGEST_ASK_S, 2 * self._ask_every_s)
        return (AskWhy(entry.node, entry.name),)

    def _drop_oldest_failed(self) -> None:
        """Delete the oldest of the failed pods that were kept when there are too many."""
        for name in list(self._failed_pods)[:-N_KEPT]:
            self._failed_pods.remove(name)
            self._entries[name] = _unowned(name)

    def _point(self, entry: _Entry, pod: Doc, at_s: float) -> Iterable[Action]:
        annotation = (pod["metadata"].get("annotations") or {}).get(MASTER_NOTE)
        if not self._endpoint or annotation == self._endpoint or at_s < entry.ordered_at_s + AGAIN_S:
            return ()
        entry.ordered_at_s = at_s
        return (Point(entry.name, self._endpoint),)

    def _take_in_unknown(self, pods: Mapping[str, Doc]) -> None:
        """Take in pods that an earlier master left, or that an order with a lost answer created.

        All of them are deleted, except for a few that failed.
        """
        mine = {entry.name for entry in self._entries.values()}.union(self._failed_pods)
        for name in sorted(pods.keys() - mine):
            if not (
                self._takes_in_unknown or pods[name]["metadata"]["labels"][NODE_LABEL] in self._node_names
            ):
                continue
            if _has_failed(pods[name]) and "deletionTimestamp" not in pods[name]["metadata"]:
                self._failed_pods.append(name)
            else:
                self._entries[name] = _unowned(name)

    def _report(self, entry: _Entry, exited: NodeExited) -> None:
        if entry.is_reported:
            return
        entry.is_reported = True
        if entry.is_reported_on:
            self._ended.append(exited if entry.is_desired else replace(exited, why="it was stopped"))

    def _drop(self, entry: _Entry, exited: NodeExited) -> None:
        self._report(entry, exited)
        del self._entries[entry.node]
        self._make_after_s = float("-inf")


def _unowned(pod: str) -> _Entry:
    """Return the entry of a pod that is to be deleted and whose end is not reported."""
    return _Entry(pod, pod, None, is_reported_on=False, is_desired=False, is_observed=True)


def _remove(entry: _Entry, pod: Doc, at_s: float) -> Iterable[Action]:
    """Return the order that deletes a pod: with a little grace, then by force."""
    if entry.deletion_ordered_s is None:
        entry.deletion_ordered_s = at_s
    is_late, head = at_s >= entry.deletion_ordered_s + FORCE_AFTER_S, pod["metadata"]
    is_short = (head.get("deletionGracePeriodSeconds") or 0) <= GRACE_S  # others give a PS more
    is_asked = "deletionTimestamp" in head and is_short and not is_late
    if is_asked or at_s < entry.ordered_at_s + AGAIN_S:
        return ()
    entry.ordered_at_s = at_s
    return (Delete(entry.name, head["uid"], 0 if is_late else GRACE_S),)


def _is_left(entry: _Entry, pod: Doc | None) -> bool:
    """Whether something of an entry may run, or its pod is not being deleted."""
    return not entry.is_reported or (pod is not None and "deletionTimestamp" not in pod["metadata"])


def _has_failed(pod: Doc) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Failed")


def _wait_limit(waits: Waiting | Preparing | None) -> float | None:
    """Return how long a wait may last, which also identifies its kind."""
    if isinstance(waits, Preparing):
        return UNTAKEN_LIMIT_S if waits.machine and not waits.is_taken else PREPARE_LIMIT_S
    return waits.limit_s if waits else None


def _is_slow(entry: _Entry, at_s: float) -> bool:
    return isinstance(entry.waits, Preparing) and at_s >= entry.waits_since_s + SLOW_S


def _wait_reason(entry: _Entry, at_s: float) -> str | None:
    """Return what an entry waits for; None: nothing."""
    if entry.is_reported or not entry.is_desired:
        return None
    match entry.waits:
        case _ if entry.delay:
            return entry.delay
        case Waiting(why, _):
            return why
        case Preparing() as now if _is_slow(entry, at_s):
            step = _step(now)
            return f"{step}: {entry.explanation}" if entry.explanation else step
    return None


def _step(now: Preparing) -> str:
    """Return what is missing for a container to be made."""
    if not now.machine:
        return "it has not been scheduled yet"
    does = "is creating its container" if now.is_taken else "has not started its pod yet"
    return f"{now.machine} {does}"
