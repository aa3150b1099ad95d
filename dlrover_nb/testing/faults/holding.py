"""Who slows a node, on record in the run folder, and how to let the node go.

An injector holds the lock of a node's file for as long as it lives; the kernel frees it when the injector is
killed. The file says what was changed, for any process of the same account to undo it: the process that
asked for the fault, the next one that asks, or `restore`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.driver.detached import has_started_at
from dlrover_nb.core.errors import InvalidValueError, WireError
from dlrover_nb.testing.faults.cpu_group import Quota, set_back
from dlrover_nb.testing.faults.delay_proxy import put_back

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "faults"  # in the run folder


@dataclass(frozen=True, slots=True)
class Hold:
    """What an injector does to a node's process.

    `quota` is that of a control group that was lowered, `socket` a path that a proxy has taken.
    """

    node: str
    pid: int
    started_at_s: float
    by: str
    injector: int
    at_s: float
    how: str
    quota: Quota | None = None
    socket: str = ""


class HoldFile:
    """The record of a node, open and locked; no other process slows the node meanwhile."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> Hold | None:
        """Return what is on record; None: nothing is held."""
        data = os.pread(self._descriptor, 1 << 20, 0)
        try:
            return from_json(data, Hold) if data else None
        except WireError:  # its writer was killed amid the first write, before it did anything
            return None

    def write(self, hold: Hold | None) -> None:
        """Put on record what is held; to be called before it is done."""
        data = b"" if hold is None else to_json(hold)
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def let_go(self) -> str:
        """Undo what is on record; return in words what was held, empty: nothing."""
        hold = self.read()
        if hold is None:
            return ""
        _undo(hold)
        self.write(None)
        return f"{hold.node} (process {hold.pid}): {hold.how}"


@contextlib.contextmanager
def held(folder: Path, node: str) -> Iterator[HoldFile]:
    """Lock the record of a node.

    Parameters
    ----------
    folder
        The run folder.

    Raises
    ------
    InvalidValueError
        When another injector has it; it says who.
    """
    path = folder / FOLDER / f"{node}.json"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    file = HoldFile(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InvalidValueError(_refusal(node, file.read())) from error
        yield file
    finally:
        os.close(descriptor)


def held_nodes(folder: Path) -> list[str]:
    """Return the nodes of a run folder that have a record."""
    return sorted(path.stem for path in (folder / FOLDER).glob("*.json"))


def _refusal(node: str, hold: Hold | None) -> str:
    if hold is None:
        return f"{node} is about to be slowed by another process; try again"
    since = time.strftime("%H:%M:%S", time.localtime(hold.at_s))
    return (
        f"{node} is slowed already: {hold.how} (since {since}, by {hold.by}, process {hold.injector}); "
        "end that first: a node has one fault at a time, but patterns of delays can be combined with Together"
    )


def _undo(hold: Hold) -> None:
    if hold.quota is not None:
        set_back(hold.quota)
    if hold.socket:
        put_back(Path(hold.socket))
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        if has_started_at(hold.pid, hold.started_at_s):
            os.kill(hold.pid, signal.SIGCONT)
