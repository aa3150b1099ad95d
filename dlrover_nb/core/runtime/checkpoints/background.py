"""Threads that work beside the one that serves: their priority, and what they tell it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.checkpoints import MemoryPart

_NICE = 10
WRITER_SHARE = 1 / 10  # of a core: a file of one GiB takes .6 s of it, nine tenths for its checksum


def lower_priority() -> None:
    """Let the calling thread give way to those that train."""
    with contextlib.suppress(OSError):  # a kernel without priorities of threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class Pace:
    """Lets the thread that calls it use a share of a core: priorities do not reach across containers.

    Parameters
    ----------
    share
        Of a core, at most; 1: all of it.
    ending
        Ends each wait.
    """

    def __init__(self, share: float, ending: threading.Event) -> None:
        self._waits, self._ending = 1 / share - 1, ending
        self._used_s = time.thread_time()

    def __call__(self) -> None:
        """Wait for the time that belongs to what was done since the last call."""
        used_s = time.thread_time() - self._used_s
        if self._waits:
            self._ending.wait(used_s * self._waits)
        self._used_s = time.thread_time()


@dataclass(frozen=True, slots=True)
class Persisted:
    """A checkpoint part was written to its file."""

    number: int
    url: str
    sha256: str
    n_byte: int


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """A checkpoint part could not be written; the last good file is unchanged."""

    number: int
    url: str
    why: str


@dataclass(frozen=True, slots=True)
class CopyEnded:
    """What was begun is copied to `memory`, or is not, with the reason in `why`."""

    number: int
    memory: MemoryPart | None
    why: str = ""
