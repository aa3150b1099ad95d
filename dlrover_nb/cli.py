"""The command line, ``dlrover-nb VERB ...``: the magics' parser and commands in a terminal.

What a verb returns is printed as text. Exit codes: 0; 1 when the awaited job failed; 2 for a mistake of the
user or the cluster (one line); 130 after Ctrl-C, which never ends a job.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.api.views import StatusView
from dlrover_nb.core.errors import DlroverError, InvalidValueError, JobFailedError
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.magics.arguments import CLI, parse
from dlrover_nb.magics.commands import Commands, DetachedError
from dlrover_nb.magics.requests import Connect, Demo, Submit, Wait, Watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.snapshot import JobSnapshot

ADDRESS = "DLROVER_NB_ADDRESS"  # variable: HOST:PORT or kubernetes://CONTEXT/NAMESPACE; unset: this machine
REDRAW_S = 1.0
MISTAKE, INTERRUPTED = 2, 130


def main(words: Sequence[str] | None = None, *, commands: Commands | None = None) -> int:
    """Run one verb and return the exit code."""
    words = sys.argv[1:] if words is None else words
    if list(words) == ["--version"]:
        from dlrover_nb import __version__  # noqa: PLC0415 - for this alone

        sys.stdout.write(f"{CLI} {__version__}\n")
        return 0
    if commands is None:
        commands = Commands(command=CLI, auto_connect=True, address=os.environ.get(ADDRESS))
    try:
        return _run(words, commands)
    except DetachedError as detached:
        sys.stderr.write(f"{detached}\n")
        return INTERRUPTED
    except JobFailedError as error:
        sys.stderr.write(f"{CLI}: {error}\n")
        return 1
    except DlroverError as error:
        sys.stderr.write(f"{CLI}: {error.told}\n")
        return MISTAKE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED


def _run(words: Sequence[str], commands: Commands) -> int:
    request = parse(words, command=CLI)
    if isinstance(request, Watch):
        snapshot = watch(commands.job(request.job).handle)
        return _exit_code(snapshot)
    if isinstance(request, Connect) and request.kind == "sim":
        raise InvalidValueError(
            "a simulated cluster lives in one process; connect sim in a notebook or in Python"
        )
    if isinstance(request, Demo):
        from dlrover_nb.demo import run_demo  # noqa: PLC0415 - it loads Ray

        run_demo(Path(request.out).absolute())
        return 0
    shown = commands.run(request)
    sys.stdout.write(f"{shown}\n")
    return (
        _exit_code(shown.snapshot)
        if isinstance(request, Submit | Wait) and isinstance(shown, StatusView)
        else 0
    )


def _exit_code(snapshot: JobSnapshot) -> int:
    return int(snapshot.phase is JobPhase.FAILED)


def watch(handle: JobHandle, console: Console | None = None) -> JobSnapshot:
    """Redraw the job each second until it ends; Ctrl-C lets go of it.

    Raises
    ------
    DetachedError
        After Ctrl-C: the job goes on.
    """
    from rich.live import Live  # noqa: PLC0415 - no other verb draws

    from dlrover_nb.terminal import render  # noqa: PLC0415 - as above

    cursor, rates = 0, list[float]()
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                chunk = handle.series(cursor)
                cursor = chunk.cursor
                rates += chunk.job.get("samples_per_s", [])
                snapshot = handle.snapshot()
                live.update(render(snapshot, rates), refresh=True)
                if snapshot.phase.is_final:
                    return snapshot
                time.sleep(REDRAW_S)
    except KeyboardInterrupt as error:
        raise DetachedError(f"job {handle.name} goes on; `{CLI} stop {handle.name}` stops it") from error


if __name__ == "__main__":
    sys.exit(main())
