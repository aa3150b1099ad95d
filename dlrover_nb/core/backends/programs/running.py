"""A program as a child of this process, which it does not outlive; see `supervisor`."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.programs.exits import program_exited
from dlrover_nb.core.backends.programs.program_files import (
    ProgramFiles,
    command,
    free_port,
    variables,
    write_whole,
)
from dlrover_nb.core.backends.programs.program_log import ProgramLog
from dlrover_nb.core.backends.programs.supervisor import WHILE_STDIN
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.driver.calls.http_server import bracketed
from dlrover_nb.core.structs.job.external import Written  # noqa: TC001 - decoded by its annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.wire.node_config import NodeConfig


@dataclass(frozen=True, slots=True)
class ProgramSetup:
    """How the programs of one job are run.

    Parameters
    ----------
    token
        With which they report.
    is_here
        Whether all run on one machine, that of the process which submitted the job.
    working_folder, inherited
        Where they run, and the variables that they inherit; without: those of the process that starts them.
    certificate
        Of the master's HTTP; its master sets it.
    """

    token: str = field(repr=False)
    is_here: bool = False
    working_folder: str | None = None
    inherited: Mapping[str, str] | None = field(default=None, repr=False)
    certificate: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Observed:
    """What is new of a program.

    Parameters
    ----------
    address
        Where it is to listen.
    lines
        What it wrote since the lines that were asked for.
    exited
        How it ended, together with its last lines; None: it runs, or more lines are to come.
    """

    address: str
    lines: tuple[Written, ...]
    exited: NodeExited | None = None


class RunningProgram:
    """One program, begun at once; for one thread. No call waits for the program.

    Parameters
    ----------
    config
        Its configuration.
    setup
        How it is run.
    host
        The address of this machine.
    """

    def __init__(self, config: NodeConfig, setup: ProgramSetup, host: str) -> None:
        self._job, self._node = config.spec.name, config.node
        self._files = ProgramFiles(Path(config.folder) / "nodes", config.node)
        self._clock = SystemClock()
        self._address = f"{bracketed(host)}:{free_port()}"
        self._began_ns = self._now_ns()
        self._log = ProgramLog(self._node, self._files.log, self._began_ns)
        self._given_ns: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._why_not = ""
        try:
            self._process = self._begun(config, setup)
        except OSError as error:
            self._why_not = f"it could not be started: {error}"

    def observe(self, after_ns: int | None) -> Observed:
        """Return what is new.

        Parameters
        ----------
        after_ns
            The time of the last line that the caller got; None: none yet. A caller that did not get the lines
            of the last call, or that replaces another one, gets all lines after it.
        """
        code = None if self._process is None else self._process.poll()
        is_over = self._process is None or code is not None
        if after_ns != self._given_ns:
            self._log = ProgramLog(self._node, self._files.log, self._began_ns, since_ns=after_ns or 0)
        lines = tuple(self._log.take(self._now_ns(), is_last=is_over))
        self._given_ns = lines[-1].at_ns if lines else after_ns
        return Observed(self._address, lines, self._exited() if is_over and not lines else None)

    def set_variables(self, text: str) -> None:
        """Write the variables into the file that the program's shell waits for."""
        write_whole(self._files.variables, text)

    def set_master(self, url: str) -> None:
        """Write where the program reports to."""
        write_whole(self._files.master, url)

    def stop(self) -> None:
        """Ask the program to end; its supervisor ends it by force after a while."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def remove(self) -> None:
        """End the program at once, and delete its files."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
        self._log.remove()
        self._files.remove()

    def _begun(self, config: NodeConfig, setup: ProgramSetup) -> subprocess.Popen[bytes]:
        files = self._files
        files.write_configuration(config)
        write_whole(files.master, config.master)
        inherited = os.environ if setup.inherited is None else setup.inherited
        files.log.touch(mode=0o600)
        with files.log.open("ab") as log:
            return subprocess.Popen(
                command(files, WHILE_STDIN),
                cwd=setup.working_folder,
                env=variables(config, files, inherited, token=setup.token, certificate=setup.certificate),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _exited(self) -> NodeExited:
        if self._process is None:
            return NodeExited(self._node, self._why_not)
        return program_exited(self._job, self._files, self._process.pid)

    def _now_ns(self) -> int:
        return int(self._clock.now_s() * 1e9)
