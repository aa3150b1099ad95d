"""The process of a program, whose arguments are CONFIGURATION HOW; see `program_files.command`.

It takes the limits of its plan, which the kernel enforces where this process may create control groups, and
becomes the supervisor (which has the choices of HOW) of a shell with the script of the program's pod
(`core.master.external.launch.pod_script`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dlrover_nb.core.backends.programs import supervisor
from dlrover_nb.core.backends.programs.program_files import ProgramFiles
from dlrover_nb.core.codec import from_checked_json
from dlrover_nb.core.master.external.launch.pod_script import program
from dlrover_nb.core.runtime.process.limits import ControlGroupLimits, thread_variables
from dlrover_nb.core.structs.wire.node_config import NodeConfig


def main() -> None:
    """Become the program of a configuration."""
    path, how = Path(sys.argv[1]), sys.argv[2]
    config = from_checked_json(path.read_bytes(), NodeConfig)
    assert config.spec.foreign is not None
    ControlGroupLimits(f"{config.spec.name}-{config.node}").apply(config.cpu, config.memory_mib)
    for name, value in thread_variables(config.cpu).items():
        os.environ.setdefault(name, value)
    code = ProgramFiles(path.parent, config.node).code
    command = program(config.spec.foreign, config.role, python=sys.executable)
    python = [sys.executable, "-I", "-S", supervisor.__file__]
    os.execv(sys.executable, [*python, str(code), how, *command])  # noqa: S606 - no words of it are a shell's
