"""Questions to a Ray head that may have ended, with limits of time."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, TypeVar

import ray
from ray.util import client

from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE = "dlrover-nb"  # of all actors of ours
REACH_LIMIT_S = 3.0
ANSWER_LIMIT_S = 10.0

T = TypeVar("T")


def check_reachable() -> None:
    """Raise when Ray does not answer.

    Its client would wait for a minute and more, and then end this process: a notebook's kernel.

    Raises
    ------
    BackendError
        When this process is not connected, or the Ray that it is connected to has ended.
    """
    if not ray.is_initialized():
        raise BackendError("this process is not connected to Ray; connect again")
    if client.ray.is_connected():  # a Ray Client has its own time limits
        return
    address = ray.get_runtime_context().gcs_address
    if (why := silence(address)) is not None:
        raise BackendError(f"the Ray at {address} has ended or cannot be reached ({why}); connect again")


def silence(address: str) -> str | None:
    """Return why ``HOST:PORT`` accepts no connections; None when it does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_LIMIT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def ask_ray(question: Callable[[], T]) -> T:
    """Call the cluster's head, with a time limit.

    A call to a head that dies after our check would block forever, and Ray has no time limit to set. The
    blocked thread ends with this process; nothing else waits for it.

    Raises
    ------
    BackendError
        When the head has ended or does not answer.
    """
    check_reachable()
    answer: Future[T] = Future()
    threading.Thread(target=_settle, args=(answer, question), name="ask-ray", daemon=True).start()
    try:
        return answer.result(ANSWER_LIMIT_S)
    except FutureTimeoutError as error:
        check_reachable()
        raise BackendError(f"Ray did not answer within {ANSWER_LIMIT_S:g} s; connect again") from error


def _settle(answer: Future[T], question: Callable[[], T]) -> None:
    try:
        answer.set_result(question())
    except Exception as error:  # noqa: BLE001 - passed to the calling thread
        answer.set_exception(error)
