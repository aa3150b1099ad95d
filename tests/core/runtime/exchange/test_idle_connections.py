"""Connections that show no key hold nobody up, and are closed after a while."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import pytest
import zmq
from support.waiting import LIMIT_S, until

from dlrover_nb.core.runtime.exchange import sockets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

N_IDLE = 300


@pytest.fixture
def context() -> Iterator[sockets.Context]:
    made: sockets.Context = zmq.Context()
    yield made
    made.term()


def _is_closed(connection: socket.socket) -> bool:
    """Read what has come; return whether the other side has closed it."""
    with contextlib.suppress(BlockingIOError):
        while data := connection.recv(1024):
            assert data
        return True
    return False


def test_a_client_is_served_beside_300_idle_connections_which_are_closed_soon(
    tmp_path: Path, context: sockets.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 2000)
    keys = sockets.new_keys()
    with contextlib.ExitStack() as held:
        router, endpoint = sockets.bind_router(context, "tcp://127.0.0.1", tmp_path / "master", keys)
        held.enter_context(router)
        router.rcvtimeo = int(LIMIT_S * 1000)
        n_before = psutil.Process().num_fds()
        port = urlsplit(endpoint).port
        idle = [socket.create_connection(("127.0.0.1", port or 0)) for _ in range(N_IDLE)]
        for each in idle:
            held.enter_context(each)
            each.setblocking(False)
        dealer = held.enter_context(sockets.connect_dealer(context, endpoint, "worker-0", keys))
        dealer.rcvtimeo = int(LIMIT_S * 1000)
        for number in range(3):
            dealer.send(b"%d" % number)
            name, text = router.recv_multipart()
            router.send_multipart([name, text])
            assert dealer.recv() == b"%d" % number
        until(lambda: all(map(_is_closed, idle)), "the end of idle connections")
        for each in idle:
            each.close()
        until(lambda: psutil.Process().num_fds() < n_before + 20, "their descriptors")
        dealer.send(b"still")
        assert router.recv_multipart()[1] == b"still"


def test_each_port_gives_a_client_ten_seconds_to_show_its_key(
    tmp_path: Path, context: sockets.Context
) -> None:
    router, _ = sockets.bind_router(context, "tcp://127.0.0.1", tmp_path / "master", sockets.new_keys())
    plain, _ = sockets.bind_plain_router(context, "tcp://127.0.0.1", "password")
    with router, plain:
        assert router.handshake_ivl == plain.handshake_ivl == sockets.HANDSHAKE_MS == 10_000
