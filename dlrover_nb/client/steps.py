"""Report training progress to dlrover-nb from any program, in two lines.

::

    from dlrover_nb.report import step   # or copy dlrover_nb.client.steps.py into the image, and import that
    step(samples=512, loss=loss)         # after each step

In a pod of a job it finds the job's master by itself; anywhere else, and while the master is unreachable, it
does nothing. It never blocks, never raises, and needs only Python 3.7 or newer.

It reports totals since the program started, once a second, so a lost report is covered by the next.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import threading
import time
import urllib.request

__all__ = ["step"]

_EVERY_S = 1.0
_LIMIT_S = 2.0  # for an answer of the master
_MIB = 1 << 20


class _Reporter:
    """Counts steps, and reports the totals from a thread of its own."""

    def __init__(self) -> None:
        self._node = os.environ.get("DLROVER_NB_NODE", "")
        self._token = os.environ.get("DLROVER_NB_REPORT_TOKEN", "")
        self._file = os.environ.get("DLROVER_NB_REPORT_FILE", "")
        self._rank = int(os.environ.get("LOCAL_RANK") or 0)
        self._process = os.getpid()
        self._program = f"{self._process}-{time.time_ns():x}"
        self._lock = threading.Lock()
        self._begun_s: float | None = None
        self._at_s, self._n_iter, self._n_sample = 0.0, 0, 0
        self._loss: float | None = None
        self._n_done: int | None = None
        self._n_sent = 0
        self._ends, self._has_ended = threading.Event(), threading.Event()
        # proxies of the machine are for hosts outside of the cluster
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    @property
    def has_master(self) -> bool:
        """Whether there is a master to report to."""
        return bool(self._node and self._token and self._file)

    def add(self, n_iter: int, n_sample: int, loss: float | None, n_done: int | None) -> None:
        """Count steps."""
        now_s = time.monotonic()
        with self._lock:
            is_first = self._begun_s is None
            if self._begun_s is None:
                self._begun_s = now_s
            self._at_s = now_s - self._begun_s
            self._n_iter, self._n_sample = self._n_iter + n_iter, self._n_sample + n_sample
            self._loss = loss if loss is None or math.isfinite(loss) else None
            self._n_done = n_done
        if is_first:
            threading.Thread(target=self._run, name="dlrover-nb-report", daemon=True).start()
            atexit.register(self._end)

    def _send_totals(self) -> None:
        """Report new totals; a failure is ignored."""
        n_iter, totals = self._n_iter, self._totals()
        if n_iter == self._n_sent:
            return
        try:
            self._post(json.dumps(totals).encode())
        except Exception:  # noqa: BLE001 - no fault of the connection stops training
            return
        self._n_sent = n_iter

    def _totals(self) -> dict[str, object]:
        times = os.times()
        with self._lock:
            return {
                "node": self._node,
                "program": self._program,
                "rank": self._rank,
                "at_s": self._at_s,
                "n_iter": self._n_iter,
                "n_sample": self._n_sample,
                "n_done": self._n_done,
                "loss": self._loss,
                "cpu_s": times.user + times.system,
                "memory_mib": _memory_mib(),
            }

    def _run(self) -> None:
        self._send_totals()
        while not self._ends.wait(_EVERY_S):
            self._send_totals()
        self._send_totals()
        self._has_ended.set()

    def _end(self) -> None:
        """Allow a short time for the last report; a fork inherits this call, but not the thread."""
        if self._process == os.getpid():
            self._ends.set()
            self._has_ended.wait(_LIMIT_S)

    def _post(self, body: bytes) -> None:
        with open(self._file) as file:  # read anew: a new master has a new address
            url = file.read().strip()
        headers = {"Content-Type": "application/json", "X-Dlrover-Report": self._token}
        request = urllib.request.Request(url, body, headers)  # noqa: S310 - the address is the job's own
        self._open(request, timeout=_LIMIT_S).close()


def _memory_mib() -> float:
    """Return the resident memory of this process; 0 where that is not known."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MIB
    except (OSError, ValueError, IndexError):
        return 0.0


_reporters: dict[int, _Reporter] = {}  # by process: a fork inherits the counts but not the thread


def step(samples: int, loss: float | None = None, *, done: int | None = None, steps: int = 1) -> None:
    """Report finished training steps.

    Parameters
    ----------
    samples
        Samples that were trained in them.
    loss
        Mean over these samples, if known; a number, or what ``float()`` makes one of.
    done
        Samples that the whole job has trained so far, if the program knows; without it they are added up.
    steps
        Number of steps, where this is not called after each one.
    """
    try:
        process = os.getpid()
        if process not in _reporters:
            _reporters[process] = _Reporter()
        if _reporters[process].has_master:
            n_done = None if done is None else int(done)
            _reporters[process].add(int(steps), int(samples), None if loss is None else float(loss), n_done)
    except Exception:  # noqa: BLE001 - a report must never stop training
        return
