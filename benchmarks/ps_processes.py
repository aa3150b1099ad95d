"""Real processes of parameter servers for benchmarks, and what their clients need beside them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, bind_router
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.structs.wire.messages import Hello, Load, Loaded, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dlrover_nb.core.structs.training.checkpoints import PartSource
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

FIRST_EPOCH = 1  # as of a master; a PS that serves nothing is at 0
NODE = ("-m", "dlrover_nb.core.runtime.node")


class Waiter:
    """The part of an agent that `PsClient` needs: waiting for answers."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()

    def watch(self, socket: Any) -> None:
        self._poller.register(socket, zmq.POLLIN)

    def unwatch(self, socket: Any) -> None:
        self._poller.unregister(socket)

    def wait(self, timeout_s: float) -> list[Any]:
        return [socket for socket, _ in self._poller.poll(timeout_s * 1e3)]


@dataclass(frozen=True)
class Group:
    """The PS to start.

    Parameters
    ----------
    config
        Returns the configuration of a PS from its index, its folder and the endpoint of its master.
    bucket_owner
        Index of the PS of each bucket.
    initial
        Parts of a checkpoint that they begin with.
    program
        What Python runs for each.
    """

    config: Callable[[int, Path, str], NodeConfig]
    n_ps: int
    bucket_owner: tuple[int, ...]
    initial: tuple[PartSource, ...] = ()
    program: tuple[str, ...] = NODE


def messages(router: Any) -> Iterator[tuple[bytes, Any]]:
    while True:
        sender, *frames = router.recv_multipart(copy=False)
        yield sender.bytes, decode(frames)[0]


def start(group: Group, folder: Path, router: Any, endpoint: str) -> Iterator[Any]:
    """Start the PS; yield their processes and then, when all serve, their endpoints."""
    for index in range(group.n_ps):
        file = folder / f"ps-{index}.json"
        file.write_bytes(to_json(group.config(index, folder, endpoint)))
        yield subprocess.Popen([sys.executable, *group.program, str(file)])
    endpoints, loaded = dict[str, str](), set[bytes]()
    for sender, message in messages(router):
        if isinstance(message, Hello):
            endpoints[message.node] = message.endpoint
            load = Load(FIRST_EPOCH, int(message.node[3:]), group.n_ps, group.bucket_owner, group.initial)
            router.send_multipart([sender, *encode(load)])
        elif isinstance(message, Loaded) and message.ps_epoch == FIRST_EPOCH:
            if message.error:
                raise SystemExit(message.error)
            loaded.add(sender)
        if len(loaded) == group.n_ps:
            yield [endpoints[f"ps-{index}"] for index in range(group.n_ps)]
            return


@contextmanager
def servers(group: Group, keys: JobKeys) -> Iterator[list[tuple[int, str]]]:
    """Serve while the block runs: process ids and endpoints."""
    context = zmq.Context()
    with tempfile.TemporaryDirectory(prefix="dlb") as name:
        router, endpoint = bind_router(context, "ipc", Path(name) / "master", keys)
        processes: list[Any] = []
        try:
            starting = start(group, Path(name), router, endpoint)
            processes += [next(starting) for _ in range(group.n_ps)]
            yield list(zip([process.pid for process in processes], next(starting), strict=True))
            for index in range(group.n_ps):
                router.send_multipart([f"ps-{index}".encode(), *encode(Stop())])
            for process in processes:
                process.wait(30)
        finally:
            for process in processes:
                process.kill()
                process.wait()
            router.close()
            context.term()
