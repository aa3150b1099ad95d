"""Sockets between workers and parameter servers that are played: what ZeroMQ's are to the product, on virtual time.

A message arrives after a while, or late, or twice, or not at all; where messages may overtake each other, in any order. That
is more than a connection does, and as much as two of them do: a request that is sent again may go by another one. The memory
of a message is read when it arrives, as ZeroMQ reads it when its own thread sends it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zmq
from simulation.tasks import PER_S

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from simulation.tasks import Tasks

NETWORK = "network"  # whose tasks no fault of a node stops
WAYS_S = (1 / PER_S, 2 / PER_S, 4 / PER_S, 32 / PER_S, 128 / PER_S)
LATE_S = (0.3, 1.0, 3.0, 9.0, 11.0, 25.0)


@dataclass(frozen=True, slots=True)
class Ways:
    """What befalls single messages: shares of them that are lost, late and doubled, and whether they keep their order."""

    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    overtake: bool = False


class Network:
    """All that is on its way between nodes.

    Parameters
    ----------
    tasks, rng, ways
        Time, chance, and what befalls messages.
    """

    def __init__(self, tasks: Tasks, rng: random.Random, ways: Ways) -> None:
        self.tasks, self.rng, self.ways = tasks, rng, ways
        self.routers: dict[str, PlayedSocket] = {}
        self.dealers: dict[
            tuple[str, bytes], PlayedSocket
        ] = {}  # by the endpoint they connect to, and their name
        self.held_until_s: dict[str, float] = {}  # nodes that no message reaches or leaves
        self.broken: set[str] = set()  # those whose messages are lost meanwhile, not late
        self._last_s: dict[tuple[str, bytes, bool], float] = {}
        self._n_port = 0
        self.on_socket: Callable[[str, int], None] = lambda _node, _kind: None

    def port(self) -> int:
        """Return a free port."""
        self._n_port += 1
        return 40_000 + self._n_port

    def post(self, source: PlayedSocket, target: Callable[[], PlayedSocket | None], way: tuple[str, bytes, bool],
             frames: Sequence[Any]) -> None:  # fmt: skip
        """Let a message go its way; `target` is looked up when it arrives."""
        ways, message = self.ways, _Message(frames)
        if self.rng.random() < ways.lost:
            return
        for _ in range(1 + (self.rng.random() < ways.doubled)):
            delay_s = self.rng.choice(LATE_S if self.rng.random() < ways.late else WAYS_S)
            due_s = self.tasks.at_s + delay_s
            if not ways.overtake:
                due_s = self._last_s[way] = max(due_s, self._last_s.get(way, 0.0))
            self.tasks.begin(lambda due_s=due_s: self._bring(source.node, target, message, due_s), NETWORK)

    def _bring(
        self, node: str, target: Callable[[], PlayedSocket | None], message: _Message, due_s: float
    ) -> None:
        self.tasks.sleep(due_s - self.tasks.at_s)
        while (held_s := self._held_s(node, target())) > 0:
            if self.broken & {node, getattr(target(), "node", "")}:
                return
            self.tasks.sleep(held_s)
        if (socket := target()) is not None:
            socket.take(message.frames())

    def _held_s(self, node: str, target: PlayedSocket | None) -> float:
        ends = {node, target.node if target else node}
        return max(self.held_until_s.get(each, 0.0) for each in ends) - self.tasks.at_s


class _Message:
    """Frames that are read once, at their first arrival."""

    def __init__(self, frames: Sequence[Any]) -> None:
        self._frames: Sequence[Any] = frames
        self._read: list[bytes] | None = None

    def frames(self) -> list[bytes]:
        if self._read is None:
            self._read = [bytes(getattr(frame, "buffer", frame)) for frame in self._frames]
        return self._read


class PlayedContext:
    """What a `zmq.Context` is to one node."""

    def __init__(self, network: Network, node: str, wake: Callable[[], None]) -> None:
        self._network, self._node, self._wake = network, node, wake
        self.sockets: list[PlayedSocket] = []

    def socket(self, kind: int) -> PlayedSocket:
        self._network.on_socket(self._node, kind)
        self.sockets.append(PlayedSocket(self._network, self._node, kind, self._wake))
        return self.sockets[-1]


class PlayedSocket:
    """A ROUTER or a DEALER."""

    def __init__(self, network: Network, node: str, kind: int, wake: Callable[[], None]) -> None:
        self._network, self.node, self._kind, self._wake = network, node, kind, wake
        self._queue: deque[list[bytes]] = deque()
        self._parts: deque[bytes] = deque()
        self._endpoint, self.identity, self.closed = "", b"", False
        self.may_read = True  # one message in each turn of a router

    @property
    def is_ready(self) -> bool:
        return bool(self._queue)

    def bind(self, endpoint: str) -> None:
        self._endpoint = endpoint.replace("*", str(self._network.port()))
        self._network.routers[self._endpoint] = self

    def connect(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._network.dealers[endpoint, self.identity] = self

    def getsockopt_string(self, _option: int) -> str:
        return self._endpoint

    def getsockopt(self, _option: int) -> bool:
        return bool(self._parts)

    def take(self, frames: list[bytes]) -> None:
        if not self.closed:
            self._queue.append(frames)
            self._wake()

    def recv(self, _flags: int = 0, *, copy: bool = True) -> Any:
        if not self._parts:
            if not self._queue or not self.may_read:
                raise zmq.Again
            self._parts, self.may_read = deque(self._queue.popleft()), False
        part = self._parts.popleft()
        return part if copy else zmq.Frame(part)

    def recv_multipart(self, *, copy: bool = True) -> list[Any]:
        parts = self._queue.popleft()
        return list(parts) if copy else [zmq.Frame(part) for part in parts]

    def send_multipart(self, frames: Sequence[Any], _flags: int = 0, *, copy: bool = True) -> None:  # noqa: ARG002
        network, endpoint = self._network, self._endpoint
        if self._kind == zmq.DEALER:
            name = self.identity
            network.post(self, lambda: network.routers.get(endpoint), (endpoint, name, True), [name, *frames])
            return
        name = bytes(frames[0])
        way = endpoint, name, False
        network.post(self, lambda: network.dealers.get((endpoint, name)), way, frames[1:])

    def close(self, linger: int = 0) -> None:  # noqa: ARG002 - what was sent is on its way
        self.closed = True
