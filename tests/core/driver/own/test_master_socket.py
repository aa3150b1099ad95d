"""Files of sockets after a master closes its own: those of live nodes stay, for the next master."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

from dlrover_nb.core.driver.own.transport import SOCKET, MasterSocket
from dlrover_nb.core.runtime.exchange.sockets import new_keys


def bound(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_master_that_leaves_removes_the_sockets_of_ended_nodes_alone() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # short: sockets lie there
        folder = Path(name)
        master = MasterSocket("ipc", folder, new_keys())
        assert (folder / SOCKET).is_socket()
        bound(folder / "ps-1.2").close()
        with bound(folder / "ps-0.1"):
            master.close()
            assert [path.name for path in folder.iterdir()] == ["ps-0.1"]
