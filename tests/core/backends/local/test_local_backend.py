"""The process backend: the contract, and what only processes have."""

from __future__ import annotations

import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from support.conformance.backend import BackendConformance, Master, ResizingConformance
from support.waiting import is_gone, until

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.codec import to_json

if TYPE_CHECKING:
    from pathlib import Path

PARENT = """
import sys, time
from pathlib import Path
from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.structs.wire.node_config import NodeConfig
backend = LocalBackend(Path(sys.argv[1]))
backend.start_node(from_json(Path(sys.argv[2]).read_bytes(), NodeConfig))
time.sleep(3600)
"""


class TestProcessBackend(BackendConformance):
    def make(self, folder: Path) -> LocalBackend:
        return LocalBackend(folder)

    def test_the_file_with_the_secret_key_is_its_owners_alone(
        self, backend: LocalBackend, master: Master, folder: Path
    ) -> None:
        self.start(backend, master)
        path = folder / "nodes" / "ps-0.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert backend.log("ps-0").exists()

    def test_a_failing_program_is_told_with_its_last_line(
        self, backend: LocalBackend, master: Master
    ) -> None:
        backend.start_node(self.config(master, "smoke-signals"))
        (exited,) = self.exits(backend)
        assert exited.why.startswith("exit code 1: ")
        assert "smoke-signals" in exited.why

    def test_a_program_that_is_not_there_is_told_and_not_raised(
        self, backend: LocalBackend, master: Master, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        backend.start_node(self.config(master, "ipc"))
        (exited,) = self.exits(backend)
        assert "could not be started" in exited.why

    @pytest.mark.more
    def test_nodes_that_outlive_their_backend_are_adopted_others_ended_and_the_gone_told(
        self, master: Master, folder: Path
    ) -> None:
        first = LocalBackend(folder, outlive=True)
        hellos = [self.start(first, master, f"ps-{n}") for n in range(3)]
        second = LocalBackend(folder, outlive=True)
        psutil.Process(hellos[1].pid).kill()
        self.exits(first)
        second.adopt(dict.fromkeys(["ps-0", "ps-1", "ps-7"], (0.5, 512)))
        assert {exited.node for exited in second.poll()} == {"ps-1", "ps-7"}
        assert [exited.node for exited in self.exits(first)] == ["ps-2"]
        assert psutil.pid_exists(hellos[0].pid)
        second.stop_node("ps-0")
        (exited,) = self.exits(second)
        assert (exited.node, exited.was_killed) == ("ps-0", True)
        first.close()

    def test_a_node_whose_file_is_damaged_is_not_taken_for_gone(
        self, master: Master, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = LocalBackend(folder, outlive=True)
        hello = self.start(first, master, "ps-0")
        path = folder / "nodes" / "ps-0.pid"
        whole = path.read_bytes()
        path.write_bytes(whole.replace(str(hello.pid).encode(), str(hello.pid ^ 1).encode()))
        second = LocalBackend(folder, outlive=True)
        second.adopt({"ps-0": (0.5, 512)})
        assert second.poll() == ()
        assert "ps-0.pid is damaged" in caplog.text
        path.write_bytes(whole)
        third = LocalBackend(folder, outlive=True)
        (folder / "nodes" / "ps-0.json").write_bytes(b"a disk lost this")
        third.adopt({"ps-0": (0.5, 512)})
        third.stop_node("ps-0")
        (exited,) = self.exits(third)
        assert (exited.node, exited.was_killed) == ("ps-0", True)
        first.close()

    def test_no_node_outlives_its_parent_not_even_a_killed_one(self, master: Master, folder: Path) -> None:
        config = folder / "config.json"
        config.write_bytes(to_json(self.config(master, "ipc")))
        parent = subprocess.Popen([sys.executable, "-c", PARENT, str(folder), str(config)])
        hello = master.hello(self.start_limit_s)
        parent.kill()
        parent.wait()
        until(lambda: is_gone(hello.pid), what="the node's end")


class TestProcessesThatAreResized(ResizingConformance):
    def make(self, folder: Path) -> LocalBackend:
        return LocalBackend(folder, resizes=True)

    def test_by_default_none_is(self, folder: Path) -> None:
        assert LocalBackend(folder).resizes_in_place() is False
