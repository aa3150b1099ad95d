"""`Outbox`: takes alerts at once, and sends them from a thread of its own, again and again if need be.

Each destination has its own, so that a dead one delays no other. Where more alerts come than it can send, the
oldest are dropped, with a line in the log: what is wrong now matters more than what was wrong first, and the
page has them all.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.errors import DlroverError

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.alerts import Alert

logger = logging.getLogger(__name__)

MOST = 200  # alerts that wait
ATTEMPTS_AFTER_S = (0.0, 2.0, 10.0, 60.0, 300.0)


class Sender(Protocol):
    """Carries one alert to one destination."""

    @property
    def name(self) -> str:
        """What logs call it; it holds no secret."""
        ...

    def send(self, alert: Alert) -> None:
        """Send an alert, or raise `BackendError`; it may wait."""
        ...


class Outbox:
    """Sends alerts to one destination until `close`.

    Parameters
    ----------
    sender
        Carries them.
    attempts_after_s
        Seconds before each attempt of one alert; after the last one it is given up.
    most
        Alerts that may wait.
    """

    def __init__(
        self, sender: Sender, *, attempts_after_s: tuple[float, ...] = ATTEMPTS_AFTER_S, most: int = MOST
    ) -> None:
        self._sender, self._after_s = sender, attempts_after_s
        self._waiting: deque[Alert] = deque(maxlen=most)
        self._changed, self._is_over = threading.Condition(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="dlrover-outbox", daemon=True)
        self._thread.start()

    def put(self, alert: Alert) -> None:
        """Take an alert; it is sent later."""
        with self._changed:
            if len(self._waiting) == self._waiting.maxlen:
                dropped = self._waiting[0]
                logger.warning("%s is too slow: not told of %s", self._sender.name, dropped.title)
            self._waiting.append(alert)
            self._changed.notify()

    def close(self) -> None:
        """Stop sending; what waits is given up."""
        with self._changed:
            self._is_over.set()
            self._changed.notify()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while (alert := self._taken()) is not None:
            self._deliver(alert)

    def _taken(self) -> Alert | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_over.is_set())
            return None if self._is_over.is_set() else self._waiting.popleft()

    def _deliver(self, alert: Alert) -> None:
        error: DlroverError | None = None
        for after_s in self._after_s:
            if self._is_over.wait(after_s):
                return
            try:
                self._sender.send(alert)
            except DlroverError as failed:
                error = failed
            else:
                logger.info("%s was told: %s", self._sender.name, alert.title)
                return
        logger.warning("%s could not be told of %s: %s", self._sender.name, alert.title, error)
