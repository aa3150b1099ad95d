"""Streamed answers: lines of a log, events of a watch; ended by the server, a timeout, or `close`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import msgspec
from urllib3.exceptions import HTTPError, ReadTimeoutError

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    Operation,
    Status,
    Unreachable,
    error_of,
    status_of,
)
from dlrover_nb.core.backends.kubernetes.client.http_transport import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import urllib3

    from dlrover_nb.core.manifests.kinds import Doc


class Lines:
    """Lines of a streamed answer; `close` from any thread ends them."""

    def __init__(self, stream: urllib3.BaseHTTPResponse, operation: Operation) -> None:
        self._response, self._operation, self._closed = stream, operation, threading.Event()

    def close(self) -> None:
        """End it now, also for a thread that waits for the next line."""
        self._closed.set()
        try:
            self._response.shutdown()
        except (ValueError, RuntimeError, OSError):
            return  # it has ended by itself

    def __iter__(self) -> Iterator[bytes]:
        rest: list[bytes] = []
        try:
            for part in self._response.stream(1 << 16):
                first, *others = part.split(b"\n")
                rest.append(first)
                for other in others:
                    yield b"".join(rest)
                    rest = [other]
        except ReadTimeoutError:
            return
        except (HTTPError, OSError, AttributeError) as error:
            if not self._closed.is_set():
                text = f"the connection for {self._operation} broke ({reason_of(error)}); try again"
                raise Unreachable(text, Status(0), self._operation) from error
        finally:
            self._response.close()
        if any(rest) and not self._closed.is_set():
            yield b"".join(rest)


class Watch:
    """Events of a watch: ``{"type": "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK", "object": ...}``.

    A bookmark's object holds only the version up to which all events were sent.
    """

    def __init__(self, stream: urllib3.BaseHTTPResponse, operation: Operation) -> None:
        self._lines, self._operation = Lines(stream, operation), operation

    def __iter__(self) -> Iterator[Doc]:
        for line in self._lines:
            event = decode(line, self._operation)
            if event.get("type") == "ERROR":
                status = status_of(event["object"])
                raise error_of(self._operation, status.code or 500, msgspec.json.encode(event["object"]))
            yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it now, also for a thread that waits for the next event."""
        self._lines.close()


def decode(body: bytes, operation: Operation) -> Doc:
    """Return the object that an answer holds.

    Raises
    ------
    Unreachable
        When it holds none: the peer is no API server.
    """
    try:
        doc = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = f"the answer to {operation} is not JSON: is this the URL of an API server?"
        raise Unreachable(text, Status(0), operation) from error
    if not isinstance(doc, dict):
        raise Unreachable(f"the answer to {operation} is not an object", Status(0), operation)
    return doc
