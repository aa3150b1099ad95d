"""External programs as processes of this machine: fits `core.driver.backend.ExternalBackend`.

All programs of a machine have one address, so each gets a port of its own, which its peers are told with the
address. Programs run in the folder, and with the variables, of the process that submitted the job; an image
is not used. One that is ended gets SIGTERM first, as in a pod, and some seconds to save its training.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.backends.local.program import exit_path
from dlrover_nb.core.backends.local.program_log import ProgramLog
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.external.program import CLUSTER_VAR, role_of
from dlrover_nb.core.manifests.external_pod import REPORT_FILE_VAR, REPORT_TOKEN_VAR
from dlrover_nb.core.structs.external import CONFIG_VAR
from dlrover_nb.core.structs.node_config import NodeConfig
from dlrover_nb.core.structs.pods import NODE_VAR

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dlrover_nb.core.backends.local.backend import Process
    from dlrover_nb.core.driver.backend import NodeExited
    from dlrover_nb.core.structs.capacity import Need
    from dlrover_nb.core.structs.external import Written

LOOPBACK = "127.0.0.1"
GRACE_S = 10.0  # for a program to save its training
_POLL_S = 0.05
_SHELLS_SIGNAL = 128  # a shell's exit code above it: a signal ended the program


class LocalPrograms(LocalBackend):
    """Backend for one run of an external job on this machine; see `LocalBackend`.

    Parameters
    ----------
    folder
        The job's run folder.
    token
        With which programs report.
    working_folder
        Where programs run; empty: where this process does.
    cpus
        Cores offered; None: all.
    """

    module = "dlrover_nb.core.backends.local.program"

    def __init__(
        self, folder: Path, *, token: str, working_folder: str = "", cpus: float | None = None
    ) -> None:
        super().__init__(folder, cpus=cpus, outlive=True)
        self._token, self._cwd = token, working_folder or None
        self._clock = SystemClock()
        self._addresses: dict[str, str] = {}
        self._logs: dict[str, ProgramLog] = {}
        self._last: list[Written] = []  # of programs that ended
        self._ends_at_s: dict[str, float] = {}

    def start_node(self, config: NodeConfig) -> None:
        """Start the process, with a port of its own."""
        config = replace(config, listen=f"{LOOPBACK}:{_free_port()}")
        super().start_node(config)
        self._follow(config, self._now_ns())

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        """Adopt the programs of an earlier master."""
        super().adopt(nodes)
        for node in self._processes:
            self._addresses[node] = from_json(self._file(node).read_bytes(), NodeConfig).listen

    def addresses(self) -> Mapping[str, str]:
        """Return where the programs of the running processes are to listen."""
        return {node: self._addresses[node] for node in self._processes if node in self._addresses}

    def set_master_endpoint(self, endpoint: str) -> None:
        """Write where programs report to."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_whole(self._report_file, endpoint)

    def send_environment(self, node: str, text: str) -> None:
        """Write the variables into the file that the node's shell waits for."""
        if node in self._processes:
            _write_whole(self._variables_file(node), text)

    def follow_logs(self, since_ns: Mapping[str, int]) -> None:
        """Begin to read the logs of adopted programs after these lines."""
        for node in self._processes:
            began_ns = self._file(node).stat().st_mtime_ns
            self._logs[node] = ProgramLog(node, self.log(node), began_ns, since_ns=since_ns.get(node))

    def written(self) -> tuple[Written, ...]:
        """Return the lines that were written since the last call."""
        last, self._last = self._last, []
        now_ns = self._now_ns()
        return (*last, *(line for log in self._logs.values() for line in log.take(now_ns)))

    def stop_node(self, node: str) -> None:
        """Ask the program to end; it is ended by force after a while."""
        process = self._processes.get(node)
        if process is not None and process.poll() is None and node not in self._ends_at_s:
            self._ends_at_s[node] = time.monotonic() + GRACE_S
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def poll(self) -> tuple[NodeExited, ...]:
        """Return the nodes that ended; end those by force that do not."""
        for node, at_s in self._ends_at_s.items():
            if node in self._processes and time.monotonic() > at_s:
                super().stop_node(node)
        exited = super().poll()
        for each in exited:
            self._ends_at_s.pop(each.node, None)
            if (log := self._logs.pop(each.node, None)) is not None:
                while lines := log.take(self._now_ns(), is_last=True):
                    self._last += lines
                log.remove()
        return exited

    def close(self) -> None:
        """Ask all programs to end, and end them by force after a while."""
        for node in self._processes:
            self.stop_node(node)
        last_s = time.monotonic() + GRACE_S
        while self._processes and time.monotonic() < last_s:
            self.poll()
            time.sleep(_POLL_S)
        for node in self._processes:
            super().stop_node(node)
        super().close()

    def log(self, node: str) -> Path:
        """Return the file that a node's program writes to; unlike those of nodes of ours, it is one."""
        return self._folder / f"{node}.log"

    def _follow(self, config: NodeConfig, now_ns: int) -> None:
        self._addresses[config.node] = config.listen
        self._logs[config.node] = ProgramLog(config.node, self.log(config.node), now_ns)

    def _now_ns(self) -> int:
        return int(self._clock.now_s() * 1e9)

    def _outputs(self, node: str) -> tuple[Path, Path]:
        return self.log(node), self.log(node)

    def _environment(self, config: NodeConfig) -> dict[str, str]:
        """Return the variables: of the submitting process, the role's own, and ours, which win."""
        assert config.spec.foreign is not None
        self.set_master_endpoint(config.master)
        theirs = dict(item.partition("=")[::2] for item in role_of(config.spec.foreign, config.role).env)
        ours = {
            CONFIG_VAR: str(self._file(config.node)),
            CLUSTER_VAR: str(self._variables_file(config.node)),
            NODE_VAR: config.node,
            REPORT_FILE_VAR: str(self._report_file),
            REPORT_TOKEN_VAR: self._token,
        }
        return {**os.environ, **theirs, **ours}

    def _exited(self, node: str, process: Process) -> NodeExited:
        code = _code(exit_path(self._file(node)))
        was_told = code is not None and code <= _SHELLS_SIGNAL
        if code is None or not was_told:
            number = signal.SIGKILL if code is None else code - _SHELLS_SIGNAL
            return self._ended(node, process.pid, -number)
        return replace(self._ended(node, process.pid, code), succeeded=code == 0)

    @property
    def _report_file(self) -> Path:
        return self._folder / "master.url"

    def _variables_file(self, node: str) -> Path:
        return self._folder / f"{node}.variables"


def _free_port() -> int:
    """Return a port that nobody listens on now, on any address: many programs listen on all of them."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _write_whole(path: Path, text: str) -> None:
    """Write a file that is read at any moment."""
    new = path.with_suffix(path.suffix + ".new")
    new.touch(mode=0o600)
    new.write_text(text)
    new.replace(path)


def _code(path: Path) -> int | None:
    """Return the exit code of a program; None: it was ended by force, or its machine was."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
