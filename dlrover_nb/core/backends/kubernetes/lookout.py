"""Looks once a minute at machines, quotas and the pods of others, where it may; asked, it answers at once.

Three requests a minute at the most. What is forbidden is asked for again much later: rights seldom change,
and each refusal stands in somebody's audit log.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.answers import Forbidden
from dlrover_nb.core.backends.kubernetes.capacity import Looked
from dlrover_nb.core.backends.kubernetes.kinds import NODE, POD, QUOTA
from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.api import Api
    from dlrover_nb.core.backends.kubernetes.kinds import Doc, Kind

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0
FORBIDDEN_S = 1800.0  # until what was forbidden is asked for again
FAILED_S = 5.0  # until a first look that failed is tried again
FIRST_LIMIT_S = 20.0  # for the first look
_LIVING = "status.phase!=Succeeded,status.phase!=Failed"


class Lookout:
    """What was seen of the cluster last; looks in a thread of its own until `close`.

    Parameters
    ----------
    api
        In the job's namespace.
    name
        The job's.
    """

    def __init__(self, api: Api, *, name: str) -> None:
        self._api, self._name = api, name
        self._everywhere = api.within("")
        self._not_before_s: dict[str, float] = {}
        self._looked: Looked | None = None
        self._error: BackendError | None = None
        self._first, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lookout-{name}", daemon=True)
        self._thread.start()

    def looked(self) -> Looked:
        """Return what was seen last; only the first look is waited for.

        Raises
        ------
        BackendError
            When it did not come: why not.
        """
        if self._looked is None and not self._closed.is_set():
            self._first.wait(FIRST_LIMIT_S)
        if self._looked is None:
            raise self._error or BackendError(f"the cluster of job {self._name} was not seen; try again")
        return self._looked

    def close(self) -> None:
        """End the thread; a request that is on its way is not waited for."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._looked, self._error = self._look(), None
            except BackendError as error:
                self._error = error
                logger.info("job %s does not see the cluster now: %s", self._name, error)
            if self._error is None:
                self._first.set()
            self._closed.wait(FAILED_S if self._looked is None else LOOK_EVERY_S)

    def _look(self) -> Looked:
        nodes = self._list(self._everywhere, NODE)
        pods = self._list(self._everywhere, POD, fields=_LIVING) if nodes is not None else None
        return Looked(nodes, self._list(self._api, QUOTA) or (), pods)

    def _list(self, api: Api, kind: Kind, *, fields: str = "") -> tuple[Doc, ...] | None:
        """Return all objects of a kind; None: we may not list them."""
        now_s = time.monotonic()
        if now_s < self._not_before_s.get(kind.plural, 0.0):
            return None
        try:
            return tuple(api.list(kind, fields=fields).items)
        except Forbidden:
            self._not_before_s[kind.plural] = now_s + FORBIDDEN_S
            return None
