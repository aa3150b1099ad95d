"""`history` and `score` read the history of this machine; no cluster is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from IPython.core.error import UsageError
from support.cases import for_each

from dlrover_nb import cli
from dlrover_nb.api import past
from dlrover_nb.cli import CLI
from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.rundir import locate
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.rundir.node_logs import NodeLogs
from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.decisions.decisions import Outcome
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.wire.messages import LinesWritten
from dlrover_nb.magics.commands import Commands
from dlrover_nb.magics.shell import loaded

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell
    from support.jobs.cluster_double import MemoryCluster

START_S = 1_750_000_000.0


@pytest.fixture
def told(shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """A shell that is not connected, on a machine where two jobs ran."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    store = HistoryStore()
    spec = JobSpec("clicks", owner="ada")
    for at_s in (START_S, START_S + 100):
        store.remember("clicks", at_s, spec)
        predicted = Prediction(100.0, 90.0, 110.0, extrapolates=False)
        store.remember("clicks", at_s + 9, Outcome("d1", spec.plan, predicted, 105.0, 50.0, 4, at_s + 5, 0.5))
    store.remember("clicks", START_S + 150, PhaseChanged(START_S + 150, JobPhase.SUCCEEDED))
    store.remember("views", START_S + 50, replace(spec, name="views", owner="bob"))
    store.close()
    return shell


def test_the_list_of_runs_then_one_of_them(told: InteractiveShell) -> None:
    listed = told.run_line_magic("dlrover", "history")
    assert [r.job for r in listed] == ["clicks", "views", "clicks"]
    assert f"clicks@{START_S:.3f}" in str(listed)
    newest = told.run_line_magic("dlrover", "history clicks")
    assert (newest.history.run.started_at_s, newest.history.run.phase) == (START_S + 100, JobPhase.SUCCEEDED)
    for line in (f"history clicks --run clicks@{START_S:.3f}", f"history --run clicks@{START_S:.3f}"):
        assert told.run_line_magic("dlrover", line).history.run.started_at_s == START_S
    magics = loaded(told)
    assert magics is not None
    assert set(magics.commands.session.runs) == {"clicks", "views"}, "completion knows them from now on"


def test_scores_are_of_an_owner_and_of_some_days(told: InteractiveShell) -> None:
    assert told.run_line_magic("dlrover", "score").scoreboard.total.n_outcome == 2
    assert told.run_line_magic("dlrover", "score --owner bob").scoreboard.total.n_outcome == 0
    assert told.run_line_magic("dlrover", "score --days 1").scoreboard.total.n_outcome == 0
    assert past.score(owner="ada").scoreboard.total.inside == 1.0


def test_scores_are_of_one_job_where_it_is_named(told: InteractiveShell) -> None:
    assert told.run_line_magic("dlrover", "score clicks").scoreboard.total.n_outcome == 2
    assert told.run_line_magic("dlrover", "history views --score").scoreboard.total.n_outcome == 0
    assert [job for job, _ in past.score(job="clicks").scoreboard.jobs] == ["clicks"]


@for_each(
    ("line", "message"),
    [
        ("history click", "no job 'click' in the history; did you mean clicks?"),
        ("history clicks --run clicks@1", "no run 'clicks@1' of job clicks; it has clicks@"),
        ("history --run nope", "no job 'nope' in the history; it has clicks, views"),
        ("score click", "no job 'click' in the history; did you mean clicks?"),
        ("score --days 0", "days must be > 0, got 0; leave it out for all"),
        ("score --days nan", "days must be > 0, got nan"),
        ("score --days soon", "--days: must be a number, got 'soon'"),
    ],
)
def test_a_mistake_is_one_line(told: InteractiveShell, line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        told.run_line_magic("dlrover", line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_api_refuses_days_that_are_none(error_words) -> None:
    with error_words(InvalidValueError):
        past.score(days=-1)


def test_where_nothing_is_remembered_the_first_steps_are_told(
    shell: InteractiveShell, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert "%dlrover submit quick-start" in str(shell.run_line_magic("dlrover", "history"))
    assert "%dlrover apply" in str(shell.run_line_magic("dlrover", "score"))


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that ran on this machine and left the lines of its nodes."""
    monkeypatch.setattr(locate, "jobs_folder", lambda: tmp_path)
    folder = tmp_path / "clicks-20260101T000000-001"
    folder.mkdir()
    (folder / JOB).touch()
    NodeLogs(folder).add(
        LinesWritten("worker-0", (LogLine(START_S, "worker-0", "INFO", "last words"),), (0, 0))
    )


@pytest.mark.usefixtures("left")
@pytest.mark.parametrize(
    ("before", "missed"), [("help", "not connected"), ("connect ray", "no job 'views' here")]
)
def test_logs_of_a_job_that_is_gone_are_those_that_it_left(
    shell: InteractiveShell, before: str, missed: str, error_words
) -> None:
    shell.run_line_magic("dlrover", before)
    for words in ("logs clicks", "logs clicks worker-0"):
        assert [line.text for line in shell.run_line_magic("dlrover", words)] == ["last words"]
    with error_words(UsageError):
        shell.run_line_magic("dlrover", "logs clicks ps-0")
    with pytest.raises(UsageError, match=missed):
        shell.run_line_magic("dlrover", "logs views")


@pytest.mark.usefixtures("left")
def test_logs_are_there_when_a_master_does_not_answer_any_more(
    shell: InteractiveShell, memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run_line_magic("dlrover", "connect ray")
    jobs = {name: shell.run_line_magic("dlrover", f"submit {name}") for name in ("clicks", "views")}

    def gone(node: str | None, n_line: int) -> tuple[LogLine, ...]:
        raise BackendError("its master is gone")

    for name in jobs:
        monkeypatch.setattr(memory.links[name], "logs", gone)
    assert [line.text for line in jobs["clicks"].logs()] == ["last words"]
    with pytest.raises(BackendError, match="its master is gone"):
        jobs["views"].logs()


@pytest.mark.usefixtures("left")
def test_the_command_line_reads_them_too(memory: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["logs", "clicks"], commands=Commands(memory.connect, command=CLI, auto_connect=True))
    assert (code, "last words" in capsys.readouterr().out) == (0, True)
