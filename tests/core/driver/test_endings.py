"""Why a node ended: the error in its log where that is the reason, and what counts as its program's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.driver.endings import RECENT_S, Ending, ending
from dlrover_nb.core.rundir.node_logs import NodeLogs
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.training.failures import ProgramError
from dlrover_nb.core.structs.wire.messages import LinesWritten

if TYPE_CHECKING:
    from pathlib import Path

NODE = "worker-0"
AT_S = 1000.0
NO_ERROR = "its log has no error, see %dlrover show ads --logs worker-0"


def ended(folder: Path, exited: NodeExited, *lines: tuple[str, str], at_s: float = AT_S) -> Ending:
    logs = NodeLogs(folder)
    written = tuple(LogLine(at_s, NODE, level, text) for level, text in lines)
    logs.add(LinesWritten(NODE, written, (0, 0)))
    return ending(exited, logs, job="ads", at_s=AT_S)


def test_the_error_of_a_program_that_failed_is_told_and_counted(tmp_path: Path, words) -> None:
    exited = NodeExited(NODE, "exit code 1", failed=True)
    lines = ("ERROR", "rows: no rows"), ("INFO", "worker: it is up")
    assert ended(tmp_path, exited, *lines, at_s=0.0) == Ending(words, ProgramError("no rows"))
    known = NodeExited(NODE, "exit code 1: no rows", failed=True)
    assert ended(tmp_path, known, *lines).why == words


def test_an_information_is_no_last_word(tmp_path: Path) -> None:
    exited = NodeExited(NODE, "exit code 3", failed=True)
    told = ended(tmp_path, exited, ("INFO", "worker: it is up"))
    assert told == Ending(f"exit code 3; {NO_ERROR}", ProgramError("exit code 3"))


def test_what_a_program_printed_before_it_gave_up_is_told_as_its_last_line(tmp_path: Path, words) -> None:
    exited = NodeExited(NODE, "exit code 1", failed=True)
    assert ended(tmp_path, exited, ("stderr", "no such data")).why == words


def test_an_error_that_a_killed_node_survived_is_no_reason(tmp_path: Path, words) -> None:
    exited = NodeExited(NODE, "killed by signal 9 (SIGKILL)", was_killed=True)
    error = "ERROR", "rows: retried"
    assert ended(tmp_path, exited, error, at_s=AT_S - RECENT_S - 1) == Ending(words, None)
    recent = ended(tmp_path / "recent", exited, error)
    assert recent == Ending(words, None)


def test_a_fatal_signal_in_the_log_is_the_programs_own_whatever_the_cluster_knows(tmp_path: Path) -> None:
    crash = "Fatal Python error: Segmentation fault"
    told = ended(tmp_path, NodeExited(NODE, "its process died", was_killed=True), ("stderr", crash))
    assert told.error == ProgramError(crash)


@pytest.mark.parametrize(
    "exited",
    [
        NodeExited(
            NODE, "it ran out of memory and the kernel killed it", was_killed=True, out_of_memory=True
        ),
        NodeExited(NODE, "it ended by itself", succeeded=True),
    ],
)
def test_a_known_reason_is_enough(tmp_path: Path, exited: NodeExited) -> None:
    assert ended(tmp_path, exited, ("INFO", "x")) == Ending(exited.why, None)


def test_an_exception_for_lack_of_memory_is_told_and_not_counted(tmp_path: Path, words) -> None:
    told = ended(tmp_path, NodeExited(NODE, "exit code 1", failed=True), ("stderr", "MemoryError: 3 GiB"))
    assert told == Ending(words, None)


def test_nothing_is_said_about_the_log_of_a_node_that_has_none(tmp_path: Path) -> None:
    told = ending(NodeExited("ps-9", "evicted"), NodeLogs(tmp_path), job="ads", at_s=AT_S)
    assert told == Ending("evicted", None)


def test_a_secret_of_the_job_is_in_no_reason(tmp_path: Path, words) -> None:
    logs = NodeLogs(tmp_path, secrets=("pl4nt3d-variable",))
    exited = NodeExited(NODE, "exit code 1: the hub refused pl4nt3d-variable", failed=True)
    assert ending(exited, logs, job="ads", at_s=AT_S).why == words
