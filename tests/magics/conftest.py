from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

import pytest
from IPython.core.interactiveshell import InteractiveShell
from support.jobs.cluster_double import MemoryCluster

from dlrover_nb import cli
from dlrover_nb.cli import CLI
from dlrover_nb.core.connect import remembered
from dlrover_nb.magics.commands import Commands
from dlrover_nb.magics.shell import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """Forget what `connect` of a shell chose: the calls of other tests go to this machine."""
    yield
    remembered.forget()


@pytest.fixture
def memory() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def run(memory: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call the program; it returns its exit code and what it printed."""

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.main(words, commands=Commands(memory.connect, command=CLI, auto_connect=True))
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def shell(
    tmp_path: Path, memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InteractiveShell]:
    """A fresh shell in a folder of its own, with the extension and a cluster to connect to."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    shell.run_line_magic("load_ext", "dlrover_nb")
    magics = loaded(shell)
    assert magics is not None
    magics.commands = Commands(memory.connect, namespace=shell.user_ns)
    yield shell
    shell.history_manager.end_session()
    shell.history_manager.close()
    shell.configurables.clear()
    # Otherwise every shell lives until the process exits, and then collects garbage once more each: minutes.
    atexit.unregister(shell.atexit_operations)
