"""The dashboard that a notebook started: a process of its own, which ends with the kernel.

It must be no part of the kernel: a busy cell would stop it, and it would slow cells. The kernel holds its standard
input open, so that it ends however the kernel ends, killed as well.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Sequence

START_S = 60.0
END_S = 10.0
_URL = re.compile(r"the dashboard is at (http://\S+?);")


class ServedDashboard:
    """A server as a child process of this one; it runs from the making until `end`.

    Parameters
    ----------
    words
        Further flags of ``dlrover-nb serve``.

    Raises
    ------
    BackendError
        When it does not start; the text has what it said.
    """

    def __init__(self, words: Sequence[str]) -> None:
        command = [sys.executable, "-m", "dlrover_nb.cli", "serve", "--port", "0", "--with-stdin", *words]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._said: list[str] = []
        self._told = threading.Event()
        self.url = ""
        threading.Thread(target=self._read, name="dlrover-dashboard", daemon=True).start()
        self._told.wait(START_S)
        if not self.url:
            self.end()
            said = " ".join(self._said[-3:]) or f"it said nothing for {START_S:g} s"
            raise BackendError(f"the dashboard did not start: {said}")

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def end(self) -> None:
        """End the process; nothing happens when it has ended."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:  # to its end: a full pipe would hold the server up
            self._said = [*self._said[-20:], line.strip()]
            if (found := _URL.search(line)) is not None:
                self.url = found[1]
                self._told.set()
        self._told.set()


def behind_jupyterlab() -> str:
    """Return the path of the dashboard's tile in JupyterLab, where this kernel runs behind one; else empty."""
    base = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "")
    return f"{base.rstrip('/')}/dlrover/" if base else ""
