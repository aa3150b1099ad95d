"""Lists machines, quotas and others' pods once a minute, as far as allowed; queries never block.

Four requests a minute at the most. What is forbidden is asked for again much later: rights seldom change,
and each refusal is an entry in an audit log. The job's capacity is computed here too, once per refresh:
a large cluster has too many pods to sum in the master's loop, and a quota's use must be compared with the
job's pods of the same moment.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.backends.kubernetes.client.api_errors import ApiError, Forbidden, NotThere
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import Looked, capacity_of, hosts_of, room_of
from dlrover_nb.core.backends.kubernetes.room.kueue_reader import KueueReader
from dlrover_nb.core.deadline.host_choice import is_stale
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.kinds import NODE, NODE_METRICS, POD, QUOTA

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import Tenant
    from dlrover_nb.core.deadline.host_choice import Host
    from dlrover_nb.core.manifests.kinds import Doc, Kind
    from dlrover_nb.core.structs.cluster.queue_quota import QueueQuota
    from dlrover_nb.core.structs.plan.capacity import Capacity

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0
FORBIDDEN_S = 1800.0  # until a forbidden list is tried again
SOON_S = 5.0  # until a first refresh that failed, or lacked the job's own pods, is tried again
FIRST_LIMIT_S = 20.0  # for the first refresh
_LIVING = "status.phase!=Succeeded,status.phase!=Failed"


class ClusterCapacity(NamedTuple):
    """A job's maximum capacity, the part that is free or its own, the loads of machines, and its queue."""

    capacity: Capacity
    room: Capacity
    hosts: tuple[Host, ...] = ()
    queue: QueueQuota | None = None


class CapacityInformer:
    """The last observed capacity; refreshed by a thread until `close`.

    Parameters
    ----------
    api
        In the job's namespace.
    tenant
        The job.
    fallback
        Capacity observed elsewhere, used where nothing may be listed.
    mine
        Returns the pods of the job's nodes; None while they are not known.
    """

    def __init__(
        self, api: Api, tenant: Tenant, fallback: Capacity | None, mine: Callable[[], Collection[Doc] | None]
    ) -> None:
        self._api, self._tenant, self._fallback, self._mine = api, tenant, fallback, mine
        self._everywhere, self._kueue = api.within(""), KueueReader(api, tenant.spec)
        self._not_before_s: dict[str, float] = {}
        self._listed_s: dict[str, float] = {}
        self._capacity: ClusterCapacity | None = None
        self._read_s = 0.0
        self._error: BackendError | None = None
        self._first, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"capacity-{tenant.job}", daemon=True)
        self._thread.start()

    def latest(self) -> ClusterCapacity:
        """Return the last observation; only the first one is waited for.

        Raises
        ------
        BackendError
            When it did not come: why not.
        """
        if self._capacity is None and not self._closed.is_set():
            self._first.wait(FIRST_LIMIT_S)
        if self._capacity is None:
            raise self._error or BackendError(
                f"the cluster of job {self._tenant.job} has not been read yet; try again"
            )
        return self._capacity

    def hosts(self) -> tuple[Host, ...]:
        """Return the machines with their loads; none where these are not known, or too old."""
        is_old = is_stale(self._read_s, time.monotonic(), LOOK_EVERY_S)
        return () if self._capacity is None or is_old else self._capacity.hosts

    def queue(self) -> QueueQuota | None:
        """Return what the job's queue of Kueue admits; None: there is none, or it was not read yet."""
        return None if self._capacity is None else self._capacity.queue

    def close(self) -> None:
        """End the thread without waiting for a pending request."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            mine = self._mine()
            try:
                self._capacity, self._error = self._read(mine or ()), None
                self._first.set()
            except BackendError as error:
                self._error = error
                logger.info("job %s cannot read the capacity of the cluster now: %s", self._tenant.job, error)
            self._closed.wait(SOON_S if self._capacity is None or mine is None else LOOK_EVERY_S)

    def _read(self, mine: Collection[Doc]) -> ClusterCapacity:
        read_s, looked = time.monotonic(), self._look()
        looked = replace(looked, queue=self._kueue.read(mine))
        capacity = capacity_of(looked, self._tenant, self._fallback)
        room = room_of(looked, self._tenant, self._fallback, mine=mine)
        self._read_s = read_s
        return ClusterCapacity(capacity, room, hosts_of(looked, self._tenant), looked.queue)

    def _look(self) -> Looked:
        nodes = self._list(self._everywhere, NODE)
        pods = self._list(self._everywhere, POD, fields=_LIVING) if nodes is not None else None
        metrics = self._optional(self._everywhere, NODE_METRICS) if nodes is not None else None
        return Looked(nodes, self._list(self._api, QUOTA) or (), pods, metrics)

    def _list(self, api: Api, kind: Kind, *, fields: str = "") -> tuple[Doc, ...] | None:
        """Return all objects of a kind; None: listing them is forbidden.

        Raises
        ------
        BackendError
            When a list fails, or was allowed until now: what it told last is kept for a while.
        """
        now_s = time.monotonic()
        if now_s < self._not_before_s.get(kind.plural, 0.0):
            return None
        try:
            objects = tuple(api.list(kind, fields=fields).items)
        except Forbidden:
            if now_s < self._listed_s.get(kind.plural, float("-inf")) + FORBIDDEN_S:
                raise
            self._not_before_s[kind.plural] = now_s + FORBIDDEN_S
            return None
        self._listed_s[kind.plural] = now_s
        return objects

    def _optional(self, api: Api, kind: Kind) -> tuple[Doc, ...] | None:
        """Return all objects of a kind that clusters may lack; None: they cannot be read now."""
        now_s, name = time.monotonic(), f"{kind.plural}.{kind.group}"
        if now_s < self._not_before_s.get(name, 0.0):
            return None
        try:
            return tuple(api.list(kind).items)
        except (Forbidden, NotThere) as error:
            again_s = FORBIDDEN_S if isinstance(error, Forbidden) else inf
            self._not_before_s[name] = now_s + again_s
        except ApiError as error:
            logger.info("%s cannot be read now: %s", name, error)
        return None
