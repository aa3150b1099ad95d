"""The process that slows one node: ``python -m dlrover_nb.testing.faults.injector``.

It reads an `Order` from its standard input, then the reports of the node, and writes `Answer` lines. It lets
the node go and exits as soon as its input ends, the process that started it or the node has ended, or it gets
SIGTERM. A process of its own, because the one that asks may be killed, and a thread of a busy notebook kernel
would stop the node for as long as the kernel computes.

Stops need news: a node that has not reported for half of its heartbeat time-out runs freely until it does.
So nothing that goes wrong here makes its master give the node up.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.driver.detached import has_started_at
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.testing.faults import cpu_group
from dlrover_nb.testing.faults.delay_proxy import DelayProxy, disconnect
from dlrover_nb.testing.faults.holding import Hold, HoldFile, held
from dlrover_nb.testing.faults.pacing import SHARE_PERIOD_S, Pacing, longest_stop_s
from dlrover_nb.testing.faults.patterns import delay_s
from dlrover_nb.testing.faults.ways import Answer, News, Order

if TYPE_CHECKING:
    from types import FrameType

CHECK_EVERY_S = 1.0
_READ_BYTES = 1 << 16


class LetGo(Exception):  # noqa: N818 - no error: what ends the work
    """Why the node is let go."""


class Events:
    """What the injector waits for: reports, and the ends of the two processes that it depends on."""

    def __init__(self) -> None:
        self._rest = b""
        self._ends: dict[int, str] = {}

    def watch(self, pid: int, why: str) -> int:
        """End the wait when a process ends; return its descriptor."""
        descriptor = os.pidfd_open(pid)
        self._ends[descriptor] = why
        return descriptor

    def read_line(self) -> bytes:
        """Wait for one line of input."""
        while b"\n" not in self._rest:
            self._read()
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def wait(self, seconds: float) -> list[News]:
        """Wait, and return the reports that came; `LetGo` when it is time to end."""
        end_s, news = time.monotonic() + seconds, list[News]()
        while True:
            left_s = max(0.0, end_s - time.monotonic())
            ready, _, _ = select.select([sys.stdin.fileno(), *self._ends], [], [], left_s)
            for descriptor in ready:
                if descriptor in self._ends:
                    raise LetGo(self._ends[descriptor])
                self._read()
            while b"\n" in self._rest:
                news.append(from_json(self.read_line(), News))
            if not ready:
                return news

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), _READ_BYTES)
        if not data:
            raise LetGo("it was let go")
        self._rest += data


class Stopper:
    """Stops and continues one process; by its descriptor, so that it is never another one of that id."""

    def __init__(self, events: Events, process: int, heartbeat_timeout_s: float) -> None:
        self._events, self._process = events, process
        self._patience_s, self._heard_s = heartbeat_timeout_s / 2, time.monotonic()
        self.news: list[News] = []

    @property
    def may_stop(self) -> bool:
        """Whether the node has reported lately."""
        return time.monotonic() < self._heard_s + self._patience_s

    def run(self, seconds: float) -> float:
        """Let the process run; return how long it ran."""
        began_s = time.monotonic()
        self._wait(seconds)
        return time.monotonic() - began_s

    def stop(self, seconds: float) -> float:
        """Stop the process, and continue it whatever happens; return how long it was stopped."""
        began_s = time.monotonic()
        self._send(signal.SIGSTOP)
        try:
            self._wait(seconds)
        finally:
            self._send(signal.SIGCONT)
        return time.monotonic() - began_s

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended, as the next wait says
            signal.pidfd_send_signal(self._process, number)

    def _wait(self, seconds: float) -> None:
        news = self._events.wait(seconds)
        if news:
            self._heard_s = time.monotonic()
        self.news += news


class Injector:
    """Slows one node as an order says."""

    def __init__(self, order: Order, events: Events, process: int, file: HoldFile) -> None:
        self._order, self._events, self._process, self._file = order, events, process, file
        self._stopper = Stopper(events, process, order.heartbeat_timeout_s)

    def work(self) -> NoReturn:
        """Slow the node until `LetGo`."""
        order = self._order
        if order.latency_s is not None:
            self._delay(order.latency_s)
        elif order.share is not None:
            self._share(order.share)
        else:
            self._pace()

    def _hold(self, how: str) -> Hold:
        order, now_s = self._order, SystemClock().now_s()
        hold = Hold(order.node, order.pid, order.started_at_s, order.by, os.getpid(), now_s, how)
        self._file.write(hold)
        return hold

    def _pace(self) -> NoReturn:
        """Stop the process for its delay of each iteration."""
        order = self._order
        longest_s = longest_stop_s(order.heartbeat_timeout_s)
        _say(
            Answer(
                how=self._hold(
                    f"stopped for its delay of each iteration, at most {longest_s:g} s at once"
                ).how
            )
        )
        pacing = Pacing(longest_s, own_s=order.iter_s or None)
        while True:
            delay = delay_s(order.pattern, order.node, time.monotonic() - order.began_up_s)
            may_stop = self._stopper.may_stop and delay > 0
            pacing = pacing.ran(self._stopper.run(pacing.run_for_s(delay if may_stop else 0.0)), delay)
            if may_stop and pacing.stop_for_s > 0:
                pacing = pacing.stopped(self._stopper.stop(pacing.stop_for_s))
            for news in self._stopper.news:
                pacing = pacing.reported(news.iter_s)
            self._stopper.news.clear()
            if delay <= 0:
                pacing = replace(pacing, owed_s=0.0)

    def _share(self, share: float) -> NoReturn:
        """Lower the quota of the node's control group; where it has none, stop the process in turns."""
        order = self._order
        group = cpu_group.own_group(order.pid, f"{order.job}-{order.node}")
        try:
            if group is not None:
                self._lower(group, share)
        except OSError as error:  # not permitted
            how = f"({group} cannot be changed: {error.strerror})"
        else:
            how = "(it has no control group of its own)"
        ran_s = share * SHARE_PERIOD_S
        what = f"stopped for {percent(1 - share)} of each {SHARE_PERIOD_S:g} s {how}"
        _say(Answer(how=self._hold(what).how))
        while True:
            self._stopper.run(ran_s)
            if self._stopper.may_stop:
                self._stopper.stop(SHARE_PERIOD_S - ran_s)
            self._stopper.news.clear()

    def _lower(self, group: Path, share: float) -> NoReturn:
        hold = self._hold(f"the CPU quota of {group} is lowered to {percent(share)}")
        quota = cpu_group.lowered(group, share)
        self._file.write(replace(hold, quota=quota))
        cpu_group.write(quota)
        _say(Answer(how=f"the CPU quota of its control group is {quota.words}"))
        while True:
            self._events.wait(CHECK_EVERY_S)
            if (renewed := cpu_group.renewed(quota, share)) != quota:
                quota = renewed
                self._file.write(replace(hold, quota=quota))
                cpu_group.write(quota)

    def _delay(self, latency_s: float) -> NoReturn:
        """Put a proxy before the socket of a PS."""
        order = self._order
        path = Path(order.folder) / f"{order.node}.{order.pid}"
        if not path.is_socket():
            raise InvalidValueError(
                f"{order.node} listens on no unix socket in {order.folder}: its job uses TCP; "
                "delay its network there (tc qdisc add dev eth0 root netem delay 20ms)"
            )
        hold = self._hold(f"each request comes {latency_s * 1000:g} ms later")
        self._file.write(replace(hold, socket=str(path)))
        proxy = DelayProxy(path, latency_s)
        proxy.take_place()
        thread = threading.Thread(target=proxy.run, name="proxy", daemon=True)
        thread.start()
        _say(Answer(how=f"{hold.how}, by a proxy before its socket; {_moved(order.pid, path)}"))
        while thread.is_alive():
            self._events.wait(CHECK_EVERY_S)
        raise LetGo("its proxy has failed; see above")


def _moved(pid: int, path: Path) -> str:
    """Move existing connections to the proxy; return what the user should know of them."""
    try:
        n_moved = disconnect(pid, path)
    except OSError as error:
        return (
            f"connections that exist are not delayed, since they may not be closed ({error.strerror}): "
            "only workers that are started from now on are"
        )
    return (
        f"{n_moved} connections were closed and are made again through it; what was under way in them is "
        "repeated after 10 s"
    )


def _say(answer: Answer) -> None:
    with contextlib.suppress(BrokenPipeError):  # who asked has ended; the next wait notices
        os.write(sys.stdout.fileno(), to_json(answer) + b"\n")


def _terminated(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise LetGo("its injector was ended")


def obey(order: Order, events: Events) -> NoReturn:
    """Slow the node of an order until it is time to let it go."""
    with held(Path(order.folder), order.node) as file:
        file.let_go()  # what a killed injector left
        process = events.watch(order.pid, f"{order.node} has ended")
        if not has_started_at(order.pid, order.started_at_s):
            raise LetGo(f"{order.node} has ended")
        events.watch(os.getppid(), "the process that asked for it has ended")
        if os.getppid() != order.parent:
            raise LetGo("the process that asked for it has ended")
        try:
            Injector(order, events, process, file).work()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            file.let_go()


def main() -> int:
    """Obey one order; return the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    events = Events()
    try:
        order = from_json(events.read_line(), Order)
        obey(order, events)
    except (LetGo, ProcessLookupError) as why:
        _say(Answer(ended=str(why)))
        return 0
    except (DlroverError, OSError) as error:
        _say(Answer(refused=str(error)))
        return 1


if __name__ == "__main__":
    sys.exit(main())
