"""The command line, ``dlrover-nb VERB ...``: the magics' verbs in a terminal.

What a verb returns is printed as text, or as JSON with ``--json``; exit codes are those of `ExitCode`. Ctrl-C
never ends a job. Some verbs differ from the notebook's, see `GRAMMAR`: `show --live` draws in the
terminal, `connect` cannot simulate, and what serves others exists only here.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dlrover_nb.api.views.job_views import Note, StatusView
from dlrover_nb.brain import BRAIN
from dlrover_nb.core.basics.waits import until_ready
from dlrover_nb.core.client.cluster import NamesItself
from dlrover_nb.core.client.until import Until, is_reached
from dlrover_nb.core.connect import connect, remembered
from dlrover_nb.core.connect.kinds import Target, read_address
from dlrover_nb.core.errors import (
    AuditBrokenError,
    BackendError,
    DlroverError,
    InvalidValueError,
    JobFailedError,
)
from dlrover_nb.core.structs.decisions.commands import Entry
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.snapshot import JobSnapshot
from dlrover_nb.magics.arguments import Grammar
from dlrover_nb.magics.commands import ADDRESS, Commands
from dlrover_nb.magics.ray_messages import RAY_MESSAGES
from dlrover_nb.magics.verb import CLUSTER_OF_CALL, DetachedError, Verb, argument
from dlrover_nb.magics.verbs import VERBS, programs
from dlrover_nb.output import (
    CLI,
    CLUSTER_OF_HINTS,
    WITHOUT_CLUSTER,
    in_shell_words,
    printed,
    view_in_shell_words,
    width_of,
    write_what_can_be,
)
from dlrover_nb.serve import SERVE, USERS
from dlrover_nb.widgets.jobs.wait_lines import stream_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from dlrover_nb.api.cluster import Cluster
    from dlrover_nb.core.connect.kinds import Options
    from dlrover_nb.magics.verb import Call
    from dlrover_nb.output import Result


class ExitCode(IntEnum):
    """How a call ended; these numbers do not change between releases."""

    DONE = 0
    JOB_FAILED = 1  # the job that was waited for; the audit that was verified; goals that no plan meets
    MISTAKE = 2  # in the words of the call, or refused: nothing was changed
    NO_ANSWER = 3  # the cluster or the job's master cannot be reached, or failed: try again
    TIMED_OUT = 124  # as of timeout(1): what was waited for has not come about
    INTERRUPTED = 130  # by Ctrl-C; the job goes on
    PIPE_CLOSED = 141  # the program that read the output ended first


def main(words: Sequence[str] | None = None, *, commands: Commands | None = None) -> int:
    """Run one verb and return the exit code."""
    words = sys.argv[1:] if words is None else words
    RAY_MESSAGES.forget()
    CLUSTER_OF_HINTS.set("")
    for stream in (sys.stdout, sys.stderr):
        write_what_can_be(stream)
    if list(words) == ["--version"]:
        from dlrover_nb import __version__  # noqa: PLC0415 - for this alone

        sys.stdout.write(f"{CLI} {__version__}\n")
        return ExitCode.DONE
    if commands is None:
        line = partial(stream_line, sys.stderr)
        commands = Commands(
            RAY_MESSAGES.kept_by(connect),
            command=CLI,
            auto_connect=True,
            address=os.environ.get(ADDRESS),
            remembered=remembered.remembered,
            say=_say,
            line=line,
            entry=Entry.COMMAND_LINE,
        )
    try:
        code = _run(words, commands)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it ends
        return ExitCode.PIPE_CLOSED
    except (DlroverError, KeyboardInterrupt) as error:
        return _ended_early(error)
    return code


def _ended_early(error: DlroverError | KeyboardInterrupt) -> ExitCode:
    """Say why a call ended early, and where to read more."""
    code, message = _told(error)
    sys.stderr.write(in_shell_words(message) + "\n")
    if code in {ExitCode.JOB_FAILED, ExitCode.NO_ANSWER} and (hint := RAY_MESSAGES.hint):
        sys.stderr.write(hint + "\n")
    return code


def _told(error: DlroverError | KeyboardInterrupt) -> tuple[ExitCode, str]:
    match error:
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED, "interrupted"
        case DetachedError():
            return ExitCode.INTERRUPTED, str(error)
        case JobFailedError() | AuditBrokenError():
            return ExitCode.JOB_FAILED, f"{CLI}: {error}"
        case BackendError():
            return ExitCode.NO_ANSWER, f"{CLI}: {error.text}"
        case _:
            return ExitCode.MISTAKE, f"{CLI}: {error.text}"


def _run(words: Sequence[str], commands: Commands) -> ExitCode:
    call = GRAMMAR.parse(words)
    CLUSTER_OF_HINTS.set(call.cluster or "")
    shown = commands.run(call)
    if shown is None:  # it has spoken a protocol of its own
        return ExitCode.DONE
    if not isinstance(shown, JobSnapshot):  # else the verb has printed it already
        result = cast("Result", shown)
        with commands.waiting("the result"):  # some results are read where they are shown
            text = printed(result, as_json=call.as_json, width=width_of(sys.stdout))
        if text:
            sys.stdout.write(f"{text}\n")
        else:  # no rows for a program; a person reads why
            sys.stderr.write(f"{view_in_shell_words(result.view()).text()}\n")
    if call.hint and sys.stdout.isatty() and not call.as_json:  # a program has no use for it
        _say(call.hint)
    return _exit_code(call, shown)


def _exit_code(call: Call, shown: object) -> ExitCode:
    """Return how the call of a verb ended that has shown something."""
    if getattr(shown, "is_met", True) is False:
        return ExitCode.JOB_FAILED
    snapshot = shown.snapshot if isinstance(shown, StatusView) else shown
    if not call.verb.exits_by_phase or not isinstance(snapshot, JobSnapshot):
        return ExitCode.DONE
    if snapshot.phase is JobPhase.FAILED:
        return ExitCode.JOB_FAILED
    if "until" in call.values and not is_reached(snapshot, Until(str(call.values["until"]))):
        return ExitCode.TIMED_OUT
    return ExitCode.DONE


def _watch(commands: Commands, *, job: str | None, as_json: bool) -> JobSnapshot:
    """Follow a job until it ends."""
    from dlrover_nb.watch import follow, watch  # noqa: PLC0415 - no other verb draws

    handle = commands.job(job).handle
    with until_ready() as ready:
        ready()  # from here on the drawing says it
        return follow(handle, sys.stdout) if as_json else watch(handle)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _connect(
    commands: Commands, *, kind: str, address: str | None, forget: bool, **options: Unpack[Options]
) -> Cluster | Note:
    """Start or join a cluster that outlives this process, and remember it for the next calls."""
    if forget:
        if kind != "ray" or address is not None:
            raise InvalidValueError(f"expected connect --forget alone, got {kind} too; leave one of them out")
        remembered.forget()
        return Note("Forgotten", f"the next calls go to the Ray of this machine{_unless_named('ray')}")
    if kind == "sim":
        raise InvalidValueError(
            "a simulated cluster lives in one process; use `connect sim` in a notebook, or dlrover_nb.connect"
        )
    cluster = commands.connect(kind, address, **options)
    core = cluster.core
    target = read_address(core.address) if isinstance(core, NamesItself) else Target(kind, address, options)
    remembered.remember(target)
    _say(
        f"the next calls go to {target.word} too, until you connect elsewhere or run connect --forget"
        f"{_unless_named(target.word)}"
    )
    return cluster


def _unless_named(word: str) -> str:
    """Return what a variable of this shell does to the next calls, where it names another cluster."""
    named = os.environ.get(ADDRESS)
    if named is None or (named or "ray") == word:
        return ""
    return f"; but in this shell {ADDRESS}={named} wins: unset {ADDRESS}"


def _demo(_: Commands, *, out: str, as_json: bool) -> JobSnapshot:
    """Run the demonstration; with JSON, what it says goes to the standard error."""
    from rich.console import Console  # noqa: PLC0415 - no other verb draws

    from dlrover_nb.demo import run_demo  # noqa: PLC0415 - it loads Ray

    RAY_MESSAGES.begin()
    snapshot = run_demo(Path(out).absolute(), Console(stderr=as_json))
    if as_json:
        sys.stdout.write(printed(StatusView(snapshot), as_json=True, width=0) + "\n")
    return snapshot


JSON = argument("--json", action="store_true", help="print the result as JSON; the reference lists its keys")
CLUSTER = argument(
    "--cluster",
    dest=CLUSTER_OF_CALL,
    metavar="WORD",
    help="where this call goes: ray, HOST:PORT, local, kubernetes or kubernetes://CONTEXT/NAMESPACE; "
    f"default: as {ADDRESS} says, else as `connect` chose, else the Ray of this machine",
)
FORGET = argument("--forget", action="store_true", help="go back to the Ray of this machine")


def _verbs() -> dict[str, Verb]:
    """Return the verbs of a shell, in the order of the help."""
    named = {
        **VERBS,
        "connect": replace(
            VERBS["connect"], handler=_connect, arguments=(*VERBS["connect"].arguments, FORGET)
        ),
        "watch": replace(VERBS["watch"], handler=_watch, prints=True, exits_by_phase=True),
        **{verb.name: verb for verb in programs.VERBS},
        "serve": SERVE,
        "brain": BRAIN,
        "users": USERS,
        "demo": Verb(
            "demo", "run the demonstration", _demo, DEMO, prints=True, exits_by_phase=True, under="submit"
        ),
    }
    return {
        name: verb if name in WITHOUT_CLUSTER else replace(verb, arguments=(*verb.arguments, CLUSTER))
        for name, verb in named.items()
    }


DEMO = (argument("--out", metavar="FOLDER", default="demo-output", help="where results are written"),)
GRAMMAR = Grammar(CLI, _verbs(), (JSON,))

if __name__ == "__main__":
    sys.exit(main())
