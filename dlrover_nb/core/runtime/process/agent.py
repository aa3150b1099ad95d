"""The connection of a node to the job master: orders, reports, and its end without a master.

A node works in one thread. It waits only in `Agent.wait`, which wakes for the master, for the sockets that
the node watches, and once a second for the report, which is also the heartbeat. While that is overdue another
thread sends the heartbeat (`HeartbeatThread`); a lock guards the socket to the master, which both use.

A silent master is healthy (a PS may receive nothing for hours); a master without a connection is lost.
ZeroMQ's own heartbeats detect that, also when a host vanishes. A node that reconnects says Hello again,
because the master may be a restarted one. A node without a connection for four heartbeat time-outs ends
itself, so that nothing is left behind when a cluster kills the master.

Where a restarted master may get another address, a file names the current one (`NodeConfig.master_file`). The
node reads it once a second, also while it is connected: a host that lost its power keeps a connection for
half a minute, and a master that was cut off and replaced keeps its connection for as long as it lives.
Messages that are sent without a connection wait in the node, not in a socket to a master that may never
return.

The main thread reports once a second between its pieces of work (`Agent.tick`). Where a piece takes longer (a
slow disk, a share of a core, a step of seconds), the thread of the heartbeat says that the process lives, and
how far the main thread is: a counter of its pieces. So the master tells three nodes apart: a stopped process,
which is silent; a hung main thread, whose counter stands still; and a slow one, whose counter moves. A
heartbeat that only says "alive" was rejected: it would keep a hung node for ever.

This thread needs a processor too. It tells for how long it got none when it was due: a host that lets it wait
so long may do it again, and a silence proves nothing there. The mere lateness was rejected as a measure: a
stopped process, and a main thread that keeps the interpreter's lock, make it late too.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import socket as host_socket
import struct
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.runtime.exchange.message_decoder import MessageDecoder, receive
from dlrover_nb.core.runtime.exchange.sockets import HIGH_WATER, JobKeys, new_dealer, reachable
from dlrover_nb.core.runtime.exchange.wire import encode
from dlrover_nb.core.runtime.process.cpu_waits import Starvation, own_wait_s
from dlrover_nb.core.runtime.process.limits import Enforced
from dlrover_nb.core.structs.training.resize_messages import Resized
from dlrover_nb.core.structs.wire.copy_messages import KeepCopy
from dlrover_nb.core.structs.wire.messages import Alive, FromNode, Hello, LinesWritten, Report, ToNode
from dlrover_nb.core.structs.wire.pod_contract import MACHINE_VAR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.runtime.exchange.sockets import Context, Socket
    from dlrover_nb.core.runtime.process.output import Output
    from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
    from dlrover_nb.core.structs.training.resize_messages import Resize
    from dlrover_nb.core.structs.training.samples import NodeSample
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

_log = logging.getLogger(__name__)

REPORT_EVERY_S = CHECK_MASTER_EVERY_S = 1.0
GONE_AFTER_HEARTBEATS = 4
_MIB = 1 << 20
LEAVING_ALONE_S = 30.0  # so long a node that leaves waits for another master: its job may be deleted
_MONITOR_EVENT = struct.Struct("=hi")  # number of the event, its value
_ENDPOINT = re.compile(r"tcp://\S+:\d+")
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class HeartbeatThread:
    """Calls `beat` every `every_s` seconds, from `start` to `stop`.

    It is given for how many seconds this thread waited for a processor since the call before.
    """

    def __init__(self, beat: Callable[[float], None], every_s: float) -> None:
        self._beat, self._every_s = beat, every_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; once."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for the last beat."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        waited_s = own_wait_s()
        while not self._ends.wait(self._every_s):
            before_s, waited_s = waited_s, own_wait_s()
            self._beat(waited_s - before_s)


class Agent:
    """Connection of one node to its master.

    Parameters
    ----------
    context
        Where the sockets are made.
    config
        Name of the node and endpoint of its master.
    clock, accounting
        Of the reports.
    output
        The log of the node; None: it is not sent.
    """

    def __init__(
        self,
        context: Context,
        config: NodeConfig,
        clock: Clock,
        accounting: TimeAccounting,
        output: Output | None = None,
    ) -> None:
        self._context, self._config = context, config
        self._clock, self._accounting, self._output = clock, accounting, output
        self._decoder = MessageDecoder(config.node, ToNode)
        self._poller = zmq.Poller()
        self._descriptors: dict[Socket | int, int] = {}  # of what it polls
        self._unsent: deque[list[bytes]] = deque()  # while there is no connection
        self._connect(config.master)
        self._disconnected_since_s: float | None = clock.now_s()  # None: connected
        self._check_master_at_s = clock.now_s() + CHECK_MASTER_EVERY_S
        self._report_at_s: float | None = None  # None: not before Hello
        self._hello: Hello | None = None
        self._must_say_hello = False
        self._n_step, self._doing, self._late_s = 0, "", 0.0
        self._starvation: tuple[int, Starvation] | None = None  # since a step that did not end in time
        self._without_master_s = GONE_AFTER_HEARTBEATS * config.spec.heartbeat_timeout_s
        self._lock = threading.RLock()  # of the socket to the master, its connection and what is unsent
        self._heartbeat = HeartbeatThread(self._beat, REPORT_EVERY_S)
        self.obey: Callable[[ToNode], None] = _ignore
        self.describe: Callable[[NodeSample], Report] = Report
        self.introduce: Callable[[Hello], Hello] = _unchanged  # adds what the master may not have heard
        self.apply_limits: Callable[[float, int], Enforced] = _advisory
        self.copies = ""  # endpoint at which this node sends copies of checkpoints
        self.keep_copy: Callable[[KeepCopy], None] = _ignore
        self.sleep: Callable[[Sequence[int], float], None] | None = None  # in the place of the poller
        self.make_way: Callable[[], int] = int  # frees copies beyond the limit; returns bytes of the rest
        self.memory_mib = config.memory_mib

    def hello(self, endpoint: str, enforced: Enforced) -> None:
        """Send Hello, and begin to report."""
        host = host_socket.gethostname()
        machine = os.environ.get(MACHINE_VAR, host)
        self._hello = Hello(
            self._config.node, self._config.role, os.getpid(), host, endpoint, *enforced, self.copies, machine
        )
        _log.info("%s is up: process %d on %s", self._config.node, self._hello.pid, host)
        self.send(self._hello)
        self._report_at_s = self._clock.now_s() + REPORT_EVERY_S
        self._heartbeat.start()

    def leave(self) -> None:
        """Give a master that is away less time to come back."""
        self._without_master_s = min(self._without_master_s, LEAVING_ALONE_S)

    def resize(self, order: Resize) -> None:
        """Apply other limits and answer; a Hello to a later master says what is enforced then."""
        if order.is_ahead:
            return
        self.memory_mib = order.memory_mib
        cpu, memory = self.apply_limits(order.cpu, order.memory_mib)
        if self._hello is not None:
            self._hello = replace(self._hello, cpu_enforced=cpu, memory_enforced=memory)
        _log.info("%s may use %g cores and %d MiB", self._config.node, order.cpu, order.memory_mib)
        self.send(Resized(self._config.node, order.cpu, order.memory_mib, cpu, memory))

    @contextlib.contextmanager
    def long_work(self, doing: str) -> Iterator[None]:
        """Tell the master what the node does now: a piece of it may take longer than a heartbeat."""
        self._doing = doing
        try:
            yield
        finally:
            self._doing = ""

    def send(self, message: FromNode | LinesWritten, arrays: Iterable[NDArray[Any]] = ()) -> None:
        """Send one message to the master.

        Raises
        ------
        BackendError
            When a thousand messages wait to be sent: the master does not read.
        """
        frames = encode(message, arrays)
        with self._lock:
            if self._disconnected_since_s is None:
                self._send_now(frames)
            elif len(self._unsent) < HIGH_WATER:
                self._unsent.append([bytes(frame) for frame in frames])
            else:
                raise BackendError(
                    f"a thousand messages wait for the job master at {self._master}, which does not read them"
                )

    def _beat(self, late_s: float) -> None:
        """Send a heartbeat while the report of the main thread is overdue; for the thread of heartbeats."""
        self._late_s = max(self._late_s, late_s)
        with self._lock, contextlib.suppress(BackendError):
            is_due = (
                self._report_at_s is not None and self._clock.now_s() > self._report_at_s + REPORT_EVERY_S
            )
            if not is_due:
                return
            starved_s = self._starved_s()
            if self._disconnected_since_s is None:
                late_s, self._late_s = self._late_s, 0.0
                alive = Alive(self._config.node, self._n_step, self._doing, starved_s, late_s)
                self._send_now(encode(alive, ()))

    def _starved_s(self) -> float:
        """Return for how long the step at hand got no processor, counted from its first late heartbeat."""
        if self._starvation is None or self._starvation[0] != self._n_step:
            self._starvation = self._n_step, Starvation()
        return self._starvation[1].longest_s

    def _send_now(self, frames: list[Any]) -> None:
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again as error:
            raise BackendError("the job master reads no messages; check its log") from error

    def _send_rest(self) -> None:
        while self._unsent:
            self._send_now(self._unsent.popleft())

    def watch(self, socket: Socket | int) -> None:
        """Add a socket that `wait` wakes for, or a descriptor, while it is readable."""
        self._poller.register(socket, zmq.POLLIN)
        self._descriptors[socket] = socket if isinstance(socket, int) else socket.FD

    def unwatch(self, socket: Socket | int) -> None:
        """Undo `watch`."""
        self._poller.unregister(socket)
        del self._descriptors[socket]

    def wait(self, timeout_s: float) -> set[Socket | int]:
        """Wait for a message on a watched socket, an order of the master, or the time-out.

        Passes orders to `obey` and sends a due report. Returns the watched sockets with messages.

        Raises
        ------
        BackendError
            When the connection was lost for too long.
        """
        sleep_s = max(0.0, min(timeout_s, self._until_due_s()))
        with self._lock:
            ready = self._poll(sleep_s)
        if self._monitor in ready:
            self._follow_connection()
        if self._socket in ready:
            self._read_orders()
        ready -= {self._socket, self._monitor}  # the tick may replace them
        self.tick()
        return ready

    def _poll(self, sleep_s: float) -> set[Socket | int]:
        """Wait for messages; return where some are.

        ZeroMQ's descriptors are readable when something new has come since their sockets were asked.
        """
        if self.sleep is None:
            return {each for each, _ in self._poller.poll(math.ceil(sleep_s * 1000))}
        events = self._poller.poll(0)
        self.sleep(list(self._descriptors.values()), 0.0 if events else sleep_s)
        return {each for each, _ in events or self._poller.poll(0)}

    def tick(self) -> None:
        """Send a due report; long work between two waits must call this after each piece of it."""
        now_s = self._clock.now_s()
        self._n_step += 1
        if self._report_at_s is not None and now_s >= self._report_at_s:
            self._follow_connection()  # a restarted master needs Hello amid long work too
            self._report_at_s = now_s + REPORT_EVERY_S
            sample = self._accounting.take(self._config.node, self._config.role)
            copy_mib = self.make_way() / _MIB
            memory_mib = max(0.0, sample.memory_mib - copy_mib)
            machine = self._hello.machine if self._hello is not None else ""
            sample = replace(sample, memory_mib=memory_mib, copy_mib=copy_mib, machine=machine)
            report = self.describe(sample)
            n_dropped = report.n_dropped + self._decoder.n_dropped
            late_s, self._late_s = self._late_s, 0.0
            self.send(replace(report, n_dropped=n_dropped, doing=self._doing, late_s=late_s))
            self.send_output()
        if now_s >= self._check_master_at_s:
            self._check_master_at_s = now_s + CHECK_MASTER_EVERY_S
            self._follow_master_file(now_s)
        self._check_master(now_s)

    def send_output(self, *, is_last: bool = False) -> None:
        """Send the new lines of the node's log."""
        if self._output is not None and (output := self._output.take(is_last=is_last)) is not None:
            self.send(LinesWritten(self._config.node, output.lines, output.n_byte))

    def close(self, linger_s: float = 1.0) -> None:
        """Send the last log lines, and close the sockets; unsent messages have `linger_s` to leave."""
        self._heartbeat.stop()
        with contextlib.suppress(BackendError):
            self.send_output(is_last=True)
            self._send_rest()
        self._disconnect(linger_s)

    def _connect(self, endpoint: str) -> None:
        """Connect to a master with new sockets, so that their events belong to this master only."""
        keys = JobKeys(self._config.public_key, self._config.secret_key)
        self._socket = new_dealer(self._context, endpoint, self._config.node, keys)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)  # before the first event
        self._socket.connect(reachable(endpoint))
        self._master = endpoint
        self.watch(self._socket)
        self.watch(self._monitor)

    def _disconnect(self, linger_s: float) -> None:
        self.unwatch(self._socket)
        self.unwatch(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close(linger=round(linger_s * 1000))

    def _follow_master_file(self, now_s: float) -> None:
        """Connect to the master that the file names, if it has changed; Hello follows on connection."""
        endpoint = read_endpoint(self._config.master_file)
        if not endpoint or endpoint == self._master:
            return
        _log.info("the master of %s moved to %s, from %s", self._config.node, endpoint, self._master)
        with self._lock:
            self._disconnect(0.0)
            self._connect(endpoint)
            self._must_say_hello = True
            if self._disconnected_since_s is None:
                self._disconnected_since_s = now_s

    def _until_due_s(self) -> float:
        if self._report_at_s is None:
            return REPORT_EVERY_S
        return self._report_at_s - self._clock.now_s()

    def _read_orders(self) -> None:
        while True:
            try:
                with self._lock:
                    frames = receive(self._socket)
            except zmq.Again:
                return
            order = self._decoder.read(frames, self._master)
            if order is None:
                continue
            if isinstance(order[0], KeepCopy):
                self.keep_copy(order[0])
            else:
                self.obey(order[0])

    def _follow_connection(self) -> None:
        while self._monitor.poll(0):
            event, _ = _MONITOR_EVENT.unpack(self._monitor.recv_multipart()[0])
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._disconnected_since_s = None
                if self._must_say_hello and self._hello is not None:
                    self.send(self.introduce(self._hello))
                self._send_rest()
            else:
                self._must_say_hello = True
                if self._disconnected_since_s is None:
                    self._disconnected_since_s = self._clock.now_s()

    def _check_master(self, now_s: float) -> None:
        limit_s = self._without_master_s
        if self._disconnected_since_s is not None and now_s - self._disconnected_since_s > limit_s:
            raise BackendError(
                f"{self._config.node} had no connection to its master {self._master} "
                f"for {limit_s:g} s, so it ends"
            )


def read_endpoint(path: str) -> str:
    """Return the master's endpoint from a file; empty: no file, or no endpoint in it."""
    if not path:
        return ""
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if _ENDPOINT.fullmatch(text) else ""


def _advisory(_cpu: float, _memory_mib: int) -> Enforced:
    return Enforced(cpu=False, memory=False)


def _unchanged(hello: Hello) -> Hello:
    return hello


def _ignore(_message: ToNode) -> None:
    """Ignore an order that arrives before the node is ready."""
