"""Ray's own messages go to a log file while a verb runs; an error says where.

Ray's client writes from compiled code to file descriptor 2 (a lost head alone brings a dozen lines of
``gcs_rpc_client.h``), and by the logger `ray`. None of it helps the user of a verb, whose result or error
says what counts. So while a verb runs that uses Ray, descriptor 2 is the log file, and Python's own standard
error goes where it went before. Ray's settings cannot do that: they have a level, but no file for the client,
and a fatal message comes at any level.

A notebook's kernel takes its descriptor back after each verb; a process of the command line keeps it until it
exits, as Ray's last words come then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.disk.paths import state_folder
from dlrover_nb.core.errors import DlroverError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO, Unpack

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.connect.kinds import Options
    from dlrover_nb.magics.commands import Connector

STDERR = 2
LOG = "ray-messages.log"
MOST_BYTES = 1 << 20  # a log that is larger begins anew


@dataclass(frozen=True, slots=True)
class _Before:
    """What `end` restores, and the log that takes the messages until then."""

    path: Path
    descriptor: int
    stderr: TextIO
    stand_in: TextIO  # what `sys.stderr` is until then: `stderr` where that does not use the descriptor
    handler: logging.Handler
    propagates: bool


class RayMessages:
    """The messages of Ray's client in this process: kept in a log between `begin` and `end`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: _Before | None = None
        self._path: Path | None = None
        self._size = 0  # of the log when it began

    @property
    def hint(self) -> str:
        """Where Ray's messages are; empty where none came to this verb since it began to use Ray."""
        with contextlib.suppress(OSError):
            if self._path is not None and self._path.stat().st_size > self._size:
                return f"Ray's own messages are in {self._path}"
        return ""

    def forget(self) -> None:
        """Say nothing of messages so far: another verb begins, which may not use Ray at all."""
        with self._lock:
            self._path = None

    def begin(self) -> None:
        """Keep messages in the log from now on; where it cannot be written, they stay on the screen."""
        with self._lock, contextlib.suppress(OSError, DlroverError):
            if self._before is None:
                self._before = self._redirect(state_folder() / LOG)
            elif self._path is None:  # an earlier verb of this process began
                self._size = self._before.path.stat().st_size
            self._path = self._before.path

    def end(self) -> None:
        """Let messages go where they went before."""
        with self._lock:
            before, self._before = self._before, None
            if before is None:
                return
            os.dup2(before.descriptor, STDERR)
            os.close(before.descriptor)
            if sys.stderr is before.stand_in:  # else other code has replaced it since
                sys.stderr = before.stderr
            ray = logging.getLogger("ray")
            ray.removeHandler(before.handler)
            ray.propagate = before.propagates
            before.handler.close()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep messages while a verb runs that may use Ray: it is loaded, or the verb connects to it."""
        self.forget()
        if "ray" in sys.modules:
            self.begin()
        try:
            yield
        finally:
            self.end()

    def kept_by(self, connector: Connector) -> Connector:
        """Return a connector that begins before it connects to Ray."""

        def connect(
            kind: str, address: str | None, *, start: bool = True, **options: Unpack[Options]
        ) -> Cluster:
            if kind == "ray":
                self.begin()
            return connector(kind, address, start=start, **options)

        return connect

    def _redirect(self, path: Path) -> _Before:
        with path.open("ab") as log:
            if log.tell() > MOST_BYTES:
                log.truncate(0)
            self._size = log.tell()
            stderr = sys.stderr
            stderr.flush()
            stderr_copy = os.dup(STDERR)
            os.dup2(log.fileno(), STDERR)
        if _writes_to(stderr, STDERR):
            sys.stderr = os.fdopen(os.dup(stderr_copy), "w", 1, stderr.encoding, "backslashreplace")
        handler, ray = logging.FileHandler(path, delay=True), logging.getLogger("ray")
        before = _Before(path, stderr_copy, stderr, sys.stderr, handler, ray.propagate)
        ray.addHandler(handler)
        ray.propagate = False
        return before


def _writes_to(stream: TextIO, descriptor: int) -> bool:
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError):  # a notebook's, or none of a file
        return False


RAY_MESSAGES = RayMessages()  # a process has one descriptor 2
