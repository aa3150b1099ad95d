"""Pods that are resized in place: desired sizes and observed pods in, orders to the API server out.

Kubernetes serves ``pods/resize`` by default since 1.33. A patch of it changes what the pod asks for; the
kubelet then changes the container, or says in a condition of the pod why it does not. ``status`` holds what
the container may really use, and that alone counts as done: a kubelet that is too old for it, or one that
puts a smaller memory limit off while more is in use, changes nothing and need not say so.

Requests equal limits before and after, as a pod's class (Guaranteed) cannot change. Only our own container is
named: one that was put beside it keeps its size.

No I/O, no clock, no lock, as `pod_reconciler`; the backend's worker carries out the orders of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.nodes.orders import Resize
from dlrover_nb.core.backends.kubernetes.nodes.pod_status import condition, cut
from dlrover_nb.core.driver.backend import NodeAllotted
from dlrover_nb.core.export.quantities import MIB, amount
from dlrover_nb.core.manifests.pods import CONTAINER
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.plan.resources import Size

DEFERRED_LIMIT_S = 30.0  # for a kubelet to find room, to free memory, or to act at all
AGAIN_S = 5.0  # until an order that changed nothing is repeated


@dataclass(slots=True)
class _Request:
    node: str
    pod: str
    need: Size
    ordered_at_s: float = float("-inf")  # when the order was given last
    since_s: float | None = None  # since when the pod asks for it


class PodResizer:
    """Desired sizes of running pods of one run."""

    def __init__(self) -> None:
        self._requests: dict[str, _Request] = {}
        self._allotted: list[NodeAllotted] = []

    def want(self, node: str, pod: str, need: Size) -> None:
        """Desire another size of a node's pod; the last one counts."""
        self._requests[node] = _Request(node, pod, need)

    def forget(self, node: str) -> None:
        """Drop what was desired for a node that ends."""
        self._requests.pop(node, None)

    def refuse(self, node: str, why: str) -> None:
        """Note that the API server does not resize this pod."""
        if (request := self._requests.get(node)) is not None:
            self._tell(request, why)

    def refuse_all(self, why: str) -> None:
        """Note that the API server resizes no pods."""
        for node in tuple(self._requests):
            self.refuse(node, why)

    def allotted(self) -> tuple[NodeAllotted, ...]:
        """Return what became of desired sizes since the last call."""
        allotted, self._allotted = self._allotted, []
        return tuple(allotted)

    def reconcile(self, pods: Mapping[str, Doc], at_s: float) -> tuple[Resize, ...]:
        """Return the orders that bring these pods to their desired sizes."""
        there = [(request, pods[request.pod]) for request in self._requests.values() if request.pod in pods]
        return tuple(order for request, pod in there for order in self._settle(request, pod, at_s))

    def _settle(self, request: _Request, pod: Doc, at_s: float) -> Iterable[Resize]:
        if not _asks_for(pod, request.need):
            if at_s < request.ordered_at_s + AGAIN_S:
                return ()
            request.ordered_at_s = at_s
            return (Resize(request.node, request.pod, CONTAINER, *request.need),)
        request.since_s = at_s if request.since_s is None else request.since_s
        if _has(pod, request.need):
            self._tell(request)
        elif (why := infeasible(pod)) or at_s >= request.since_s + DEFERRED_LIMIT_S:
            self._tell(request, why or f"{what_it_waits_for(pod)} (for {DEFERRED_LIMIT_S:g} s)")
        return ()

    def _tell(self, request: _Request, why: str = "") -> None:
        self._allotted.append(NodeAllotted(request.node, request.need, why))
        self._requests = {node: each for node, each in self._requests.items() if each is not request}


def infeasible(pod: Doc) -> str:
    """Return why the kubelet rejects what a pod asks for now; empty: it does not."""
    pending = _present(pod, "PodResizePending")
    return _text(pending) if pending and pending.get("reason") == "Infeasible" else ""


def what_it_waits_for(pod: Doc) -> str:
    """Return why a resize is not done, as far as the kubelet says."""
    state = _present(pod, "PodResizePending") or _present(pod, "PodResizeInProgress")
    return _text(state) if state else "its kubelet does not resize it and gives no reason"


def _present(pod: Doc, kind: str) -> Doc | None:
    """Return a condition that is true of what the pod asks for now, not of an earlier request."""
    state = condition(pod, kind)
    if state is None or state.get("status") != "True":
        return None
    generation = pod["metadata"].get("generation", 0)
    return state if state.get("observedGeneration", generation) >= generation else None


def _text(state: Doc) -> str:
    reason = str(state.get("reason") or state["type"].removeprefix("PodResize"))
    return cut(": ".join(part for part in (reason, str(state.get("message") or "")) if part))


def _asks_for(pod: Doc, need: Size) -> bool:
    (own,) = [each for each in pod["spec"]["containers"] if each["name"] == CONTAINER]
    return all(_is_near((own.get("resources") or {}).get(of), need) for of in ("requests", "limits"))


def _has(pod: Doc, need: Size) -> bool:
    """Whether the container may use exactly that; requests are reported as shares, which are rounded."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    own: Doc = next((each for each in containers if each.get("name") == CONTAINER), {})
    return _is_near((own.get("resources") or {}).get("limits"), need)


def _is_near(resources: Mapping[str, object] | None, need: Size) -> bool:
    """Whether amounts are those of a need: the kernel rounds CPU to less than a plan's step."""
    if not resources or not {"cpu", "memory"} <= resources.keys():
        return False
    cpu, mib = float(amount(resources["cpu"], "cpu")), float(amount(resources["memory"], "memory")) / MIB
    return abs(cpu - need[0]) < CPU_STEP / 2 and abs(mib - need[1]) < 1
