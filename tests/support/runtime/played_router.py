"""The socket of a PS, in a test that sends its requests and reads its answers."""

from __future__ import annotations

from collections import deque

import zmq


class PlayedRouter:
    """It has what a worker sent, and keeps what would be sent to it."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self._came: deque[bytes] = deque()

    def take(self, identity: bytes, frames: list[bytes]) -> None:
        """Take in a message, for the next `Serving.serve`."""
        self._came.extend([identity, *frames])

    def recv(self, flags: int = 0, *, copy: bool) -> zmq.Frame:
        assert not copy
        if not self._came:
            assert flags == zmq.NOBLOCK
            raise zmq.Again
        return zmq.Frame(self._came.popleft())

    def getsockopt(self, option: int) -> int:
        assert option == zmq.RCVMORE
        return int(bool(self._came))

    def send_multipart(self, frames: list[bytes], *, copy: bool) -> None:
        assert not copy
        self.sent.append([bytes(frame) for frame in frames])
