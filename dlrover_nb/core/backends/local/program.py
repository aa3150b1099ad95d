"""The process of an external program: ``python -m dlrover_nb.core.backends.local.program CONFIGURATION``.

It takes the limits of its plan, which the kernel enforces where this process may create control groups, and
becomes a shell that runs the script of the program's pod (`core.external.program`) and notes its exit code:
the master that replaces this process's parent cannot ask the kernel for it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.external import program
from dlrover_nb.core.runtime.limits import ControlGroupLimits, thread_variables
from dlrover_nb.core.structs.node_config import NodeConfig

SHELL = "/bin/sh"
# Asked to end, it waits for the program's shell, which is asked too and ends the program first.
_NOTE_CODE = 'trap : TERM INT; f=$1; shift; "$@"; c=$?; echo $c >"$f.new" && mv "$f.new" "$f"; exit $c'


def exit_path(configuration: Path) -> Path:
    """Return the file of a node that holds the exit code of its program, once it has ended by itself."""
    return configuration.with_suffix(".code")


def main() -> None:
    """Become the program of a configuration."""
    path = Path(sys.argv[1])
    config = from_json(path.read_bytes(), NodeConfig)
    assert config.spec.foreign is not None
    ControlGroupLimits(f"{config.spec.name}-{config.node}").apply(config.cpu, config.memory_mib)
    for name, value in thread_variables(config.cpu).items():
        os.environ.setdefault(name, value)
    command = program(config.spec.foreign, config.role, python=sys.executable)
    os.execv(SHELL, [SHELL, "-c", _NOTE_CODE, "dlrover-nb", str(exit_path(path)), *command])  # noqa: S606 - no words of it are a shell's


if __name__ == "__main__":
    main()
