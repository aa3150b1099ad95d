"""Tasks on virtual time: code of the product that sleeps or waits for an answer runs as it is, one task at a time.

A task is a greenlet, so whatever it calls may wait. Times are multiples of 1/1024 s, which floats hold exactly: nothing
is due a hair later than its time.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.driver.driver_world import ManualMachine

PER_S = 1024
LONGEST_S = 1e6  # beyond the end of any simulation


class Task:
    """A greenlet with the name of what it belongs to, which may be frozen."""

    def __init__(self, run: Callable[[], None], of: str, hub: greenlet) -> None:
        self.of, self.number = of, 0  # of its present wait
        self.greenlet = greenlet(run, hub)
        self.is_killed = False
        self.children: list[Task] = []


class Tasks:
    """All tasks of one simulation.

    Parameters
    ----------
    machine
        Whose time passes.
    is_frozen
        Whether the tasks of a name do nothing now.
    """

    def __init__(self, machine: ManualMachine, is_frozen: Callable[[str], bool]) -> None:
        self._machine, self._is_frozen = machine, is_frozen
        self._due: list[tuple[float, int, Task, int, Any]] = []
        self._count, self._hub = count(), getcurrent()
        self._frozen: list[tuple[Task, int, Any]] = []

    @property
    def at_s(self) -> float:
        return self._machine.passed_s

    # for tasks

    def sleep(self, seconds: float) -> None:
        """Let time pass for the present task."""
        self.park(seconds)

    def park(self, seconds: float) -> Any:
        """Wait for `wake`, at most so long; return what it was woken with, None where it was not."""
        task = self.present
        if task.is_killed:  # what it would do at its end: a killed process does nothing
            raise GreenletExit
        self._put(task, seconds, None)
        return self._hub.switch()

    # for the world

    def begin(self, run: Callable[[], None], of: str) -> Task:
        """Begin a task, at once."""
        task = Task(run, of, self._hub)
        task.greenlet.task = task
        self._put(task, 0.0, None)
        return task

    def wake(self, task: Task, value: Any) -> None:
        """Wake a task that is parked."""
        self._put(task, 0.0, value)

    def wake_if(self, task: Task, number: int, value: Any) -> None:
        """Wake a task that is in its wait of this number still."""
        if task.number == number and not task.is_killed:
            self._put(task, 0.0, value)

    def kill(self, task: Task) -> None:
        """End a task where it is, with those that it began; of the present one nothing follows."""
        for each in task.children:
            self.kill(each)
        task.is_killed = True
        if getcurrent() is task.greenlet:
            raise GreenletExit
        if task.greenlet:
            task.greenlet.parent = getcurrent()
            task.greenlet.throw(GreenletExit)

    def run(self, end_s: float, *, until: Callable[[], bool]) -> None:
        """Let tasks run until a time, or until something is the case between two of them."""
        self._thaw()
        while not until() and self._due and self._due[0][0] <= end_s:
            due_s, _, task, number, value = heapq.heappop(self._due)
            if number != task.number or task.is_killed:
                continue
            if self._is_frozen(task.of):
                self._frozen.append((task, number, value))
                continue
            self._machine.passed_s = max(due_s, self.at_s)
            task.greenlet.switch(*([value] if task.greenlet else ()))
        if not until():
            self._machine.passed_s = max(end_s, self.at_s)

    def _thaw(self) -> None:
        frozen, self._frozen = self._frozen, []
        for task, number, value in frozen:
            if number == task.number:
                heapq.heappush(self._due, (self.at_s, next(self._count), task, number, value))

    def _put(self, task: Task, seconds: float, value: Any) -> None:
        task.number += 1
        due_s = self.at_s + math.ceil(max(seconds, 0.0) * PER_S) / PER_S
        heapq.heappush(self._due, (due_s, next(self._count), task, task.number, value))

    @property
    def present(self) -> Task:
        """The task that runs."""
        task: Task = getcurrent().task
        return task

    @property
    def present_or_none(self) -> Task | None:
        """The same; None: none does."""
        return getattr(getcurrent(), "task", None)


class Turns:
    """A lock for tasks, in the place of one for threads; a task may take it again."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks, self._owner, self._depth = tasks, None, 0
        self._waiting: list[Task] = []

    def __enter__(self) -> None:
        while self._owner not in {None, getcurrent()} and not self._tasks.present.is_killed:
            self._waiting.append(self._tasks.present)
            self._tasks.park(LONGEST_S)
        self._owner, self._depth = getcurrent(), self._depth + 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        self._owner, waiting, self._waiting = None, self._waiting, []
        for task in waiting:
            self._tasks.wake(task, None)


class Time:
    """What `time` is to code that runs in tasks."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def monotonic(self) -> float:
        return self._tasks.at_s

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        self._tasks.sleep(seconds)
