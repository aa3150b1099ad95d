"""External programs as processes of this machine: fits `core.driver.backend.ExternalBackend`.

All programs of a machine have one address, so each gets a port of its own, which its peers are told with the
address. Programs run in the folder, and with the variables, of the process that submitted the job; an image
is not used. One that is ended gets SIGTERM first, as in a pod, and some seconds to save its training: its
supervisor, which outlives a killed master, sees to both.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.backends.programs.exits import program_exited
from dlrover_nb.core.backends.programs.program_files import (
    ProgramFiles,
    command,
    free_port,
    variables,
    write_whole,
)
from dlrover_nb.core.backends.programs.program_log import ProgramLog
from dlrover_nb.core.backends.programs.supervisor import BY_ITSELF, GRACE_S
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_checked_json
from dlrover_nb.core.driver.calls.http_server import LOOPBACK
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dlrover_nb.core.backends.local.backend import Process
    from dlrover_nb.core.driver.backend import NodeExited
    from dlrover_nb.core.structs.job.external import Written
    from dlrover_nb.core.structs.plan.resources import Need

_POLL_S, _MORE_S = 0.05, 2.0  # beyond the grace time, for the end by force


class LocalPrograms(LocalBackend):
    """Backend for one run of an external job on this machine; see `LocalBackend`.

    Parameters
    ----------
    folder
        The job's run folder.
    token, certificate
        With which programs report, and that of the master's HTTP.
    working_folder
        Where programs run; empty: where this process does.
    cpus
        Cores offered; None: all.
    """

    def __init__(
        self,
        folder: Path,
        *,
        token: str,
        certificate: str,
        working_folder: str = "",
        cpus: float | None = None,
    ) -> None:
        super().__init__(folder, cpus=cpus, outlive=True)
        self._token, self._certificate, self._cwd = token, certificate, working_folder or None
        self._clock = SystemClock()
        self._addresses: dict[str, str] = {}
        self._logs: dict[str, ProgramLog] = {}
        self._last: list[Written] = []  # of programs that ended

    def start_node(self, config: NodeConfig) -> None:
        """Start the process, with a port of its own."""
        config = replace(config, listen=f"{LOOPBACK}:{free_port()}")
        super().start_node(config)
        if config.node in self._processes:
            self._addresses[config.node] = config.listen
            self._follow(config.node)

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        """Adopt the programs of an earlier master; those that have ended meanwhile left their exit codes."""
        super().adopt(nodes)
        for node in self._processes:
            self._addresses[node] = from_checked_json(self._file(node).read_bytes(), NodeConfig).listen
        self._stillborn = [self._ended_alone(each) for each in self._stillborn]

    def addresses(self) -> Mapping[str, str]:
        """Return where the programs of the running processes are to listen."""
        return {node: self._addresses[node] for node in self._processes if node in self._addresses}

    def set_master_endpoint(self, endpoint: str) -> None:
        """Write where programs report to."""
        for node in self._processes:
            write_whole(self._files(node).master, endpoint)

    def send_environment(self, node: str, text: str) -> None:
        """Write the variables into the file that the node's shell waits for."""
        if node in self._processes:
            write_whole(self._files(node).variables, text)

    def follow_logs(self, since_ns: Mapping[str, int]) -> None:
        """Begin to read the logs of adopted programs after these lines."""
        for node in (*self._processes, *(each.node for each in self._stillborn)):
            if self._file(node).exists():
                self._follow(node, since_ns.get(node, 0))

    def written(self) -> tuple[Written, ...]:
        """Return the lines that were written since the last call."""
        last, self._last = self._last, []
        now_ns = self._now_ns()
        return (*last, *(line for log in self._logs.values() for line in log.take(now_ns)))

    def poll(self) -> tuple[NodeExited, ...]:
        """Return the nodes that ended, whose last lines are read."""
        exited = super().poll()
        for each in exited:
            if (log := self._logs.pop(each.node, None)) is not None:
                while lines := log.take(self._now_ns(), is_last=True):
                    self._last += lines
                log.remove()
        return exited

    def close(self) -> None:
        """Ask all programs to end, and end them by force after a while."""
        for node in self._processes:
            self.stop_node(node)
        last_s = time.monotonic() + GRACE_S + _MORE_S
        while self._processes and time.monotonic() < last_s:
            self.poll()
            time.sleep(_POLL_S)
        super().close()

    def log(self, node: str) -> Path:
        """Return the file that a node's program writes to; unlike those of nodes of ours, it is one."""
        return self._files(node).log

    def _follow(self, node: str, since_ns: int | None = None) -> None:
        began_ns = self._file(node).stat().st_mtime_ns
        self._logs[node] = ProgramLog(node, self.log(node), began_ns, since_ns=since_ns)

    def _now_ns(self) -> int:
        return int(self._clock.now_s() * 1e9)

    def _outputs(self, node: str) -> tuple[Path, Path]:
        return self.log(node), self.log(node)

    def _environment(self, config: NodeConfig) -> dict[str, str]:
        files = self._files(config.node)
        write_whole(files.master, config.master)
        return variables(config, files, os.environ, token=self._token, certificate=self._certificate)

    def _command(self, configuration: Path) -> list[str]:
        return command(self._files(configuration.stem), BY_ITSELF)

    def _end(self, process: Process) -> None:
        """Ask the supervisor to end the program; it does so by force after a while."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)

    def _exited(self, node: str, process: Process) -> NodeExited:
        return program_exited(self._jobs.get(node, ""), self._files(node), process.pid)

    def _ended_alone(self, gone: NodeExited) -> NodeExited:
        """Return how a program ended while there was no master, if it ended by itself."""
        files = self._files(gone.node)
        if not files.code.exists():
            return gone
        return program_exited(
            from_checked_json(files.configuration.read_bytes(), NodeConfig).spec.name, files
        )

    def _files(self, node: str) -> ProgramFiles:
        return ProgramFiles(self._folder, node)
