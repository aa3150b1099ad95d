from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.node import gentle_start

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os, sys, threading
print(os.getpriority(os.PRIO_PROCESS, 0), "dlrover_nb.core.runtime.ps.server" in sys.modules, __name__, sys.argv[1:])
"""


def test_a_program_runs_at_its_own_priority_with_what_a_ps_needs_imported(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ways = ([sys.executable], [sys.executable, "-m", gentle_start.__name__])
    plain, gentle = (
        subprocess.run([*way, str(program), "a", "b"], capture_output=True, text=True, check=True).stdout
        for way in ways
    )
    assert plain.split() == gentle.replace("True", "False").split()
    assert "True __main__ ['a', 'b']" in gentle


def test_a_module_runs_as_the_main_one() -> None:
    command = [sys.executable, "-m", gentle_start.__name__, "-m", "dlrover_nb.core.runtime.node"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "expected the path of one node configuration, got 0 arguments" in done.stderr
