"""What is known of a process that has ended, by its exit code and its control group."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dlrover_nb.core.backends.programs.exits import exited

if TYPE_CHECKING:
    from pathlib import Path

GREEDY = """
from dlrover_nb.core.runtime.process.limits import ControlGroupLimits
if not ControlGroupLimits("job-ps-0").apply(1.0, 64).memory:
    raise SystemExit(3)
kept = [bytearray(16 << 20) for _ in range(40)]
"""


def test_a_node_that_the_kernel_ended_lacked_memory_and_one_that_was_killed_later_did_not(
    tmp_path: Path,
    words,
) -> None:
    with subprocess.Popen([sys.executable, "-c", GREEDY]) as process:
        code = process.wait()
    if code == 3:
        pytest.skip("this process may not make control groups")
    first, later = (exited("job", "ps-0", process.pid, code, tmp_path / "none") for _ in range(2))
    assert (first.was_killed, first.out_of_memory) == (True, True)
    assert first.why == words
    assert (later.was_killed, later.out_of_memory) == (True, False)
    assert "SIGKILL" in later.why
