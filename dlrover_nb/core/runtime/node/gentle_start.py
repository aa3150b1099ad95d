"""Run a node whose imports leave the cores to others: it starts beside nodes that train.

``python -m dlrover_nb.core.runtime.node.gentle_start -m MODULE ARGUMENTS`` (or ``PROGRAM ARGUMENTS``) runs it
after a thread of low priority has imported what a parameter server needs: 0.2 s of CPU time, which workers on
the same cores would feel. On one busy core, 0.6 s of another program's work took 1.6 s longer beside plain
imports, and 0.6 s beside these (medians). Priority belongs to a thread on Linux, so that the program itself
has its usual one. To lower that of the process was rejected: raising it again needs a privilege.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys
import threading

NICE = 8  # a sixth of the usual share of a core: start-up takes seconds on a busy machine, not minutes
_IMPORTED = "dlrover_nb.core.runtime.ps.server"


def main(arguments: list[str]) -> None:
    """Import at low priority, then run the program as Python does."""
    thread = threading.Thread(target=_import, name="imports")
    thread.start()
    thread.join()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def _import() -> None:
    """Import in this thread, at a priority of its own; what fails is raised where the program imports it."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    with contextlib.suppress(ImportError):
        importlib.import_module(_IMPORTED)


if __name__ == "__main__":
    main(sys.argv[1:])
