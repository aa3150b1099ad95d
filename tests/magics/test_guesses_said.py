"""What was guessed of columns is said once: in the view where one is shown, else in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from support.cases import for_each

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.magics.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell
    from support.jobs.cluster_double import MemoryCluster

    from dlrover_nb.core.structs.job.job import JobSpec

GUESS = "'user_id' looks like ids, so it is taken as ids"
SUBMIT = "submit ads --data rows.csv"


@pytest.fixture
def reading(memory: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """A cluster that reads the data of its jobs, as the local one does."""
    begin = memory.submit

    def submit(spec: JobSpec, **_: object) -> JobHandle:
        read = validate_job(spec)
        handle = begin(read.spec)
        return JobHandle(handle.name, memory.links[handle.name], schema=read.schema)

    monkeypatch.setattr(memory, "submit", submit)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    columns = {"label": rng.integers(0, 2, 2_000), "user_id": rng.integers(0, 50, 2_000)}
    pd.DataFrame(columns).to_csv("rows.csv", index=False)
    return memory


@for_each(
    ("cell", "n_in_view"),
    [
        (f"%dlrover {SUBMIT}", 1),
        (f"print('first')\n%dlrover {SUBMIT}\n", 1),
        (f"%%dlrover {SUBMIT}\nepochs: 2", 1),
        (f"job = %dlrover {SUBMIT}", 0),
        (f"%dlrover {SUBMIT}\nprint('last')", 0),
        (f"%dlrover {SUBMIT} --wait", 0),
    ],
)
def test_a_cell_says_guesses_in_the_view_that_it_shows_else_in_the_log(
    reading: MemoryCluster,
    shell: InteractiveShell,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    cell: str,
    n_in_view: int,
) -> None:
    reading.links.clear()
    caplog.clear()
    monkeypatch.setattr(Commands, "wait", lambda *_: None)
    shell.run_line_magic("dlrover", "connect ray")
    done = shell.run_cell(cell, store_history=True)
    done.raise_error()
    said = caplog.text.count(GUESS), " ".join(str(done.result).split()).count(GUESS)
    assert said == (1 - n_in_view, n_in_view)


def test_a_shell_says_guesses_once(
    reading: MemoryCluster, run: Callable[..., tuple[int, str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        code, out, _ = run(*SUBMIT.split())
    assert (code, " ".join(out.split()).count(GUESS)) == (0, 1)
    assert GUESS not in caplog.text
    assert "ads" in reading.links
