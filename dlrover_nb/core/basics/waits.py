"""What the present call waits for, told to the front end that made it.

A start of Ray, a busy master or a job's first steps take seconds, deep below the verb that a user typed. The
code that waits says what for with `tell`; a front end that shows it listens, and without one nothing happens.
It belongs to the calling context, as a logger's handler belongs to a process: handing a function down through
every backend was rejected, as most of what lies between has no use for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(what: str) -> None:
    """Say what is waited for from now on: words after "Waiting for"."""
    listener = _listener.get()
    if listener is not None:
        listener(what)


def is_heard() -> bool:
    """Whether a front end shows waits of this context already."""
    return _listener.get() is not None


@contextmanager
def until_ready() -> Iterator[Callable[[], None]]:
    """Show what is waited for within the block until the function that it gives is called, and no more then.

    A program that serves or draws waits all the time, for others: that is its work, and its log's to say.
    """
    outer, ended = _listener.get(), list[bool]()

    def ready() -> None:
        ended.append(True)
        if outer is not None:
            outer("")

    def relay(what: str) -> None:
        if outer is not None and not ended:
            outer(what)

    with listening(relay):
        yield ready


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with what is waited for within the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
