"""The parent of forked nodes (`forked_nodes`): a process of one thread that has imported what nodes of a role need.

It reads orders from a socket and forks twice for each: as the process between ends, the node becomes a child of the
process that gave the order, which reaps it as its own. A node then runs as ``python -m dlrover_nb.core.runtime.node``.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import time
from pathlib import Path
from typing import TypedDict

NODE = "dlrover_nb.core.runtime.node"
N_BYTE = 1 << 20  # of an order at most: nearly all of it is the environment
DIES_WITH_PARENT, KILL = 1, 9  # PR_SET_PDEATHSIG in prctl.h, and the signal


class Order(TypedDict):
    """What one node is started with, besides its standard input, output and error."""

    configuration: str
    folder: str
    environment: dict[str, str]
    outlives: bool
    master: int


def serve(orders: socket.socket) -> tuple[Order, list[int]]:
    """Fork a node for each order; return in its process, with the order and the node's files."""
    while True:
        data, files, _, _ = socket.recv_fds(orders, N_BYTE, 3)
        if not data:  # who gave orders has ended
            os._exit(0)
        pid = _fork_twice()
        if pid == 0:
            orders.close()
            return json.loads(data), files
        for file in files:
            os.close(file)
        orders.sendall(str(pid).encode())


def _fork_twice() -> int:
    """Return the id of a new process that leads a session, once the one between has ended; in the new one, 0."""
    read, write = os.pipe()
    if between := os.fork():
        os.waitpid(between, 0)
        os.close(write)
        pid = int(os.read(read, 20))
        os.close(read)
        return pid
    if os.fork():
        os._exit(0)
    os.setsid()
    os.write(write, str(os.getpid()).encode())
    os.close(read)
    os.close(write)
    return 0


def become(order: Order, files: list[int]) -> None:
    """Take on all that a process has of the one that starts it."""
    while os.getppid() != order["master"]:
        time.sleep(0.001)
    if not order["outlives"]:
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, KILL)
    for file, to in zip(files, range(3), strict=True):
        os.dup2(file, to)
        os.close(file)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[0] = order["folder"]
    sys.argv = [NODE, order["configuration"]]


def main(descriptor: int, modules: list[str]) -> None:
    """Import, take orders, and be the node of one in each process that is forked."""
    for name in modules:
        importlib.import_module(name)
    n_thread = len([*Path("/proc/self/task").iterdir()])
    assert n_thread == 1, f"a process that forks must have one thread, got {n_thread}"
    gc.collect()
    gc.freeze()
    with contextlib.closing(socket.socket(fileno=descriptor)) as orders:
        order, files = serve(orders)
    become(order, files)
    runpy.run_module(NODE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
