"""The one way in which tests wait for another process: on a fact, with one limit for all.

The limit only decides how long a broken test takes to fail: a minute of a machine that has nothing else to do. Where
more processes want the cores than there are, each gets its share of them, and the limit is as much longer.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
FREE_LIMIT_S = 60.0
POLL_S = 0.05


def crowd(load: float, n_worker: int, n_core: int) -> float:
    """Return how many times longer all takes, by the load before the run and the worker processes of the run."""
    return max(1.0, (load + n_worker) / n_core)


LIMIT_S = FREE_LIMIT_S * crowd(
    os.getloadavg()[0],
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
    len(os.sched_getaffinity(0)),
)


def until(condition: Callable[[], T], what: object = "it") -> T:
    """Poll what another process brings about; return its first true value.

    `what` names it in the message of a failure; a function is called for the state at that moment.
    """
    end = time.monotonic() + LIMIT_S
    while not (value := condition()):
        if time.monotonic() > end:
            state = what() if callable(what) else what
            raise AssertionError(f"{state} did not come about within {LIMIT_S:g} s")
        time.sleep(POLL_S)
    return value


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one whose parent is gone may have to wait until its end is noted."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
