"""Sizes of pods at the API server: the patches that resize them, and what its refusals say of sizes.

A LimitRange names its limit in the refusal. An admission webhook or a policy says anything, so its limit is
learned: where a pod is refused that has more of something than every pod that was made, less of that is the
limit. One that is refused though a pod of its size was made says nothing of sizes.

What was learned is forgotten after a while: rules change without a word to us. A plan that is refused once
more costs one request, as the job goes on with the plan that runs. To list LimitRanges was rejected: a right
more for every master, for what one refusal tells, and webhooks cannot be listed.

The server is asked once whether it serves ``pods/resize``. One that refuses for want of the right is not
asked again: each node would be tried in vain.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Forbidden,
    Inadmissible,
    NotThere,
    Unauthorized,
    Unreachable,
)
from dlrover_nb.core.backends.kubernetes.nodes.pod_resizer import PodResizer
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.quantities import MIB, amount
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.manifests.pods import resources
from dlrover_nb.core.structs.plan.capacity import NodeLimits
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    import threading

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.backends.kubernetes.nodes.orders import Resize
    from dlrover_nb.core.structs.plan.resources import Size

LEARNED_S = 1800.0  # how long limits hold that were learned: as long as a forbidden list is not asked for
_LIMIT = re.compile(
    r"(?P<end>maximum|minimum) (?P<what>cpu|memory) usage per (?:Container|Pod) is (?P<limit>[^\s,\]]+)"
)


class PodSizes:
    """Resizes pods through an API server.

    Parameters
    ----------
    api
        In the namespace of the pods.
    lock
        Of `resizer`, which the master's loop uses too.

    Attributes
    ----------
    resizer
        Desired and observed sizes.
    is_offered
        Whether the server resizes pods for this master; None: it was not asked yet.
    """

    def __init__(self, api: Api, lock: threading.Lock) -> None:
        self._api, self._lock = api, lock
        self.resizer = PodResizer()
        self.is_offered: bool | None = None

    def find_out(self) -> None:
        """Ask once whether pods can be resized; a server that does not answer is asked again."""
        if self.is_offered is None:
            try:
                self.is_offered = self._api.has(POD, subresource="resize")
            except ApiError as error:
                self.is_offered = None if isinstance(error, Unreachable | Unauthorized) else False

    def send(self, order: Resize) -> None:
        """Ask for another size of a pod."""
        container = {"name": order.container, "resources": resources(order.cpu, order.memory_mib)}
        patch = {"spec": {"containers": [container]}}
        try:
            self._api.patch(POD, order.pod, patch, subresource="resize", form="strategic-merge")
        except Forbidden as error:
            self.is_offered = False
            with self._lock:
                self.resizer.refuse_all(str(error))
        except (NotThere, Inadmissible) as error:
            with self._lock:
                self.resizer.refuse(order.node, str(error))


class RefusedSizes:
    """The sizes of the pods of one run that were made, and the limits by which others were refused."""

    def __init__(self) -> None:
        self._made: set[Size] = set()
        self._limits: NodeLimits | None = None
        self._learned_s = 0.0

    def made(self, need: Size) -> None:
        """Note the size of a pod that was made."""
        self._made.add(need)

    def refused(self, need: Size, message: str, at_s: float) -> NodeLimits:
        """Note a refusal; return what it says about sizes: no limits where that is nothing."""
        limits = stated(message) or inferred(need, self._made, message)
        if limits:
            self._limits = (self.limits(at_s) or NodeLimits()).narrowed(limits)
            self._learned_s = at_s
        return limits

    def limits(self, at_s: float) -> NodeLimits | None:
        """Return the limits that hold now; None: none are known."""
        return self._limits if at_s < self._learned_s + LEARNED_S else None


def stated(message: str) -> NodeLimits:
    """Return the limits that a LimitRange's refusal names."""
    limits = NodeLimits()
    for named in _LIMIT.finditer(message):
        try:
            value = float(amount(named["limit"], named["what"]))
        except InvalidValueError:
            continue
        match named["what"], named["end"]:
            case "cpu", "maximum":
                one = NodeLimits(most_cpu=value, why=message)
            case "cpu", _:
                one = NodeLimits(least_cpu=value, why=message)
            case _, "maximum":
                one = NodeLimits(most_memory_mib=math.floor(value / MIB), why=message)
            case _:
                one = NodeLimits(least_memory_mib=math.ceil(value / MIB), why=message)
        limits = limits.narrowed(one)
    return limits


def inferred(need: Size, made: set[Size], message: str) -> NodeLimits:
    """Return the limits that explain why this size was refused and those that were made were not."""
    cpu, memory_mib = need
    if not made:
        return NodeLimits(why=message)
    return NodeLimits(
        most_cpu=round(cpu - CPU_STEP, 2) if cpu > max(of for of, _ in made) else None,
        most_memory_mib=memory_mib - 1 if memory_mib > max(of for _, of in made) else None,
        why=message,
    )
