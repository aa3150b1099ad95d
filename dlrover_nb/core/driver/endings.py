"""Why a node ended: what its backend observed, together with the error in the last lines of its log.

Whether a program failed decides what an error in its log means. One that failed by itself was ended by the
last error in its log. One that was ended by something else, a kill or an eviction, may have logged an error
long ago and survived it: only a recent one is told, and only a fatal signal is counted as the program's own.
What a program prints before it gives up (``sys.exit("no data")``) looks like any other line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.process.last_words import FATAL
from dlrover_nb.core.structs.training.failures import ProgramError

if TYPE_CHECKING:
    from dlrover_nb.core.driver.backend import NodeExited
    from dlrover_nb.core.rundir.node_logs import NodeLogs

RECENT_S = 60.0
_KNOWN_LETTERS, _MOST_LETTERS = 100, 200
_MEMORY = ("MemoryError", "torch.OutOfMemoryError")  # not counted: a node that lacks memory gets more


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a node ended, for people; and the error of its program, if it has failed."""

    why: str
    error: ProgramError | None


def ending(exited: NodeExited, logs: NodeLogs, *, job: str, at_s: float) -> Ending:
    """Return why a node ended.

    Parameters
    ----------
    logs
        With the last lines of the node.
    job
        Its name, for the command that shows the log.
    """
    exited = replace(exited, why=logs.without_secrets(exited.why))
    since_s = float("-inf") if exited.failed else at_s - RECENT_S
    error = logs.last_error(exited.node, since_s=since_s)
    is_known = exited.out_of_memory or exited.succeeded or not logs.knows(exited.node)
    if error is None and is_known:
        why = exited.why
    elif error is None:
        printed = logs.last_print(exited.node)[:_MOST_LETTERS] if exited.failed else ""
        log_end = f"its log has no error and ends with {printed!r}" if printed else "its log has no error"
        why = f"{exited.why}; {log_end}, see %dlrover show {job} --logs {exited.node}"
    elif error.text[:_KNOWN_LETTERS] in exited.why:
        why = exited.why
    else:
        why = f"{exited.why}; its last error: {error.text}"
    return Ending(why, _of_program(exited, error))


def _of_program(exited: NodeExited, error: ProgramError | None) -> ProgramError | None:
    """Return the error that counts as the program's own."""
    is_fatal = error is not None and error.text.startswith(FATAL)
    if exited.out_of_memory or exited.succeeded or not (exited.failed or is_fatal):
        return None
    error = error or ProgramError(exited.why)
    return None if error.text.startswith(_MEMORY) else error
