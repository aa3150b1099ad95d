"""Starts the master of a local job again when it is killed: ``master_supervisor.py RUN_FOLDER COMMAND...``.

It is the parent of the master and waits for its end: the parent alone learns the exit code or the signal. A
master that the kernel killed for its memory at night is back within a second, without any client. What
follows on an end is decided by `next_step`; the job itself is continued by the master, as when a client
starts it.

- Two masters of one job are prevented as among clients: the second one starts under ``start.lock`` only.
- It is no single point of loss. If it is killed too, the next client starts both anew. After a restart of
  the machine nothing is left that could start anything: the next client does.
- It holds a lock on ``supervisor.json`` for as long as it lives, so there is one of them for a job, and a
  client that starts the master, stops or deletes the job finds it and ends it (SIGTERM).

Rejected: that the nodes start their master, since programs of external jobs are not ours, each node would
need the limit, and none of them learns how the master ended; a daemon for all jobs, since it would be one
point of loss for all of them; a unit of systemd, which containers and notebook servers lack.

It is run by its path and imports only the standard library: it takes a few MiB, where the kernel that is
short of memory looks for the largest process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

MASTER, END, START_LOCK, SUPERVISOR = "master.json", "end.bin", "start.lock", "supervisor.json"
MOST_RESTARTS, WITHIN_S = 5, 600.0
# None before the first: most masters are killed once. A machine that is out of memory for some minutes must
# not use them up.
PAUSES_S = (0.0, 5.0, 25.0, 125.0, 300.0)
HOLD_LIMIT_S = 90.0  # of `start.lock`, while a master begins
POLL_S = 0.05
TERMINATED = 128 + signal.SIGTERM
NOT_RUN = 127  # as a shell says that a command is not there
DAMAGED = 65  # of a master whose job cannot be continued: it will not get better by itself
_BY_REQUEST = (0, TERMINATED, -signal.SIGTERM)


class Ended(NamedTuple):
    """How a master ended: exit code (of a signal negative), monotonic time, and whether its job had begun."""

    code: int
    at_s: float
    has_begun: bool


class Step(NamedTuple):
    """What follows: seconds until the master is started again (None: it is not), and the words for `jobs`."""

    restart_after_s: float | None
    words: str = ""


def next_step(ended: Ended, restarts_s: Sequence[float]) -> Step:
    """Decide what follows on the end of a master.

    The pauses grow, so that only masters that live for less than half a minute reach the limit: all others
    get on with the job.

    Parameters
    ----------
    restarts_s
        When masters were started again, on the clock of `Ended.at_s`.
    """
    if ended.code in _BY_REQUEST or not ended.has_begun:
        return Step(None)  # the client that submits the job hears why it does not begin
    if ended.code == DAMAGED:
        return Step(None, "its master cannot go on, because files of the job are damaged")
    n_restart = sum(at_s > ended.at_s - WITHIN_S for at_s in restarts_s)
    how = how_ended(ended.code)
    if n_restart >= MOST_RESTARTS:
        often = f"{n_restart} times within {WITHIN_S / 60:.0f} minutes"
        return Step(None, f"its master was restarted {often} and ended each time; the last one {how}")
    pause_s = PAUSES_S[n_restart]
    when = f"in {pause_s:g} s" if pause_s else "now"
    return Step(pause_s, f"its master {how}; restarting it {when}")


def how_ended(code: int) -> str:
    """Return how a process ended, by its exit code (of a signal negative): the words after its name."""
    if code == -signal.SIGKILL:
        return "was killed by signal 9 (SIGKILL), perhaps because the machine was out of memory"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "of real time"
        return f"was killed by signal {-code} ({name})"
    return f"ended with exit code {code}"


def supervise(folder: Path, command: list[str], note: Callable[[Step], None]) -> None:
    """Run a master, and again after each end without a request; return when none is wanted any more."""
    restarts_s: list[float] = []
    ended = _run(folder, command)
    while not _is_over(folder):
        step = next_step(ended, restarts_s)
        note(step)
        if step.restart_after_s is None:
            return
        address = _address(folder)
        time.sleep(step.restart_after_s)
        if _is_over(folder):
            return
        with _start_lock(folder) as release:
            if _is_over(folder) or _address(folder) != address:
                return  # a client has ended the job, or started its master
            restarts_s.append(time.monotonic())
            ended = _run(folder, [*command, how_ended(ended.code)], lambda: note(Step(None)), release)


class _Master:
    """The process of the master; 0 while there is none."""

    pid = 0


def _run(folder: Path, command: list[str], *on_begun: Callable[[], None]) -> Ended:
    """Run a master to its end; call `on_begun` once it has begun, or is slow to."""
    before, slow_s = _address(folder), time.monotonic() + HOLD_LIMIT_S
    try:
        _Master.pid = os.posix_spawn(command[0], command, os.environ, setsid=True)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error}\n")
        return Ended(NOT_RUN, time.monotonic(), has_begun=before is not None)
    while (code := _code(os.WNOHANG)) is None and _address(folder) == before and time.monotonic() < slow_s:
        time.sleep(POLL_S)
    if code is None:
        for call in on_begun:
            call()
        code = _code(0)
    assert code is not None
    return Ended(code, time.monotonic(), has_begun=_address(folder) is not None)


def _code(options: int) -> int | None:
    """Return the exit code of the master; None while it runs."""
    pid, status = os.waitpid(_Master.pid, options)
    if not pid:
        return None
    _Master.pid = 0
    return os.waitstatus_to_exitcode(status)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """Ask the master to end, which ends this process too; without one, end."""
    if not _Master.pid:
        os._exit(TERMINATED)
    os.kill(_Master.pid, signal.SIGTERM)


def _address(folder: Path) -> tuple[int, int] | None:
    """Return what tells one address of a master from that of the next: its file is replaced."""
    try:
        status = (folder / MASTER).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _is_over(folder: Path) -> bool:
    """Whether the job has ended, or was deleted."""
    return (folder / END).exists() or not folder.exists()


@contextlib.contextmanager
def _start_lock(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the lock under which masters are started; what is yielded releases it before."""
    with (folder / START_LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(file, fcntl.LOCK_UN)


def main() -> None:
    """Supervise the master of the command line."""
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    record = os.open(folder / SUPERVISOR, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(record, fcntl.LOCK_EX)  # a client has ended the one before

    def note(step: Step) -> None:
        words = step.words and f"{time.strftime('%H:%M:%S UTC', time.gmtime())}: {step.words}"
        text = {"pid": os.getpid(), "words": words, "is_waiting": step.restart_after_s is not None}
        with contextlib.suppress(OSError):  # a full disk keeps no master from being started
            os.ftruncate(record, 0)
            os.pwrite(record, json.dumps(text).encode(), 0)

    note(Step(None))
    signal.signal(signal.SIGTERM, _leave)
    supervise(folder, command, note)


if __name__ == "__main__":
    main()
