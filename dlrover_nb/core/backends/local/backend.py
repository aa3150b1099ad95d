"""Nodes as processes of this machine: for one machine without Ray, for tests, and beside a debugger.

Each node leads its own session and process group, so that a Ctrl-C in the parent's terminal does not reach it
and its child processes end with it. The kernel kills it when the thread that started it ends, also by a kill
-9 (PR_SET_PDEATHSIG): nothing outlives its driver. A few lines of Python set that flag and then exec the
node, because `preexec_fn` may deadlock in a process that has threads.

Nodes that must outlive their driver do not set it. Each writes its process id and start time to a file, by
which a restarted driver adopts it; they end by themselves when the master stays away.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, TypeAlias

import psutil

from dlrover_nb.core.backends.local.spares import SPARE_MIB, Spares
from dlrover_nb.core.backends.programs.exits import exited, kill_group
from dlrover_nb.core.codec import from_checked_json, to_checked_json
from dlrover_nb.core.driver.backend import NodeAllotted, NodeExited
from dlrover_nb.core.driver.detached import has_started_at, start_time
from dlrover_nb.core.errors import BackendError, InvalidValueError, WireError
from dlrover_nb.core.runtime.checkpoints import sweep_memory
from dlrover_nb.core.runtime.node import gentle_start, spare
from dlrover_nb.core.runtime.process.limits import sweep_groups
from dlrover_nb.core.runtime.process.output import STREAMS, output_path
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from dlrover_nb.core.structs.plan.resources import Need, RolePlan, Size

logger = logging.getLogger(__name__)

END_WAIT_S = 5.0
SETTLED_S = 10.0  # after the start of a node: a spare must not take the cores that the node starts with
SPARE = "spare"  # named so in the job's folder
_MIB = 1 << 20
_LAUNCH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit("its driver ended before it began")
os.execv(sys.argv[2], sys.argv[2:])
"""


def machine(cpus: float | None = None, memory_mib: int | None = None) -> Capacity:
    """Return this machine's capacity for jobs; None: all cores of this process, all memory."""
    if cpus is not None:
        _check.above_zero("cpus", cpus)
    memory = memory_mib or psutil.virtual_memory().total // _MIB
    return Capacity((NodeShape(cpus or float(len(os.sched_getaffinity(0))), int(memory)),))


def running_nodes(jobs: Path, *, besides: Path | None = None) -> Iterator[NodeConfig]:
    """Yield the running nodes of jobs; nodes that end with their driver leave no such files.

    Parameters
    ----------
    jobs
        The folder of run folders.
    besides
        Folder of nodes that are left out.
    """
    for path in jobs.glob("*/nodes/*.pid"):
        with contextlib.suppress(OSError, WireError):  # it is being deleted, or damaged
            if path.parent != besides and _left_behind(path) is not None:
                yield from_checked_json(path.with_suffix(".json").read_bytes(), NodeConfig)


class LocalBackend:
    """Backend on this machine.

    Parameters
    ----------
    folder
        The job's run folder; configurations and logs of nodes lie in ``nodes`` in it, for its owner only.
    cpus, memory_mib
        Capacity offered; None: all of the machine.
    outlive
        Whether nodes survive the driver, so that another one can adopt them.
    resizes
        Whether nodes are resized in place: they set their limits themselves, so that it always succeeds here.
        By default they are replaced, as on machines that are not one's own.
    keeps_spare
        Whether a spare process waits for the next worker while the job trains (`spares`).
    """

    def __init__(
        self,
        folder: Path,
        *,
        cpus: float | None = None,
        memory_mib: int | None = None,
        outlive: bool = False,
        resizes: bool = False,
        keeps_spare: bool = False,
    ) -> None:
        self._spares = Spares(lambda: [*_launcher(), *_node_command(spare.ARGUMENT)])
        self._keeps_spare, self._started_at_s = keeps_spare, inf
        self._last_worker: NodeConfig | None = None
        self._resizes, self._allotted = resizes, list[NodeAllotted]()
        self._folder = folder / "nodes"
        self._capacity = machine(cpus, memory_mib)
        self._outlive = outlive
        self._cwd: str | None = None
        self._processes: dict[str, Process] = {}
        self._stillborn: list[NodeExited] = []
        self._node_names: set[str] = set()
        self._jobs: dict[str, str] = {}
        self._closed = False

    def capacity(self) -> Capacity:
        """Return one machine: this one."""
        return self._capacity

    def room(self) -> Capacity:
        """Return the capacity less that held by nodes of other jobs beside this run folder."""
        others = list(running_nodes(self._folder.parent.parent, besides=self._folder))
        (shape,) = self._capacity.shapes
        cpu = shape.cpu - sum(config.cpu for config in others)
        memory_mib = shape.memory_mib - sum(config.memory_mib for config in others)
        return Capacity((NodeShape(round(cpu, 2), memory_mib),) if cpu > 0 and memory_mib > 0 else ())

    def listen(self) -> str:
        """Return ``ipc``: all nodes are here."""
        return "ipc"

    def prepare(self, workers: RolePlan) -> None:
        """Start processes that become a job's first workers, while the job is prepared."""
        for _ in range(min(workers.count, len(os.sched_getaffinity(0)))):
            self._spares.start(workers.cpu)

    def start_node(self, config: NodeConfig) -> None:
        """Start the process."""
        if self._closed:
            raise BackendError(f"the process backend is closed: {config.node} cannot be started")
        if config.node in self._node_names:
            raise InvalidValueError(f"node ids must be new, got {config.node} again; use the next number")
        self._node_names.add(config.node)
        self._jobs[config.node] = config.spec.name
        try:
            self._processes[config.node] = self._launch(config)
        except OSError as error:
            self._stillborn.append(NodeExited(config.node, f"it could not be started: {error}"))

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        """Adopt the processes of an earlier driver.

        One whose file is damaged may live: it is not reported as gone, and ends by the word of its master, or
        is given up when it stays silent.
        """
        unknown = set[str]()
        for path in self._folder.glob("*.pid"):
            try:
                process = _left_behind(path)
            except WireError as error:
                logger.warning("%s is damaged, and its process can be ended by hand only: %s", path, error)
                unknown.add(path.stem)
                continue
            if process is None:
                continue
            if path.stem in nodes:
                self._processes[path.stem] = process
                self._jobs[path.stem] = _job_of(path.with_suffix(".json"))
            else:
                self._end(process)
        self._node_names.update(nodes)
        gone = [node for node in nodes if node not in self._processes and node not in unknown]
        self._stillborn += [NodeExited(node, "it ended while its master was away") for node in gone]

    def stop_node(self, node: str) -> None:
        """Kill the node's whole process group."""
        process = self._processes.get(node)
        if process is not None and process.poll() is None:
            self._end(process)

    def resizes_in_place(self) -> bool:
        """Return whether this backend was made to resize nodes."""
        return self._resizes

    def resize_node(self, node: str, need: Size) -> None:
        """Note what a node holds from now on, which other jobs of this machine read."""
        path = self._file(node)
        if node in self._processes:
            config = from_checked_json(path.read_bytes(), NodeConfig)
            path.write_bytes(to_checked_json(replace(config, cpu=need[0], memory_mib=need[1])))
            self._allotted.append(NodeAllotted(node, need))

    def allotted(self) -> tuple[NodeAllotted, ...]:
        """Return the nodes that were resized."""
        allotted, self._allotted = self._allotted, []
        return tuple(allotted)

    def poll(self) -> tuple[NodeExited, ...]:
        """Return the nodes that ended, with the errors in their logs."""
        self._mind_spare()
        ended = [(node, process) for node, process in self._processes.items() if _is_over(process)]
        for node, _ in ended:
            del self._processes[node]
        stillborn, self._stillborn = self._stillborn, []
        return (*stillborn, *(self._exited(node, process) for node, process in ended))

    def set_master_endpoint(self, endpoint: str) -> None:
        """Do nothing: a restarted master on this machine has the same endpoint."""

    def waiting(self) -> Mapping[str, str]:
        """Return no node: processes start without waiting."""
        return {}

    def denied(self) -> str:
        """Return nothing: the processes are the user's own."""
        return ""

    def close(self) -> None:
        """Kill all processes and wait until they are gone."""
        self._closed = True
        self._release_spares()
        for process in self._processes.values():
            if process.poll() is None:
                kill_group(process.pid)
        for node, process in self._processes.items():
            try:
                process.wait(END_WAIT_S)
            except subprocess.TimeoutExpired:
                logger.warning("%s (pid %d) does not end; it may hang in the kernel", node, process.pid)
        self._processes.clear()
        sweep_groups()
        sweep_memory()

    def log(self, node: str) -> Path:
        """Return a node's log file."""
        return output_path(self._folder.parent, node, "stderr")

    def _launch(self, config: NodeConfig) -> subprocess.Popen[bytes]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._file(config.node)
        _write_private(path, config)
        outputs = self._outputs(config.node)
        self._started_at_s = time.monotonic()
        if config.role is Role.WORKER:
            self._last_worker = config
            self._file(SPARE).with_suffix(".pid").unlink(missing_ok=True)  # before: it is a node from here on
        assignment = spare.Assignment(str(path), str(outputs[0]), str(outputs[1]), self._outlive)
        process = self._spares.assign(config, assignment) or self._new_process(config, path, outputs)
        if self._outlive:
            _note(path, process.pid)
        return process

    def _new_process(
        self, config: NodeConfig, path: Path, outputs: tuple[Path, Path]
    ) -> subprocess.Popen[bytes]:
        launch = [] if self._outlive else _launcher()
        command = self._command(path)
        if config.starts_gently:
            command = [command[0], "-m", gentle_start.__name__, *command[1:]]
        with outputs[0].open("ab") as out, outputs[1].open("ab") as err:
            return subprocess.Popen(
                [*launch, *command],
                cwd=self._cwd,
                env=self._environment(config),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _mind_spare(self) -> None:
        """Keep one spare for the next worker, once those that were started have had time to come up."""
        config, now_s = self._last_worker, time.monotonic()
        if not self._keeps_spare or config is None or now_s < self._started_at_s + SETTLED_S:
            return
        self._started_at_s = now_s
        self._spares.keep(1)
        if not self._spares.pids:
            self._spares.start(config.cpu)
        try:
            for pid in self._spares.pids:
                _write_private(self._file(SPARE), replace(config, node=SPARE, cpu=0.0, memory_mib=SPARE_MIB))
                _note(self._file(SPARE), pid)
        except OSError:  # the disk is full: what no client can see must not be held
            self._release_spares()

    def _release_spares(self) -> None:
        """End the spares, and what says that this job holds one."""
        self._file(SPARE).with_suffix(".pid").unlink(missing_ok=True)
        self._spares.keep(0)

    def _command(self, configuration: Path) -> list[str]:
        """Return the command of a node's process."""
        return _node_command(str(configuration))

    def _end(self, process: Process) -> None:
        """End the process of a node."""
        kill_group(process.pid)

    def _file(self, node: str) -> Path:
        """Return a node's configuration."""
        return self._folder / f"{node}.json"

    def _outputs(self, node: str) -> tuple[Path, Path]:
        """Return the files for what a node writes to standard output and error."""
        out, err = (output_path(self._folder.parent, node, stream) for stream in STREAMS)
        return out, err

    def _environment(self, config: NodeConfig) -> dict[str, str] | None:  # noqa: ARG002 - for other programs
        """Return a node's variables; None: those of this process."""
        return None

    def _exited(self, node: str, process: Process) -> NodeExited:
        return exited(self._jobs.get(node, ""), node, process.pid, process.returncode, self.log(node))


@dataclass(frozen=True, slots=True)
class _Left:
    """A node's process by its file; the start time is kept because process ids are reused."""

    pid: int
    started_at_s: float


class _Adopted:
    """A process that another driver started; has the used part of `subprocess.Popen`."""

    def __init__(self, process: psutil.Process) -> None:
        self._process, self.pid = process, process.pid
        self.returncode = None  # only a parent gets it

    def poll(self) -> bool | None:
        """Return None while it runs."""
        return None if _runs(self._process) else True

    def wait(self, timeout_s: float) -> None:
        """Wait for its end."""
        try:
            self._process.wait(timeout_s)
        except psutil.TimeoutExpired as error:
            raise subprocess.TimeoutExpired(str(self.pid), timeout_s) from error


Process: TypeAlias = subprocess.Popen[bytes] | _Adopted


def _write_private(path: Path, config: NodeConfig) -> None:
    """Write a configuration for its owner alone: it holds the job's secret key."""
    path.touch(mode=0o600)
    path.write_bytes(to_checked_json(config))


def _note(configuration: Path, pid: int) -> None:
    """Write by which process a driver that comes later adopts a node."""
    configuration.with_suffix(".pid").write_bytes(to_checked_json(_Left(pid, start_time(pid))))


def _job_of(configuration: Path) -> str:
    """Return the job of a node, for messages; empty where its configuration cannot be read any more."""
    try:
        return from_checked_json(configuration.read_bytes(), NodeConfig).spec.name
    except (OSError, WireError):
        return ""


def _launcher() -> list[str]:
    """Return the beginning of the command of a process that ends with the thread that starts it."""
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid())]


def _node_command(argument: str) -> list[str]:
    return [sys.executable, "-m", "dlrover_nb.core.runtime.node", argument]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _left_behind(path: Path) -> _Adopted | None:
    """Return the process of a node's file, if the same process still runs; `WireError` if it is damaged."""
    try:
        left = from_checked_json(path.read_bytes(), _Left)
        process, is_same = psutil.Process(left.pid), has_started_at(left.pid, left.started_at_s)
    except (OSError, psutil.NoSuchProcess):
        return None
    return _Adopted(process) if is_same and _runs(process) else None


def _is_over(process: Process) -> bool:
    return process.poll() is not None
