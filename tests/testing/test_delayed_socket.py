"""Requests to a process that listens as a PS does, on a unix socket of its run folder, come later."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from contextlib import closing, suppress

import pytest
from support.runtime.node_played import PlayedJob, spinner
from support.waiting import until

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.testing.faults import Latency, slow

DELAY_S = 0.3
ECHO = """
import os, socket, sys, threading
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{FOLDER}/ps-0.{os.getpid()}")
listener.listen()
def echo(accepted):
    while data := accepted.recv(4096):
        accepted.sendall(data)
    accepted.close()
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def process(own_home):
    folder = own_home / f"run-{time.monotonic_ns()}"  # short: a unix socket has 108 bytes for its path
    folder.mkdir(parents=True)
    process = spinner(folder, "ps-0", f"FOLDER = {str(folder)!r}\n{ECHO}")
    path = folder / f"ps-0.{process.pid}"
    until(lambda: answers(path), what="the server")
    yield process, path
    process.kill()
    process.wait()


def answers(path) -> bool:
    try:
        with closing(connected(path)) as client:
            return echoed_s(client) >= 0
    except OSError:
        return False


def connected(path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


def echoed_s(client: socket.socket) -> float:
    began_s = time.monotonic()
    client.sendall(b"rows")
    if client.recv(4096) != b"rows":
        raise ConnectionResetError
    return time.monotonic() - began_s


def listener(path) -> int:
    """Return the process that a new connection reaches."""
    with closing(connected(path)) as client:
        return struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def test_requests_come_later_by_the_delay_and_directly_again_after_the_block(process):
    server, path = process
    job = PlayedJob(str(path.parent), server.pid, node="ps-0", role=Role.PS)
    with closing(connected(path)) as early:
        echoed_s(early)
        with slow(job, "ps-0", Latency(DELAY_S)) as fault:
            assert listener(path) == fault.injector
            with closing(connected(path)) as client:
                assert min(echoed_s(client) for _ in range(3)) >= DELAY_S
                if "1 connections were closed" in fault.how:
                    assert early.recv(1) == b""  # it is made again, through the proxy
                else:
                    assert "are not delayed" in fault.how  # this account may not
        assert listener(path) == server.pid
    assert sorted(each.name for each in path.parent.iterdir()) == ["faults", "nodes", path.name]


def test_the_socket_is_put_back_when_the_injector_is_killed(process):
    server, path = process
    job = PlayedJob(str(path.parent), server.pid, node="ps-0", role=Role.PS)
    fault = slow(job, "ps-0", Latency(DELAY_S))
    os.kill(fault.injector, signal.SIGKILL)
    until(lambda: fault.ended)
    assert listener(path) == server.pid
    assert answers(path)
    fault.close()


def test_much_data_passes_whole_and_in_order(process):
    server, path = process
    job = PlayedJob(str(path.parent), server.pid, node="ps-0", role=Role.PS)
    sent = os.urandom(3 << 20)
    with slow(job, "ps-0", Latency(0.01)), closing(connected(path)) as client:
        client.setblocking(False)
        got, n_sent = bytearray(), 0
        while len(got) < len(sent):
            with suppress(BlockingIOError):
                n_sent += client.send(sent[n_sent : n_sent + 65536]) if n_sent < len(sent) else 0
            try:
                got += client.recv(65536)
            except BlockingIOError:
                time.sleep(0.001)
        assert bytes(got) == sent
