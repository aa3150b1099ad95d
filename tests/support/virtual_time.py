"""Virtual time for tests of limits: minutes pass at once, and each limit has the value that users get.

Fixtures lengthen some limits for a whole run, so these tests call a module that was executed anew (`as_shipped`),
with virtual time in the place of the machine's. What an attribute of it is replaced by concerns no other test.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import Future
from importlib.util import find_spec, module_from_spec
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class ManualClock:
    """Virtual time for tests and simulations: it moves only in `advance`."""

    def __init__(self, at_s: float = 0.0) -> None:
        self._at_s = at_s

    def now_s(self) -> float:
        """Return the present virtual time."""
        return self._at_s

    def advance(self, seconds: float) -> float:
        """Move on by `seconds` (>= 0) and return the new time."""
        if seconds < 0:
            raise ValueError(f"seconds must be >= 0, got {seconds}")
        self._at_s += seconds
        return self._at_s


class VirtualTime(ManualClock):
    """Takes the place of module `time`: a sleep moves it on, and what is due meanwhile comes about."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[tuple[float, Callable[[], object]]] = []

    def at(self, due_s: float, event: Callable[[], object]) -> None:
        """Let something come about at a time."""
        self._due.append((due_s, event))
        self._due.sort(key=lambda each: each[0])

    def monotonic(self) -> float:
        return self.now_s()

    def time(self) -> float:
        return self.now_s()

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> float:
        end_s = self.now_s() + seconds
        while self._due and self._due[0][0] <= end_s:
            due_s, event = self._due.pop(0)
            super().advance(max(0.0, due_s - self.now_s()))
            event()
        return super().advance(max(0.0, end_s - self.now_s()))

    def wait(self, condition: Callable[[], bool], limit_s: float | None) -> bool:
        """Move on until a condition holds, at most by a limit; return whether it holds."""
        end_s = self.now_s() + (inf if limit_s is None else limit_s)
        while not condition() and self._due and self._due[0][0] <= end_s:
            self.advance(self._due[0][0] - self.now_s())
        if not condition():
            assert end_s < inf, "it waits for ever"
            self.advance(end_s - self.now_s())
        return condition()

    def event(self) -> VirtualEvent:
        """Return an event that is waited for in this time."""
        return VirtualEvent(self)

    def futures(self) -> type[Future[Any]]:
        """Return futures that are waited for in this time."""
        time = self

        class Awaited(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                if not time.wait(self.done, timeout):
                    raise TimeoutError
                return super().result(0)

        return Awaited

    def threads(self, takes_s: float) -> type[VirtualThread]:
        """Return threads that each do what they do so many seconds after their start."""
        time = self

        class Thread(VirtualThread):
            def start(self) -> None:
                time.at(time.now_s() + takes_s, self.end)

            def join(self, timeout: float | None = None) -> None:
                time.wait(lambda: not self.is_alive(), timeout)

        return Thread


class VirtualThread:
    """A thread that is played by the one of the test."""

    def __init__(self, target: Callable[..., object], args: tuple[object, ...] = (), **_: object) -> None:
        self._do, self._is_alive = lambda: target(*args), True

    def end(self) -> None:
        self._do()
        self._is_alive = False

    def is_alive(self) -> bool:
        return self._is_alive


class VirtualEvent:
    """An event of threads that are played by one: it is set by what comes about meanwhile."""

    def __init__(self, time: VirtualTime) -> None:
        self._time, self._is_set = time, False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return self._time.wait(self.is_set, timeout)


class SlowProcess:
    """A process that takes its time to end."""

    stdin = stdout = None

    def __init__(self, time: VirtualTime, ends_at_s: float, pid: int = 0) -> None:
        self._time, self.pid, self.killed_at_s = time, pid, inf
        self.returncode: int | None = None
        time.at(ends_at_s, self._end)

    def _end(self) -> None:
        self.returncode = 0 if self.returncode is None else self.returncode

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.returncode, self.killed_at_s = -9, self._time.now_s()

    def wait(self, timeout: float | None = None) -> int | None:
        if not self._time.wait(lambda: self.returncode is not None, timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired("node", timeout)
        return self.returncode


def as_shipped(name: str, time: VirtualTime) -> ModuleType:
    """Execute a module anew, whose limits are those of its source, and let it live in virtual time."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "time"):
        module.time = time  # type: ignore[attr-defined]
    return module
