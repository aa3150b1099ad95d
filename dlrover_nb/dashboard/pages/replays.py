"""The journals that this server has read, for time travel: the last few, each read once, on a thread.

A long journal takes a while, and a page must not hang meanwhile: a request waits for a moment, and is then
told how far the reading is. At most two journals are read at a time, so that readers of the past leave the
processor to those who look at the present.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.disk.paths import run_roots
from dlrover_nb.core.driver.past.time_travel import Replay, run_of
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.rundir.pruning import job_of

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

MOST_REPLAYS = 4
MOST_AT_ONCE = 2
WAIT_S = 2.0
FRESH_S = 5.0  # for so long, the end of a running job's journal is not looked for again


@dataclass(frozen=True, slots=True)
class Reading:
    """A journal that is being read."""

    n_read: int
    n_byte: int

    @property
    def words(self) -> str:
        """How far it is, as a sentence."""
        most = max(self.n_read, self.n_byte)
        return f"The journal is being read: {self.n_read / 1e6:,.1f} of {most / 1e6:,.1f} MB."


class _Entry:
    def __init__(self, replay: Replay) -> None:
        self.replay, self.n_read, self.is_read = replay, 0, threading.Event()
        self.is_busy, self.due_s = False, 0.0  # by `time.monotonic`: when to read on


class Replays:
    """Replays by run, the least used of which goes first; for any thread."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock, self._turns = threading.Lock(), threading.Semaphore(MOST_AT_ONCE)

    def ask(self, job: str, run: str, *, wait_s: float = WAIT_S) -> Replay | Reading | None:
        """Return the replay of a run, read to its present end; None where its journal is not here.

        Where reading takes longer than `wait_s`, it goes on, and what is returned says how far it is.
        """
        entry = self._entry(job, run)
        if entry is None:
            return None
        if not entry.is_read.wait(wait_s):
            return Reading(entry.n_read, entry.replay.n_byte)
        return entry.replay

    def _entry(self, job: str, run: str) -> _Entry | None:
        with self._lock:
            entry = self._entries.get(run)
        if entry is None:
            folder = find_folder(job, run)
            if folder is None:
                return None
            try:
                entry = _Entry(Replay(folder))
            except DlroverError as error:
                logger.warning("the journal of %s cannot be replayed: %s", run, error)
                return None
        with self._lock:
            entry = self._entries.setdefault(run, entry)
            self._entries.move_to_end(run)
            while len(self._entries) > MOST_REPLAYS:
                self._entries.popitem(last=False)
            if not entry.is_busy and time.monotonic() >= entry.due_s:
                entry.is_busy, entry.n_read = True, 0
                entry.is_read.clear()
                threading.Thread(target=self._read, args=(entry,), name="dlrover-replay", daemon=True).start()
        return entry

    def _read(self, entry: _Entry) -> None:
        def on_read(n_byte: int) -> None:
            entry.n_read += n_byte

        try:
            with self._turns:
                entry.replay.read_on(on_read)
        except OSError as error:  # a volume that is gone; what was read is shown
            logger.warning("the journal in %s is read in part: %s", entry.replay.folder, error)
        finally:
            entry.due_s = time.monotonic() + FRESH_S
            entry.is_read.set()
            entry.is_busy = False


def find_folder(job: str, run: str) -> Path | None:
    """Return the folder that has the journal of a run; None where none on this machine has."""
    for root in run_roots():
        for folder in sorted(root.glob("*"), reverse=True):
            if job_of(folder) == job and run_of(folder) == run:
                return folder
    return None


REPLAYS = Replays()
