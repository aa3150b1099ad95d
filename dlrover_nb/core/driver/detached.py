"""Processes that outlive the process that starts them: a local Ray head, the master of a local job.

Each leads its own session, so that neither a Ctrl-C in a terminal nor the end of a notebook's kernel reaches
it. It is identified by its id and start time: ids are reused, the two together are not.

The start time is counted from the machine's boot, as the kernel has it. As a date it would move whenever the
machine's clock is set, and a living process would no longer be recognized.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROC = Path("/proc")
_DATES_S = 1e9  # from here on a start time is a date, as in records of release 0.1
_CLOSE_S = 1.0  # of dates: the time of the boot is known to the second


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
    """Return when a process was started, in seconds since the boot; a date where the kernel has only that.

    Raises
    ------
    psutil.NoSuchProcess
        When there is none.
    """
    if not _PROC.joinpath("self", "stat").exists():
        return psutil.Process(pid).create_time()
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    ticks = int(text.rpartition(")")[2].split()[19])  # the name before it may hold anything
    return ticks / os.sysconf("SC_CLK_TCK")


def has_started_since(pid: int, started_at_s: float) -> bool:
    """Whether a process was started at a time of `start_time` or later; raises as that."""
    if started_at_s < _DATES_S:
        return start_time(pid) >= started_at_s
    return psutil.Process(pid).create_time() > started_at_s - _CLOSE_S


def has_started_at(pid: int, started_at_s: float) -> bool:
    """Whether a process is the one that was started at a time of `start_time`; raises as that."""
    if started_at_s < _DATES_S:
        return start_time(pid) == started_at_s
    return abs(psutil.Process(pid).create_time() - started_at_s) < _CLOSE_S


def is_alive(pid: int, started_at_s: float) -> bool:
    """Whether the same process runs; an ended child of ours is reaped."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return has_started_at(pid, started_at_s) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def last_lines(log: Path, n_line: int = 4) -> str:
    """Return the last lines of a log as one line."""
    return " | ".join(log.read_text(errors="replace").strip().splitlines()[-n_line:])
