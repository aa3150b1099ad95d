"""Runs a program with all that it starts as one: ``supervisor.py CODE_FILE HOW COMMAND...``.

It adopts the orphans among the program's descendants (PR_SET_CHILD_SUBREAPER), since programs start others
in sessions of their own, as torchrun does, which no signal to a process group reaches. When the program ends,
its exit code is written to a file, for those who are not its parent, and all that it left is killed.

Asked to end by SIGTERM, it asks the program, and after a while kills all. With ``while-stdin`` as HOW, not
``by-itself``, it also kills all at once when its standard input ends: that is a pipe that another process
holds open, and the kernel closes it however that process dies. The kernel's own signal for the death of a
parent (PR_SET_PDEATHSIG) was rejected: it is sent when the thread that started the child ends, and reaches
the child alone.

It is run by its path and imports only the standard library, so that each program costs few MiB more.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

GRACE_S = 10.0  # for a program to save its training
WHILE_STDIN, BY_ITSELF = "while-stdin", "by-itself"
KILLED = 128 + signal.SIGKILL
_SET_CHILD_SUBREAPER = 36
_ENDS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_PROC = Path("/proc")


def run(command: list[str], *, while_stdin: bool) -> int | None:
    """Run a program to its end; return its exit code as a shell does, None when it was ended by force."""
    woken = _wakened()
    program = _started(command)
    watched, ends_at_s = [woken, *[0] * while_stdin], float("inf")
    while (code := _code(program)) is None:
        left_s = max(0.0, ends_at_s - time.monotonic())
        ready, _, _ = select.select(watched, [], [], None if left_s == float("inf") else left_s)
        is_over = 0 in ready and not os.read(0, 1)
        if is_over or time.monotonic() >= ends_at_s:
            return _code(program)  # it may have ended while this process had no turn
        if woken in ready and _ENDS.intersection(os.read(woken, 64)) and ends_at_s == float("inf"):
            ends_at_s = time.monotonic() + GRACE_S
            os.kill(program, signal.SIGTERM)
    return code


def end_all() -> None:
    """Kill all descendants, and wait until they are gone."""
    if not _PROC.joinpath("self", "stat").exists():
        os.killpg(0, signal.SIGKILL)  # this process too: nothing else is known of what the program started
    while True:
        for child in _children():
            os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)  # its own children are ours from now on
        except ChildProcessError:
            return


def _wakened() -> int:
    """Return a descriptor from which the numbers of arriving signals are read."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (*_ENDS, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the process that started this may have blocked some
    return woken


def _started(command: list[str]) -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    ignored = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python, which a program would inherit
    return os.posix_spawn(command[0], command, os.environ, file_actions=[nothing], setsigdef=ignored)


def _code(program: int) -> int | None:
    """Reap what has ended; return the program's exit code, None while it runs."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == program:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if not pid:
            return None


def _children() -> list[int]:
    """Return the processes whose parent this one is."""
    pids, own = [], str(os.getpid())
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            parent = path.read_text(errors="replace").rpartition(")")[2].split()[1]
        except OSError:  # it has ended
            continue
        if parent == own:
            pids.append(int(path.parent.name))
    return pids


def main() -> int:
    """Run the program of the command line, and leave nothing of it."""
    path, how, *command = sys.argv[1:]
    code = run(command, while_stdin=how == WHILE_STDIN)
    if code is not None:
        new = Path(f"{path}.new")
        new.write_text(str(code))
        new.replace(path)
    end_all()
    return KILLED if code is None else code


if __name__ == "__main__":
    sys.exit(main())
