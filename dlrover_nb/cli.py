"""The command line, ``dlrover-nb VERB ...``: the magics' verbs in a terminal.

What a verb returns is printed as text. Exit codes: 0; 1 when the awaited job failed; 2 for a mistake of the
user or the cluster (one line); 130 after Ctrl-C, which never ends a job. Three verbs differ from the
notebook's, see `GRAMMAR`: `watch` draws in the terminal, `connect` cannot simulate, and `demo` exists only
here.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.api.views import StatusView
from dlrover_nb.core.errors import DlroverError, InvalidValueError, JobFailedError
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.snapshot import JobSnapshot
from dlrover_nb.magics.arguments import Grammar
from dlrover_nb.magics.commands import Commands
from dlrover_nb.magics.verb import DetachedError, Verb, argument
from dlrover_nb.magics.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from rich.console import Console

    from dlrover_nb.api.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.connect.kinds import Options

CLI = "dlrover-nb"
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
        sys.stderr.write(f"{CLI}: {error.text}\n")
        return MISTAKE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED


def _run(words: Sequence[str], commands: Commands) -> int:
    call = GRAMMAR.parse(words)
    shown = commands.run(call)
    if isinstance(shown, JobSnapshot):
        return _exit_code(shown)  # the verb has drawn it already
    sys.stdout.write(f"{shown}\n")
    return _exit_code(shown.snapshot) if call.verb.exits_by_phase and isinstance(shown, StatusView) else 0


def _exit_code(snapshot: JobSnapshot) -> int:
    return int(snapshot.phase is JobPhase.FAILED)


def watch(handle: JobHandle, console: Console | None = None) -> JobSnapshot:
    """Redraw the job each second until it ends; Ctrl-C ends the display and leaves the job running.

    Raises
    ------
    DetachedError
        After Ctrl-C: the job keeps running.
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


def _watch(commands: Commands, *, job: str | None) -> JobSnapshot:
    """Follow a job until it ends."""
    return watch(commands.job(job).handle)


def _connect(commands: Commands, *, kind: str, address: str | None, **options: Unpack[Options]) -> Cluster:
    """Start or join a cluster that outlives this process."""
    if kind == "sim":
        raise InvalidValueError(
            "a simulated cluster lives in one process; use `connect sim` in a notebook, or dlrover_nb.connect"
        )
    return commands.connect(kind, address, **options)


def _demo(_: Commands, *, out: str) -> JobSnapshot:
    """Run the demonstration."""
    from dlrover_nb.demo import run_demo  # noqa: PLC0415 - it loads Ray

    return run_demo(Path(out).absolute())


DEMO = (argument("--out", metavar="FOLDER", default="demo-output", help="where results are written"),)
GRAMMAR = Grammar(
    CLI,
    {
        **VERBS,
        "connect": replace(VERBS["connect"], handler=_connect),
        "watch": replace(VERBS["watch"], handler=_watch),
        "demo": Verb("demo", "run the demonstration", _demo, DEMO),
    },
)

if __name__ == "__main__":
    sys.exit(main())
