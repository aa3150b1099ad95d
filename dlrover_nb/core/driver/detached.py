"""Processes that outlive the process that starts them: a local Ray head, the master of a local job.

Each leads its own session, so that neither a Ctrl-C in a terminal nor the end of a notebook's kernel reaches
it. It is identified by its id and start time: ids are reused, the two together are not.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def spawn(command: list[str], log: Path, environment: Mapping[str, str]) -> int:
    """Start a process in its own session, its output appended to `log`; return its id.

    `subprocess.Popen` was rejected: its object warns when it is dropped before the process has ended.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    streams = [(os.POSIX_SPAWN_DUP2, nothing, 0), *((os.POSIX_SPAWN_DUP2, output, to) for to in (1, 2))]
    try:
        return os.posix_spawn(command[0], command, environment, file_actions=streams, setsid=True)
    finally:
        os.close(output)
        os.close(nothing)


def start_time(pid: int) -> float:
    """Return when a process of this machine was started; `psutil.NoSuchProcess` when there is none."""
    return psutil.Process(pid).create_time()


def is_alive(pid: int, started_at_s: float) -> bool:
    """Whether the same process runs; an ended child of ours is reaped."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - started_at_s) < 1
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def last_lines(log: Path, n_line: int = 4) -> str:
    """Return the last lines of a log as one line."""
    return " | ".join(log.read_text(errors="replace").strip().splitlines()[-n_line:])
