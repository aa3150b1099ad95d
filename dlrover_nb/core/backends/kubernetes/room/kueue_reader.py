"""Reads what Kueue's queue admits, for a job that names one; a job that names none asks for nothing.

A cluster without Kueue is asked for its API once. What may not be read is asked for again much later. Kueue
that does not answer costs nothing but its answer: what it told last holds.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import ApiError, Forbidden, NotThere
from dlrover_nb.core.backends.kubernetes.room.kueue import QueueObjects, queue_of, quota_of
from dlrover_nb.core.backends.kubernetes.room.queue_waits import KUEUE, KUEUE_VERSIONS
from dlrover_nb.core.manifests.kinds import Kind
from dlrover_nb.core.structs.cluster.queue_quota import QueueQuota

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec

logger = logging.getLogger(__name__)

FORBIDDEN_S = 1800.0  # until a forbidden request is tried again
UNREAD = "we may not read it (needs: get localqueues.kueue.x-k8s.io)"


class KueueReader:
    """The queue of one job.

    Parameters
    ----------
    api
        In the job's namespace.
    spec
        How the job's pods are made: their labels name the queue.
    """

    def __init__(self, api: Api, spec: KubernetesSpec) -> None:
        self._api, self._queue = api, queue_of(spec)
        self._is_absent = not self._queue
        self._version = ""
        self._not_before_s: dict[str, float] = {}
        self._quota: QueueQuota | None = None

    def read(self, pods: Iterable[Doc]) -> QueueQuota | None:
        """Return what the queue admits, and what it decided on these pods and their owner; None: no Kueue."""
        if self._is_absent:
            return None
        if time.monotonic() < self._not_before_s.get("LocalQueue", 0.0):
            return self._quota
        try:
            self._find_out()
            if not self._is_absent:
                self._quota = quota_of(self._queue, self._objects(), _owners(pods))
        except Forbidden:
            self._not_before_s["LocalQueue"] = time.monotonic() + FORBIDDEN_S
            self._quota = QueueQuota(self._queue, note=UNREAD)
        except ApiError as error:
            logger.info("queue %s of Kueue cannot be read now: %s", self._queue, error)
        return self._quota

    def _find_out(self) -> None:
        """Find the version of the API that is served."""
        if not self._version:
            kinds = (Kind("LocalQueue", "localqueues", KUEUE, version) for version in KUEUE_VERSIONS)
            self._version = next((kind.version for kind in kinds if self._api.has(kind)), "")
            self._is_absent = not self._version

    def _objects(self) -> QueueObjects:
        return QueueObjects(
            self._local(),
            self._all("ClusterQueue", namespaced=False),
            self._all("Cohort", namespaced=False),
            self._all("Workload", namespaced=True),
        )

    def _local(self) -> Doc | None:
        try:
            return self._api.get(Kind("LocalQueue", "localqueues", KUEUE, self._version), self._queue)
        except NotThere:
            return None

    def _all(self, name: str, *, namespaced: bool) -> tuple[Doc, ...] | None:
        """Return all objects of a kind; None: they may not be read. A kind that is not served has none."""
        kind = Kind(name, f"{name.lower()}s", KUEUE, self._version, namespaced=namespaced)
        if time.monotonic() < self._not_before_s.get(name, 0.0):
            return None
        try:
            return tuple(self._api.list(kind).items)
        except NotThere:
            return ()
        except Forbidden:
            self._not_before_s[name] = time.monotonic() + FORBIDDEN_S
            return None


def _owners(pods: Iterable[Doc]) -> set[str]:
    """Return the uids of pods and of their owners."""
    heads = [pod["metadata"] for pod in pods]
    owners = (owner.get("uid", "") for head in heads for owner in head.get("ownerReferences") or ())
    return {*owners, *(head.get("uid", "") for head in heads)} - {""}
