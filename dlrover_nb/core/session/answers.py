"""A command of another thread, answered by the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.errors import BackendError, DlroverError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

T = TypeVar("T")


def answer(asked: Future[T], command: Callable[[], T], *, who: str) -> None:
    """Run a command; an error meant for the user is its answer, any other one ends the loop of `who` too."""
    try:
        asked.set_result(command())
    except DlroverError as error:
        asked.set_exception(error)
    except Exception as error:
        asked.set_exception(BackendError(f"{who} failed: {error}"))
        raise
