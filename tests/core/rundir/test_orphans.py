"""Sockets without a process are removed, and those with one do not notice it."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from dlrover_nb.core.rundir.orphans import sweep


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as jobs:  # a socket's path is short
        run = Path(jobs) / "run"
        run.mkdir()
        yield run


def bound(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    listener.setblocking(False)
    return listener


def test_sockets_without_a_process_go_and_a_listener_sees_no_stranger(folder):
    bound(folder / "dead").close()
    with bound(folder / "live") as live:
        sweep(folder.parent)
        assert [path.name for path in folder.iterdir()] == ["live"]
        with pytest.raises(BlockingIOError):  # else `status` of that job counts a connection as refused
            live.accept()
