"""CommandQueue to a loop are answered whatever becomes of the loop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from support.virtual_time import VirtualTime, as_shipped

from dlrover_nb.core.driver.loop.command_queue import CommandQueue
from dlrover_nb.core.errors import BackendError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable


class Asking:
    """A thread that asks, and what it was told; it waits for the loop by the queue alone."""

    def __init__(self, commands: CommandQueue, command: Callable[[], object]) -> None:
        self.told: object = None
        self._thread = threading.Thread(target=self._run, args=(commands, command))
        self._thread.start()

    def _run(self, commands: CommandQueue, command: Callable[[], object]) -> None:
        try:
            self.told = commands.ask(command)
        except BackendError as error:
            self.told = str(error)

    def join(self) -> object:
        self._thread.join()
        return self.told


def make() -> tuple[CommandQueue, threading.Semaphore]:
    there = threading.Semaphore(0)
    return CommandQueue("the loop", over=lambda: NotFoundError("it is over"), wake=there.release), there


def test_a_command_that_waits_when_the_loop_ends_is_answered_and_later_ones_are_refused() -> None:
    commands, there = make()
    asking = Asking(commands, lambda: 42)
    there.acquire()
    commands.close()
    assert asking.join() == 42
    with pytest.raises(NotFoundError, match="it is over"):
        commands.ask(lambda: 42)
    assert not commands.put(lambda: None)


def test_an_error_that_nobody_foresaw_is_an_answer_and_ends_the_loop(words) -> None:
    commands, there = make()
    asking = Asking(commands, lambda: 1 / 0)
    there.acquire()
    with pytest.raises(ZeroDivisionError):
        commands.run_next()
    assert asking.join() == words


def test_commands_are_run_in_their_order_until_none_is_left() -> None:
    commands, _ = make()
    seen: list[int] = []
    for number in range(3):
        assert commands.put(lambda number=number: seen.append(number))  # type: ignore[misc]
    while commands.run_next(wait_s=0.01):
        pass
    assert seen == [0, 1, 2]
    assert commands.is_empty


def answered_after(due_s: float) -> object:
    time = VirtualTime()
    module = as_shipped("dlrover_nb.core.driver.loop.command_queue", time)
    module.Future = time.futures()
    commands = module.CommandQueue("the master of job ads", over=lambda: NotFoundError("it is over"))
    time.at(due_s, commands.run_next)
    return commands.ask(time.now_s)


def test_a_loop_is_waited_for_as_long_as_the_limit_says_and_no_longer(error_words) -> None:
    assert answered_after(30.0) == 30.0
    with error_words(BackendError):
        answered_after(30.1)
