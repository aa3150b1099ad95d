"""A program as a child: what is observed of it, by one reader after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.waiting import until

from dlrover_nb.core.backends.programs.running import ProgramSetup, RunningProgram
from dlrover_nb.core.driver.calls.http_server import LOOPBACK
from dlrover_nb.core.master.external.submitted import NO_FEATURES
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.job.external import Written

    Started = Callable[..., RunningProgram]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    programs = []

    def start(script: str, setup: ProgramSetup | None = None) -> RunningProgram:
        role = ExternalRole(("/bin/sh", "-c", script))
        spec = JobSpec("unit", foreign=ExternalSpec(role, 1000, framework=Framework.TORCH))
        config = NodeConfig(
            node="worker-0",
            role=Role.WORKER,
            spec=spec,
            features=NO_FEATURES,
            cpu=0.5,
            memory_mib=512,
            master="http://127.0.0.1:1/v1/report",
            listen="",
            folder=str(tmp_path),
            public_key="",
            secret_key="",
        )
        programs.append(RunningProgram(config, setup or ProgramSetup("token"), LOOPBACK))
        return programs[-1]

    yield start
    for program in programs:
        program.remove()
    assert not list((tmp_path / "nodes").glob("*")), "it leaves no file"


def texts(lines: list[Written]) -> list[str]:
    return [line.text for line in lines if not line.text.startswith("dlrover-nb")]


def read(program: RunningProgram, found: list[Written]) -> bool:
    """Add new lines to those that were found; return whether the program has ended."""
    observed = program.observe(found[-1].at_ns if found else None)
    found += observed.lines
    return observed.exited is not None


def test_a_reader_that_replaces_another_gets_the_same_lines_and_the_exit(started: Started) -> None:
    program = started("for n in 1 2 3; do echo $n; sleep 0.3; done; exit 0")
    program.set_variables("RANK=0")
    first: list[Written] = []
    until(lambda: read(program, first) or "2" in texts(first), what="lines")
    program.observe(first[-1].at_ns)  # an answer that never arrives
    saved = first[:1]
    until(lambda: read(program, saved), what="the end")
    assert texts(saved) == ["1", "2", "3"]
    assert saved[: len(first)] == first, "with the same times"
    exited = program.observe(saved[-1].at_ns).exited
    assert exited is not None
    assert exited.succeeded


def test_it_runs_where_it_is_told_with_the_variables_that_it_inherits_and_may_save(
    started: Started, tmp_path: Path
) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo $OWN in $(pwd) as $RANK; while :; do sleep 0.1; done"
    program = started(
        script, ProgramSetup("token", True, str(tmp_path), {"OWN": "ada", "PATH": "/usr/bin:/bin"})
    )
    program.set_variables("RANK=7")
    found: list[Written] = []
    until(lambda: read(program, found) or texts(found), what="its words")
    program.stop()
    until(lambda: read(program, found), what="the end")
    assert texts(found) == [f"ada in {tmp_path} as 7", "saved"]


def test_one_that_cannot_be_started_says_why(started: Started) -> None:
    exited = started("exit 0", ProgramSetup("token", True, "/nowhere")).observe(None).exited
    assert exited is not None
    assert "could not be started" in exited.why
    assert "/nowhere" in exited.why
