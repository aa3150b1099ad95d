"""How the command line prints: the terminal's width, rows in a pipe, JSON, the shell's words, exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.cases import for_each

from dlrover_nb import cli, watch
from dlrover_nb.cli import CLI, GRAMMAR, ExitCode
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.magics.commands import Commands
from dlrover_nb.output import WITHOUT_CLUSTER

if TYPE_CHECKING:
    from pathlib import Path

    from support.jobs.cluster_double import MemoryCluster

LINES = {  # of verbs that take more than the name of a job
    "connect": "connect",
    "submit": "submit new",
    "cluster": "cluster",
    "jobs": "jobs",
    "watch": "watch over",
    "whatif": "whatif ctr --workers 3",
    "override": "override ctr --workers 3",
    "pin": "pin ctr --workers 2",
    "mode": "mode ctr auto",
    "budget": "budget ctr 40",
    "scale": "scale ctr --workers 2",
    "batches": "batches ctr worker-0=64",
    "history": "history",
    "score": "score",
    "export": "export ctr -o job.yaml",
    "import": "import job.yaml",
    "attach": "attach",
    "wait": "wait over",
    "delete": "delete over",
    "report": "report ctr -o report.html",
    "dash": "dash",
    "shutdown": "shutdown --force",
    "users": "users list --file users.yaml",
    "help": "help status",
    "audit": "audit list",
    "tokens": "tokens list",
    "lab": "lab --jobs 2 --seeds 1 --contenders fixed-plan",
}
ELSEWHERE = {
    "predict",
    "rehearse",
    "demo",
    "serve",
    "brain",
    "plan",
    "mcp",
    "undo",
    "finish",
}  # they need real jobs, or what the double does not keep


@pytest.fixture
def run(memory: MemoryCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "users.yaml").write_text("")
    for name in ("ctr", "over"):
        memory.submit(JobSpec(name))
    memory.links["over"].end(JobPhase.SUCCEEDED)
    memory.links["ctr"].propose(1)

    def call(line: str) -> tuple[int, str, str]:
        commands = Commands(memory.connect, command=CLI, auto_connect=True)
        code = cli.main(shlex.split(line), commands=commands)
        return code, *capsys.readouterr()

    return call


def test_every_verb_prints_json_and_nothing_else(run) -> None:
    run("export ctr -o job.yaml --force")
    for line in [LINES.get(verb, f"{verb} ctr") for verb in GRAMMAR.verbs if verb not in ELSEWHERE]:
        code, out, err = run(f"{line} --json" + " --force" * line.startswith("export"))
        assert (code, err == "") == (0, line != "connect"), line  # which says where the next calls go
        assert out.count("\n") == 1
        assert isinstance(json.loads(out), dict | list)


def test_every_verb_says_that_it_takes_json() -> None:
    for verb in GRAMMAR.verbs:
        assert "--json" in GRAMMAR.help_text(verb)


@for_each("line", ["status ctr", "plans ctr", "shards ctr", "jobs", "whatif ctr --workers 3"])
def test_hints_are_commands_of_the_shell(run, line: str) -> None:
    for shown in run(line)[1:] + run(f"{line} --json")[1:]:
        assert "%dlrover" not in shown


HINT = re.compile(rf"{CLI} ([a-z][a-z-]*)( --cluster ray)?")


@for_each("line", ["status ctr", "plans ctr"])
def test_hints_go_where_the_call_went(run, line: str) -> None:
    """A user who copies one would else be told that there is no such job."""
    said = "".join(map(str, run(f"{line} --cluster ray")[1:])).replace(f"{CLI}: ", "")
    hints = HINT.findall(said)
    assert hints
    assert all(option for verb, option in hints if verb not in WITHOUT_CLUSTER), said


def test_the_next_command_after_a_submit_finds_the_job(run) -> None:
    shown = run("submit new --cluster ray")
    assert f"{CLI} show --cluster ray new --live follows it" in shown[1], shown


def test_a_log_line_is_printed_as_it_was_written(run, memory: MemoryCluster, monkeypatch) -> None:
    told = memory.links["ctr"].logs(None, 1)
    line = type(told[0])(1.0, "worker-0", "INFO", "see %dlrover shards ctr")
    monkeypatch.setattr(memory.links["ctr"], "logs", lambda *_: (line,))
    for words in ("logs ctr", "logs ctr --json"):
        assert "see %dlrover shards ctr" in run(words)[1]


def test_in_a_pipe_there_is_one_row_for_each_job(run) -> None:
    head, *rows = run("jobs")[1].splitlines()
    assert head.split()[:2] == ["job", "state"]
    assert [row.split()[:2] for row in rows] == [["ctr", "training"], ["over", "succeeded"]]


def test_without_jobs_a_pipe_gets_no_row(memory: MemoryCluster, capsys) -> None:
    assert cli.main(["jobs"], commands=Commands(memory.connect, command=CLI, auto_connect=True)) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "dlrover-nb submit quick-start" in err


@pytest.mark.parametrize("width", [60, 90, 200])
def test_text_is_as_wide_as_the_terminal(run, monkeypatch, width: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    told = [line for line in run("status ctr")[1].splitlines() if not line.startswith("    ")]
    words = [line for line in told if line.startswith(("Hint", "plan "))]
    assert max(map(len, words)) <= width
    assert max(map(len, told)) > width // 2


def test_a_wait_in_vain_and_a_silent_master_have_codes_of_their_own(run, memory: MemoryCluster) -> None:
    assert run("wait ctr --timeout 0")[0] == ExitCode.TIMED_OUT
    assert run("wait ctr --timeout 0 --for proposal")[0] == ExitCode.DONE

    def silent() -> None:
        raise BackendError("the master does not answer; see %dlrover jobs")

    memory.links["ctr"].on_snapshot = silent
    assert run("status ctr") == (
        ExitCode.NO_ANSWER,
        "",
        "dlrover-nb: the master does not answer; see dlrover-nb jobs\n",
    )


def test_a_watch_as_json_writes_a_line_for_each_look(memory: MemoryCluster, monkeypatch) -> None:
    handle, link = memory.submit(JobSpec("ctr")), memory.links["ctr"]
    phases = iter([JobPhase.TRAINING, JobPhase.TRAINING, JobPhase.FAILED])
    link.on_snapshot = lambda: link.end(next(phases))
    monkeypatch.setattr(watch, "REDRAW_S", 0.0)
    written = io.StringIO()
    watch.follow(handle, written)
    told = [json.loads(line)["phase"] for line in written.getvalue().splitlines()]
    assert told == ["training", "training", "failed"]


def test_a_reader_that_ends_early_is_no_error(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        told = subprocess.run(
            [sys.executable, "-m", "dlrover_nb.cli", "help"],
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (told.returncode, told.stderr) == (ExitCode.PIPE_CLOSED, b"")
