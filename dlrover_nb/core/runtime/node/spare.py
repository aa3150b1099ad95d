"""A process that has imported what a worker needs, and becomes the next worker of its job.

A worker that starts imports torch for more than a second of CPU time. A spare has done so before: while its
master prepares a new job, or while the job trains. It reads from standard input which node it is, one line of
JSON, and from then on differs in nothing from a process that was started as that node.

Until then it belongs to its master and dies with it, however that ends: the kernel kills it with the thread
that started it, and its standard input ends. It has no state, no socket, no memory of the job, and no limits.

Rejected: to fork workers from one process that has imported torch. That saves the CPU time of every further
import, but a master cannot wait for grandchildren, and threads of libraries do not survive a fork.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass

from dlrover_nb.core.codec import from_json

ARGUMENT = "--spare"  # of `core.runtime.node`
_PR_SET_PDEATHSIG = 1  # prctl.h


@dataclass(frozen=True, slots=True)
class Assignment:
    """The node that a spare becomes.

    Parameters
    ----------
    configuration
        The file of its `NodeConfig`.
    out, err
        The files that its standard output and error are appended to.
    outlives
        Whether it survives its master from now on.
    """

    configuration: str
    out: str
    err: str
    outlives: bool


def await_assignment() -> str | None:
    """Wait to become a node; return its configuration, or None when no master wants one any more."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):  # its parent has ended, maybe amid writing
        return None
    assignment = from_json(line, Assignment)
    _open(os.devnull, os.O_RDONLY, 0)
    for to, path in ((1, assignment.out), (2, assignment.err)):
        _open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, to)
    if assignment.outlives:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
    return assignment.configuration


def _open(path: str, flags: int, to: int) -> None:
    file = os.open(path, flags, 0o600)
    os.dup2(file, to)
    os.close(file)
