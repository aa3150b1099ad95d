"""Why a process of a node ended: its exit code in words, with the error in its log."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.runtime.process.last_words import is_failure, last_error, parsed
from dlrover_nb.core.runtime.process.limits import was_out_of_memory

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.backends.programs.program_files import ProgramFiles
    from dlrover_nb.core.structs.training.failures import ProgramError

_LAST_BYTES = 16 << 10  # at the end of a log, that are searched for an error
_SHELLS_SIGNAL = 128  # a shell's exit code above it: a signal ended the program


def exited(job: str, node: str, pid: int | None, code: int | None, log: Path) -> NodeExited:
    """Return the exit of a process.

    Parameters
    ----------
    job, node, pid
        Whose process it was.
    code
        Its exit code, negative for a signal; None: that is not known.
    log
        The file that it wrote to.
    """
    was_killed = code in {None, -signal.SIGKILL}
    if was_killed and was_out_of_memory(f"{job}-{node}", pid):
        why = "it ran out of memory and the kernel killed it"
        return NodeExited(node, why, was_killed=True, out_of_memory=True)
    failed = code is not None and is_failure(code)
    return NodeExited(node, _why(code, log), was_killed=was_killed, failed=failed)


def program_exited(job: str, files: ProgramFiles, pid: int | None = None) -> NodeExited:
    """Return the exit of a program whose supervisor has ended, which leaves none of its processes.

    Parameters
    ----------
    job, files
        The program.
    pid
        Of its supervisor; None: that is not known.
    """
    code = _code_in(files.code)
    if code is None:  # the supervisor was killed too; what it started may be left
        if pid is not None:
            kill_group(pid)
        code = _SHELLS_SIGNAL + signal.SIGKILL
    if code > _SHELLS_SIGNAL:
        return exited(job, files.node, pid, _SHELLS_SIGNAL - code, files.log)
    return replace(exited(job, files.node, pid, code, files.log), succeeded=code == 0)


def kill_group(pid: int) -> None:
    """Kill all processes of a group."""
    with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
        os.killpg(pid, signal.SIGKILL)


def _why(code: int | None, log: Path) -> str:
    if code is None:
        return "its process is gone"
    if code < 0:  # its log does not say what killed it
        return f"killed by signal {-code} ({_signal_name(-code)})"
    code_words, error = f"exit code {code}", _last_error(log)
    return f"{code_words}: {error}" if code and error else code_words


def _last_error(log: Path) -> ProgramError | None:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            return last_error(parsed(file.read().decode(errors="replace")))
    except OSError:
        return None  # the log cannot be read


def _code_in(path: Path) -> int | None:
    """Return the exit code of a program; None: it was ended by force, or its machine was."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
