"""Run one node in this process until it ends: the entry point of Ray actors, processes and pods.

``python -m dlrover_nb.core.runtime.node CONFIG.json`` runs the node that a `NodeConfig` in JSON describes. A
PS imports numpy and ZeroMQ only; torch and the data readers are imported for a worker. The order of a start
matters: first the imports and the data, which may take all available CPU, then the CPU limit, then Hello, so
that no measurement includes the start of the node.

SIGTERM ends a node that is not up yet. One that is up leaves in order: a PS tells its master and serves on
until it is stopped, so that its parameters can move to another PS; a worker finishes its shard, so that no
row of it is trained again. A second SIGTERM ends both, and a PS half a minute without a master.

With ``--spare`` it imports what a worker needs, and waits to be told which one it is
(`core.runtime.node.spare`).

Exit code 0: stopped, drained or ended by SIGTERM; 1: failed, with the reason logged and sent to the master.

The C allocator keeps freed memory for the next iteration (`keep_freed`). Messages of a PS and tensors
of a worker are allocated in each iteration. By default glibc gets large blocks from the system and returns
them at once, so each iteration pays a page fault for each 4 KiB: a sixth of the CPU time of a Wide & Deep
job, half of that of xDeepFM. A process keeps at most what it needed once, so its peak does not change.

The rows of a PS are above the limit in any job that matters, so dropped rows are returned to the system.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import logging
import os
import signal
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import zmq

from dlrover_nb.core.basics.redaction import Redactor
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_checked_json
from dlrover_nb.core.errors import BackendError, DlroverError, WireError
from dlrover_nb.core.runtime.checkpoints import MemoryClaim, sweep_memory
from dlrover_nb.core.runtime.node import spare
from dlrover_nb.core.runtime.peers import CopyExchange
from dlrover_nb.core.runtime.process.agent import Agent
from dlrover_nb.core.runtime.process.gpu_use import gpus_here
from dlrover_nb.core.runtime.process.last_words import place_of
from dlrover_nb.core.runtime.process.lasting_imports import lasting_imports
from dlrover_nb.core.runtime.process.limits import ControlGroupLimits, thread_count, thread_variables
from dlrover_nb.core.runtime.process.output import captured
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting, own_memory
from dlrover_nb.core.structs.job.secrets import secret_values
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.checkpoints import PeerCopies
from dlrover_nb.core.structs.wire.messages import NodeFailed
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.runtime.exchange.sockets import Context
    from dlrover_nb.core.runtime.process.container import ContainerLimits
    from dlrover_nb.core.runtime.process.limits import Enforced

    AnyLimits = ControlGroupLimits | ContainerLimits

_log = logging.getLogger(__name__)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MIB = 1 << 20
_PROGRAMS = {Role.WORKER: "worker.worker", Role.PS: "ps.server"}
KEPT_MIB = {Role.WORKER: 1024, Role.PS: 16}  # a larger allocation is returned to the system


def keep_freed(role: Role) -> bool:
    """Keep freed memory from now on; return whether the allocator supports that (glibc does)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    size = KEPT_MIB[role] * _MIB
    return bool(mallopt(_M_MMAP_THRESHOLD, size) and mallopt(_M_TRIM_THRESHOLD, 2 * size - 1))


def run(
    config: NodeConfig,
    *,
    limits: AnyLimits | None = None,
    memory: Callable[[], int] | None = None,
) -> None:
    """Run the node until it is stopped, drained or fails; then clean up.

    Parameters
    ----------
    config
        Configuration of the node.
    limits
        Enforces CPU and memory of the plan; None: control groups of its own.
    memory
        Returns its memory in bytes; None: that of its process.

    Raises
    ------
    DlroverError
        When the node failed; the failure was reported to its master if possible.
    SystemExit
        On SIGTERM, after the clean-up.
    """
    for name, value in thread_variables(config.cpu).items():
        os.environ.setdefault(name, value)
    if config.spec.deterministic:
        os.environ.setdefault("MKL_CBWR", "AUTO")  # the same bits wherever in memory a matrix lies
    keep_freed(config.role)
    clock = SystemClock()
    accounting = TimeAccounting(clock, memory or own_memory)
    limit = limits or ControlGroupLimits(f"{config.spec.name}-{config.node}")
    context: Context = zmq.Context()
    claim = MemoryClaim(config.spec.name, config.folder)
    with captured(config, clock) as output:
        agent = Agent(context, config, clock, accounting, output)
        agent.apply_limits = limit.apply
        try:
            with (
                _on_sigterm(_exit),
                _report_failures(agent, config),
                _peer_copies(context, config, agent, accounting),
            ):
                _serve(context, config, agent, accounting, clock, limit)
        finally:
            limit.release()
            claim.close()
            agent.close()
            context.destroy(linger=0)  # an error amid connecting may have left sockets open


def _serve(
    context: Context,
    config: NodeConfig,
    agent: Agent,
    accounting: TimeAccounting,
    clock: Clock,
    limit: AnyLimits,
) -> None:
    sweep_memory()  # of jobs that ended on this host, which their masters on other hosts cannot reach
    if config.role is Role.PS:
        _serve_ps(context, config, agent, accounting, limit)
    else:
        _serve_worker(context, config, agent, accounting, clock, limit)


def _serve_ps(
    context: Context, config: NodeConfig, agent: Agent, accounting: TimeAccounting, limit: AnyLimits
) -> None:
    import_for(Role.PS)
    from dlrover_nb.core.runtime.ps.server import ParameterServer  # noqa: PLC0415 - a worker needs none

    server = ParameterServer(context, config, agent, accounting)
    with contextlib.closing(server), _on_sigterm(_once(server.leave)):
        agent.hello(server.endpoint, limit.apply(config.cpu, config.memory_mib))
        server.run()


def _serve_worker(
    context: Context,
    config: NodeConfig,
    agent: Agent,
    accounting: TimeAccounting,
    clock: Clock,
    limit: AnyLimits,
) -> None:
    import_for(Role.WORKER)
    from dlrover_nb.core.data import ShardReader, encoded_rows  # noqa: PLC0415 - a PS takes no pyarrow
    from dlrover_nb.core.models.learner import set_threads  # noqa: PLC0415 - nor torch
    from dlrover_nb.core.models.matmul import fast_matmul  # noqa: PLC0415 - the same
    from dlrover_nb.core.runtime.worker.trainer import Trainer  # noqa: PLC0415 - the same
    from dlrover_nb.core.runtime.worker.worker import Worker  # noqa: PLC0415 - nor pandas

    def n_thread(cpu: float) -> int:
        return 1 if config.spec.deterministic else thread_count(cpu)  # sums follow the number of threads

    def apply(cpu: float, memory_mib: int) -> Enforced:
        set_threads(n_thread(cpu))
        return limit.apply(cpu, memory_mib)

    agent.apply_limits = apply
    set_threads(n_thread(config.cpu))
    folder = Path(config.folder)
    encoded = encoded_rows(config.spec.data, config.features) if config.spec.n_epoch > 1 else None
    reader = ShardReader(config.spec.data, config.features, folder=folder, encoded=encoded)
    trainer = Trainer(config.spec, config.features, reader, accounting, folder=folder)
    accounting.gpus = gpus_here() if trainer.learner.is_on_gpu else None
    worker = Worker(context, config, agent=agent, accounting=accounting, clock=clock, trainer=trainer)
    with (
        contextlib.closing(worker),
        _on_sigterm(_once(worker.leave)),
        fast_matmul(config.spec.matmul_precision),
    ):
        agent.hello("", limit.apply(config.cpu, config.memory_mib))
        worker.run()


def import_for(role: Role) -> None:
    """Import what a role needs and the other does not: for a worker torch, and what reads data."""
    with lasting_imports():
        importlib.import_module(f"dlrover_nb.core.runtime.{_PROGRAMS[role]}")


@contextlib.contextmanager
def _peer_copies(
    context: Context, config: NodeConfig, agent: Agent, accounting: TimeAccounting
) -> Iterator[None]:
    """Send and keep copies of checkpoints, unless the job wants none."""
    if config.spec.peer_copies is PeerCopies.NEVER:
        yield
        return
    with contextlib.closing(CopyExchange(context, config, agent, accounting)):
        yield


@contextlib.contextmanager
def _report_failures(agent: Agent, config: NodeConfig) -> Iterator[None]:
    """Report a failure to the master, then raise it."""
    try:
        yield
    except Exception as error:
        _log.exception("%s failed", config.node)
        # A mistake in the input is the same for the next node; a lost connection or a bug may not be.
        is_lasting = isinstance(error, DlroverError) and not isinstance(error, BackendError | WireError)
        why = str(error) if isinstance(error, DlroverError) else f"{type(error).__name__}: {error}"
        is_oom = isinstance(error, MemoryError)
        with contextlib.suppress(BackendError):
            agent.send_output()  # before the message that makes the master end this process
            by_its_work = not isinstance(error, BackendError | WireError)
            why = Redactor(secret_values(config.spec))(why)
            agent.send(NodeFailed(config.node, why, not is_lasting, is_oom, _place(error), by_its_work))
        raise


def _place(error: Exception) -> str:
    """Return where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return place_of(frames[-1].filename, frames[-1].lineno or 0, frames[-1].name) if frames else ""


@contextlib.contextmanager
def _on_sigterm(handle: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM call a function; only a main thread receives signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda _signal, _frame: handle())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit() -> NoReturn:
    """End the node through its clean-up."""
    raise SystemExit(0)


def _once(leave: Callable[[], None]) -> Callable[[], None]:
    """Return a function that lets a node leave at its first call, and ends it at the next."""
    calls = iter([leave])

    def handle() -> None:
        next(calls, _exit)()

    return handle


def main(arguments: list[str]) -> int:
    """Run the node of a configuration file, or wait for one as a spare; return the exit code."""
    if arguments == [spare.ARGUMENT]:
        import_for(Role.WORKER)
        configuration = spare.await_assignment()
        if configuration is None:
            return 0
        arguments = [configuration]
    if len(arguments) != 1:
        _log.error("expected the path of one node configuration, got %d arguments", len(arguments))
        return 2
    try:
        run(from_checked_json(Path(arguments[0]).read_bytes(), NodeConfig))
    except DlroverError as error:
        _log.error("%s", error)
        return 1
    return 0
