"""What is to be done about the pods of a job: wishes and what is seen in, orders to the API server out.

Level-triggered: what follows is worked out anew from what is wished and what pods there are, so an order that
was lost, refused or carried out twice does no harm, and a restart of the API server needs no care. No I/O, no
clock, no lock: the backend's worker carries out the orders, one after the other, and tells what became of
them.

Pods that failed stay, the newest few, so that their logs can be read; they hold nothing. All others go as
soon as they are not wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.backends.kubernetes.orders import AskWhy, Create, Delete, LookFor, Point
from dlrover_nb.core.backends.kubernetes.pod_status import (
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
from dlrover_nb.core.manifests.parts import NODE_LABEL
from dlrover_nb.core.manifests.pods import MASTER_NOTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.backends.kubernetes.orders import Action
    from dlrover_nb.core.backends.kubernetes.pod_status import PodStatus
    from dlrover_nb.core.manifests.kinds import Doc

GRACE_S = 1  # for a node that is stopped
FORCE_AFTER_S = 15.0  # until a pod that was asked to go is removed by force
LOST_AFTER_S = 5.0  # beyond its grace, until a pod that does not end counts as one of a machine that is away
UNSEEN_S = 10.0  # until a pod that was made and is not seen is looked for
AGAIN_S = 5.0  # until an order that changed nothing is given again
SLOW_S = 10.0  # a container is usually made by then; later it is told that it is waited for
PREPARE_LIMIT_S = 900.0  # for a container to be made: a large image over a slow line
ASK_EVERY_S, LONGEST_ASK_S = 15.0, 300.0  # for why pods take long: ever less often, as events are many
N_KEPT = 5  # failed pods


@dataclass(slots=True)
class _Entry:
    """One node that was asked for and whose pod has not gone."""

    node: str
    name: str  # of its pod
    pod: Doc | None  # to make; None: another master made it
    is_asked_for: bool = True  # False: left by another master, or an old failed one; nobody waits for its end
    is_wanted: bool = True
    is_told: bool = False
    is_seen: bool = False
    is_adopted: bool = False  # and was not seen by this master yet
    made_at_s: float | None = None
    held_up: str = ""  # why it could not be made so far
    waits: Waiting | Preparing | None = None
    waits_since_s: float = 0.0
    heard: str = ""  # of why it takes long
    asked_why_s: float = float("-inf")
    told_to_go_s: float | None = None  # since when its pod is to go
    asked_at_s: float = float("-inf")  # when an order about its pod was given last


class PodReconciler:
    """The pods of one run of a job: those that are wanted, and those that are there.

    Pods are known by the label of their node; those of other runs and jobs are not to be shown to it.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._known: set[str] = set()
        self._kept: list[str] = []  # names of failed pods that stay, oldest first
        self._ended: list[NodeExited] = []
        self._endpoint = ""
        self._may_sweep = self._is_closed = False
        self._n_left = 0
        self._make_after_s = self._ask_after_s = float("-inf")
        self._ask_every_s = ASK_EVERY_S

    # wishes

    def knows(self, node: str) -> bool:
        """Whether a node of this id was asked for before."""
        return node in self._known

    def want(self, node: str, pod: Doc) -> None:
        """Ask for a node."""
        self._known.add(node)
        self._entries[node] = _Entry(node, pod["metadata"]["name"], pod)

    def never(self, node: str, why: str) -> None:
        """Note that a node was asked for whose pod cannot even be written down."""
        self._known.add(node)
        self._ended.append(NodeExited(node, why, retryable=False))

    def meet(self, endpoint: str) -> None:
        """Have all pods know that the master is at `endpoint`."""
        self._endpoint = endpoint

    def unwant(self, node: str) -> None:
        """Have a node stopped, if there is one."""
        if entry := self._entries.get(node):
            entry.is_wanted = False

    def adopt(self, pods: Mapping[str, str], at_s: float) -> None:
        """Take over nodes of a master before this one, by the names of their pods; all others are to go."""
        self._known.update(pods)
        self._may_sweep = True
        for node, name in pods.items():
            entry = _Entry(node, name, None, is_seen=True, is_adopted=True, made_at_s=at_s)
            self._entries[node] = entry

    def close(self) -> None:
        """Have all go."""
        self._is_closed = self._may_sweep = True
        self._n_left = max(1, len(self._entries))  # until they were looked at
        for entry in self._entries.values():
            entry.is_wanted = False

    # what became of orders

    def created(self, node: str, at_s: float) -> None:
        """Hear that a pod was made, or is there already."""
        if entry := self._entries.get(node):
            entry.made_at_s, entry.held_up = at_s, ""

    def refused(self, node: str, why: str) -> None:
        """Hear that the API server will never make this pod."""
        if entry := self._entries.pop(node, None):
            self._tell(entry, NodeExited(node, why, retryable=False))

    def refuse_all(self, why: str) -> None:
        """Hear that no pod of the job can ever be made."""
        for node in [entry.node for entry in self._entries.values() if entry.made_at_s is None]:
            self.refused(node, why)

    def held_up(self, node: str, why: str, *, until_s: float) -> None:
        """Hear that no pod can be made now; all that are to be made wait for that."""
        self._make_after_s = until_s
        for entry in self._entries.values():
            if entry.made_at_s is None:
                entry.held_up = why
        if tried := self._entries.get(node):
            tried.asked_at_s = until_s  # another one is tried first the next time

    def heard(self, node: str, why: str) -> None:
        """Hear why a pod takes long; empty: its events do not tell."""
        if entry := self._entries.get(node):
            entry.heard = why

    def missing(self, node: str) -> None:
        """Hear that a pod that was looked for is not there."""
        if entry := self._entries.get(node):
            entry.is_seen = True  # it went before it was seen

    # what is seen

    def see(self, pods: Mapping[str, Doc], at_s: float) -> tuple[Action, ...]:
        """Return what is to be done, now that these pods are there."""
        self._kept = [name for name in self._kept if name in pods]
        self._sweep(pods)
        actions: list[Action] = []
        for entry in tuple(self._entries.values()):
            actions += self._settle(entry, pods.get(entry.name), at_s)
        self._crowd_out()
        actions += self._ask(at_s)
        self._n_left = sum(_is_left(entry, pods.get(entry.name)) for entry in self._entries.values())
        made = [action for action in actions if isinstance(action, Create)]
        made.sort(key=lambda action: self._entries[action.node].asked_at_s)
        return (*(action for action in actions if not isinstance(action, Create)), *made)

    def exits(self) -> tuple[NodeExited, ...]:
        """Return the nodes that ended since the last call."""
        ended, self._ended = self._ended, []
        return tuple(ended)

    def waiting(self, at_s: float) -> dict[str, str]:
        """Return the nodes that cannot begin, and why."""
        told = {entry.node: _waits(entry, at_s) for entry in self._entries.values()}
        return {node: why for node, why in told.items() if why is not None}

    @property
    def is_done(self) -> bool:
        """Whether all was told to go, and nothing of it ran any more when it was seen last."""
        return self._is_closed and self._n_left == 0

    def _settle(self, entry: _Entry, pod: Doc | None, at_s: float) -> Iterable[Action]:
        if pod is None:
            return self._absent(entry, at_s)
        entry.is_seen, entry.is_adopted, entry.held_up = True, False, ""
        entry.made_at_s = at_s if entry.made_at_s is None else entry.made_at_s
        verdict = pod_status(entry.node, pod)
        if self._is_over(entry, verdict, at_s):
            self._keep_or_drop(entry, pod)
        if entry.node not in self._entries:
            return ()
        if not entry.is_wanted:
            return _remove(entry, pod, at_s)
        return self._point(entry, pod, at_s)

    def _absent(self, entry: _Entry, at_s: float) -> Iterable[Action]:
        if entry.made_at_s is None:
            return self._make(entry, at_s)
        if entry.is_seen:
            why = "it ended while its master was away" if entry.is_adopted else DELETED
            self._forget(entry, NodeExited(entry.node, why))
            return ()
        if at_s < max(entry.made_at_s + UNSEEN_S, entry.asked_at_s + AGAIN_S):
            return ()
        entry.asked_at_s = at_s
        return (LookFor(entry.node, entry.name),)

    def _make(self, entry: _Entry, at_s: float) -> Iterable[Action]:
        if not entry.is_wanted:
            self._forget(entry, NodeExited(entry.node, "it was stopped"))
            return ()
        if entry.pod is None or at_s < self._make_after_s:
            return ()
        if self._endpoint:
            entry.pod["metadata"]["annotations"][MASTER_NOTE] = self._endpoint
        return (Create(entry.node, entry.pod),)

    def _is_over(self, entry: _Entry, verdict: PodStatus, at_s: float) -> bool:
        """Tell the end of a node, if this is it; whether nothing of it runs any more."""
        match verdict:
            case Ended(exited, is_final):
                self._tell(entry, exited)
                entry.is_wanted = entry.is_wanted and is_final
                return is_final
            case Leaving():
                self._see_leaving(entry, verdict, at_s)
            case Waiting() | Preparing():
                self._see_waiting(entry, verdict, at_s)
            case Running():
                entry.waits = None
            case _ as never:
                assert_never(never)
        return False

    def _see_leaving(self, entry: _Entry, now: Leaving, at_s: float) -> None:
        entry.waits = None
        if entry.told_to_go_s is None:
            entry.told_to_go_s = at_s
        if entry.is_wanted and at_s >= entry.told_to_go_s + now.grace_s + LOST_AFTER_S:
            lost = f"its machine {now.machine} does not answer" if now.machine else DELETED
            self._tell(entry, NodeExited(entry.node, now.why or lost))
            entry.is_wanted, entry.told_to_go_s = False, at_s - FORCE_AFTER_S

    def _see_waiting(self, entry: _Entry, now: Waiting | Preparing, at_s: float) -> None:
        before = entry.waits
        if _kind(now) != _kind(before):
            entry.waits_since_s = at_s
        if not (_kind(now) == PULL_LIMIT_S and _kind(before) == PULL_LIMIT_S):  # the first one says most
            entry.waits = now
        limit_s = PREPARE_LIMIT_S if isinstance(now, Preparing) else now.limit_s
        if limit_s is not None and entry.is_wanted and at_s >= entry.waits_since_s + limit_s:
            why = _waits(entry, at_s) or ""
            late = f"it could not begin within {limit_s / 60:g} minutes: {why}"
            self._tell(entry, NodeExited(entry.node, late, retryable=isinstance(now, Preparing)))
            entry.is_wanted = False

    def _keep_or_drop(self, entry: _Entry, pod: Doc) -> None:
        """Keep a failed pod for its log; one that ended well, or was to go, goes."""
        is_kept = entry.is_wanted and "deletionTimestamp" not in pod["metadata"] and _has_failed(pod)
        if is_kept:
            self._kept.append(entry.name)
            self._entries.pop(entry.node)
            self._make_after_s = float("-inf")  # what it held may be what others wait for
        else:
            entry.is_wanted = False

    def _ask(self, at_s: float) -> Iterable[Action]:
        """Return the question why a pod takes long: one at a time, each in its turn."""
        slow = [entry for entry in self._entries.values() if _is_slow(entry, at_s) and entry.is_wanted]
        if not slow:
            self._ask_every_s = ASK_EVERY_S
        if not slow or at_s < self._ask_after_s:
            return ()
        entry = min(slow, key=lambda each: each.asked_why_s)
        entry.asked_why_s, self._ask_after_s = at_s, at_s + self._ask_every_s
        self._ask_every_s = min(LONGEST_ASK_S, 2 * self._ask_every_s)
        return (AskWhy(entry.node, entry.name),)

    def _crowd_out(self) -> None:
        """Have the oldest of the pods that were kept go when there are too many."""
        for name in list(self._kept)[:-N_KEPT]:
            self._kept.remove(name)
            self._entries[name] = _of_nobody(name)

    def _point(self, entry: _Entry, pod: Doc, at_s: float) -> Iterable[Action]:
        known = (pod["metadata"].get("annotations") or {}).get(MASTER_NOTE)
        if not self._endpoint or known == self._endpoint or at_s < entry.asked_at_s + AGAIN_S:
            return ()
        entry.asked_at_s = at_s
        return (Point(entry.name, self._endpoint),)

    def _sweep(self, pods: Mapping[str, Doc]) -> None:
        """Take in what a master before this one left, and what was made without our knowing.

        All of it goes, except for a few that failed.
        """
        mine = {entry.name for entry in self._entries.values()}.union(self._kept)
        for name in sorted(pods.keys() - mine):
            if not (self._may_sweep or pods[name]["metadata"]["labels"][NODE_LABEL] in self._known):
                continue
            if _has_failed(pods[name]) and "deletionTimestamp" not in pods[name]["metadata"]:
                self._kept.append(name)
            else:
                self._entries[name] = _of_nobody(name)

    def _tell(self, entry: _Entry, exited: NodeExited) -> None:
        if entry.is_told:
            return
        entry.is_told = True
        if entry.is_asked_for:
            self._ended.append(exited if entry.is_wanted else replace(exited, why="it was stopped"))

    def _forget(self, entry: _Entry, exited: NodeExited) -> None:
        self._tell(entry, exited)
        del self._entries[entry.node]
        self._make_after_s = float("-inf")


def _of_nobody(pod: str) -> _Entry:
    """Return the entry of a pod that is to go and whose node nobody asks about."""
    return _Entry(pod, pod, None, is_asked_for=False, is_wanted=False, is_seen=True)


def _remove(entry: _Entry, pod: Doc, at_s: float) -> Iterable[Action]:
    """Return what removes a pod: with a little grace, and by force when that does not help."""
    if entry.told_to_go_s is None:
        entry.told_to_go_s = at_s
    is_late = at_s >= entry.told_to_go_s + FORCE_AFTER_S
    is_asked = "deletionTimestamp" in pod["metadata"] and not is_late
    if is_asked or at_s < entry.asked_at_s + AGAIN_S:
        return ()
    entry.asked_at_s = at_s
    return (Delete(entry.name, pod["metadata"]["uid"], 0 if is_late else GRACE_S),)


def _is_left(entry: _Entry, pod: Doc | None) -> bool:
    """Whether something may run of an entry, or its pod has not been told to go."""
    return not entry.is_told or (pod is not None and "deletionTimestamp" not in pod["metadata"])


def _has_failed(pod: Doc) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Failed")


def _kind(waits: Waiting | Preparing | None) -> float | None:
    """Return what tells waits of one kind from others: how long they may last."""
    if isinstance(waits, Preparing):
        return PREPARE_LIMIT_S
    return waits.limit_s if waits else None


def _is_slow(entry: _Entry, at_s: float) -> bool:
    return isinstance(entry.waits, Preparing) and at_s >= entry.waits_since_s + SLOW_S


def _waits(entry: _Entry, at_s: float) -> str | None:
    """Return what an entry waits for; None: nothing."""
    if entry.is_told or not entry.is_wanted:
        return None
    match entry.waits:
        case _ if entry.held_up:
            return entry.held_up
        case Waiting(why, _):
            return why
        case Preparing(machine) if _is_slow(entry, at_s):
            making = f"{machine} makes its container" if machine else "no scheduler has looked at it yet"
            return f"{making}: {entry.heard}" if entry.heard else making
    return None
