"""Threads that work beside the one that serves: their priority, and what they tell it."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.core.structs.checkpoints import MemoryPart

_NICE = 10


def lower_priority() -> None:
    """Let the calling thread give way to those that train."""
    with contextlib.suppress(OSError):  # a kernel without priorities of threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


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
