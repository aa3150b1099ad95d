"""The one way in which tests wait for another process: on a fact, with one limit for all.

The limit is generous, because it only decides how long a broken test takes to fail; a slow machine must not reach it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
LIMIT_S = 600.0  # below pytest's own limit of a test (`timeout` in pyproject.toml)
POLL_S = 0.05


def until(condition: Callable[[], T], what: object = "it") -> T:
    """Poll what another process brings about; return its first true value.

    `what` names it in the message of a failure; a function is called for the state at that moment.
    """
    end = time.monotonic() + LIMIT_S
    while not (value := condition()):
        if time.monotonic() > end:
            told = what() if callable(what) else what
            raise AssertionError(f"{told} did not come about within {LIMIT_S:g} s")
        time.sleep(POLL_S)
    return value


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one whose parent is gone may have to wait until somebody takes note of that."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
