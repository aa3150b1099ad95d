"""External programs in pods: fits `core.driver.backend.ExternalBackend`.

A program's variables are desired state like the pods: after each change they are compared with the annotation
of the pod, and written where they differ.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Forbidden,
    Unauthorized,
    Unreachable,
)
from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.nodes.pod_logs import PodLogs
from dlrover_nb.core.backends.kubernetes.nodes.pod_status import Ended, Running, pod_status
from dlrover_nb.core.manifests.external_pod import CLUSTER_NOTE
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.manifests.pod_parts import NODE_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.backends.kubernetes.nodes.site import Site
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.job.external import Written
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

logger = logging.getLogger(__name__)

AGAIN_S = 5.0  # until an annotation is written again whose change was not observed


class ExternalPods(KubernetesBackend):
    """Backend for one run of an external job; see `KubernetesBackend`."""

    def __init__(self, job: PodJob, site: Site) -> None:
        self._texts: dict[str, str] = {}
        self._patched_at_s: dict[tuple[str, str], float] = {}
        self._texts_lock = threading.Lock()
        self._pod_logs = PodLogs(site.api)
        super().__init__(job, site)

    def addresses(self) -> Mapping[str, str]:
        """Return the addresses of running pods."""
        return {
            node: pod["status"]["podIP"]
            for node, pod in self._pods().items()
            if isinstance(pod_status(node, pod), Running) and pod["status"].get("podIP")
        }

    def send_environment(self, node: str, text: str) -> None:
        """Set a pod's desired annotation."""
        with self._texts_lock:
            self._texts[node] = text
        self._wake()

    def follow_logs(self, since_ns: Mapping[str, int]) -> None:
        """Begin to read what the pods' programs write."""
        self._pod_logs.begin(since_ns)
        self._wake()

    def written(self) -> tuple[Written, ...]:
        """Return the lines that were written since the last call."""
        return self._pod_logs.take()

    def stop_node(self, node: str) -> None:
        """Stop a node's pod."""
        with self._texts_lock:
            self._texts.pop(node, None)
        super().stop_node(node)

    def close(self) -> None:
        """Delete all pods of the run and wait until none runs."""
        super().close()
        self._pod_logs.close()

    # the worker's thread

    def _bring(self) -> None:
        super()._bring()
        for node, pod in self._pods().items():
            if isinstance(pod_status(node, pod), Running | Ended):
                self._pod_logs.see(node, pod)
        try:
            self._write_texts()
        except (Unreachable, Unauthorized) as error:
            logger.debug("job %s: pods get their peers' addresses later: %s", self._name, error)
        except Forbidden as error:
            self._refused(CLUSTER_NOTE, error)
        except ApiError as error:
            logger.warning("job %s: a pod did not get the addresses of its peers: %s", self._name, error)

    def _write_texts(self) -> None:
        with self._texts_lock:
            texts = dict(self._texts)
        now_s = time.monotonic()
        for node, pod in self._pods().items():
            annotation = (pod["metadata"].get("annotations") or {}).get(CLUSTER_NOTE, "")
            text = texts.get(node, annotation)
            if text != annotation and now_s >= self._patched_at_s.get((node, text), float("-inf")) + AGAIN_S:
                name = pod["metadata"]["name"]
                self._patched_at_s[node, text] = now_s
                self._site.api.patch(POD, name, {"metadata": {"annotations": {CLUSTER_NOTE: text}}})

    def _pods(self) -> dict[str, Doc]:
        """Return the run's pods by node."""
        return {pod["metadata"]["labels"][NODE_LABEL]: pod for pod in self._informer.items().values()}
