"""Sizes of the pods of a run at the API server: whether it resizes pods in place, and the patches that do.

The server is asked once whether it serves ``pods/resize``. One that refuses for want of the right is not
asked again: each node would be tried in vain.
"""

from __future__ import annotations

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
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.manifests.pods import resources

if TYPE_CHECKING:
    import threading

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.backends.kubernetes.nodes.orders import Resize


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
