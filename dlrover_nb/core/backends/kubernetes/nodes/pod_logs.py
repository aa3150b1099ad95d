"""Follows pod logs through the API server: each line once, also across broken connections.

Each line has the time at which its machine took it, to the nanosecond. A connection that ends is reopened
from the last second that was read, and lines of that second that are known are skipped. Within a connection
the order of lines is that of the log, so that a machine whose clock is set back loses none.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import ApiError, NotThere
from dlrover_nb.core.structs.job.external import Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc

logger = logging.getLogger(__name__)

PAUSE_S = 1.0  # before a log is requested again
MOST_FOLLOWED = 64  # nodes whose logs are read: each costs a connection
MOST_LINES = 20_000  # that are buffered; of more the oldest are lost
NS = 1_000_000_000
_STAMP = re.compile(
    r"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.(?P<part>\d{1,9}))?(?P<zone>Z|[+-]\d\d:\d\d) (?P<text>.*)",
    re.DOTALL,
)


class PodLogs:
    """Follows the logs of one job's pods.

    Parameters
    ----------
    api
        In the job's namespace.
    """

    def __init__(self, api: Api) -> None:
        self._api, self._lock = api, threading.Lock()
        self._since_ns: dict[str, int] | None = None  # None: not requested yet
        self._lines: deque[Written] = deque(maxlen=MOST_LINES)
        self._followed: dict[str, threading.Thread] = {}
        self._closed = threading.Event()
        self._ended: set[str] = set()  # nodes whose program has ended

    def begin(self, since_ns: Mapping[str, int]) -> None:
        """Read from now on; for the nodes named, only lines after that time."""
        self._since_ns = dict(since_ns)

    def see(self, node: str, pod: Doc) -> None:
        """Note a pod whose program has begun, and maybe ended."""
        if pod["status"].get("phase") in {"Succeeded", "Failed"}:
            self._ended.add(node)
        if self._since_ns is None or node in self._followed:
            return
        if sum(thread.is_alive() for thread in self._followed.values()) >= MOST_FOLLOWED:
            return
        name, since_ns = pod["metadata"]["name"], self._since_ns.get(node, 0)
        thread = threading.Thread(
            target=self._follow, args=(node, name, since_ns), name=f"log-{name}", daemon=True
        )
        self._followed[node] = thread
        thread.start()

    def take(self) -> tuple[Written, ...]:
        """Return the lines that came since the last call."""
        with self._lock:
            lines, self._lines = tuple(self._lines), deque(maxlen=MOST_LINES)
        return lines

    def close(self) -> None:
        """Stop reading; a thread that waits for a line of a deleted pod ends with its connection."""
        self._closed.set()

    def _follow(self, node: str, pod: str, read_ns: int) -> None:
        while not self._closed.is_set():
            is_last = node in self._ended
            try:
                known_ns = read_ns
                for line in self._api.log(pod, follow=not is_last, timestamps=True, since=_second(read_ns)):
                    at_ns, text = parse_line(line)
                    if at_ns > known_ns:
                        self._keep(Written(node, at_ns, text))
                        read_ns, known_ns = max(read_ns, at_ns), 0  # all lines after a new one are new
            except NotThere:
                return
            except ApiError as error:
                logger.debug("the log of %s is read again: %s", pod, error)
                is_last = False
            if is_last:
                return
            self._closed.wait(PAUSE_S)

    def _keep(self, line: Written) -> None:
        with self._lock:
            self._lines.append(line)


def parse_line(line: str) -> tuple[int, str]:
    """Return the time of a line, and the rest; 0 for a line without a time, as some errors are."""
    match = _STAMP.fullmatch(line)
    if match is None:
        return 0, line
    second = datetime.fromisoformat(match["second"] + match["zone"])
    return int(second.timestamp()) * NS + int((match["part"] or "0").ljust(9, "0")), match["text"]


def _second(at_ns: int) -> str:
    """Return a time cut to its second, in the API server's format; empty for none."""
    return datetime.fromtimestamp(at_ns // NS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at_ns else ""
