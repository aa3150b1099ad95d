"""Starts a server as a child of this process, for a notebook: never in the process that controls jobs.

The child ends with its parent, however that ends: its standard input is then closed. A signal on the parent's
death exists on Linux alone, and a thread that starts the child would have to live on.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dlrover_nb.core.errors import BackendError
from dlrover_nb.dashboard.sign_in.by_secret import own_server

if TYPE_CHECKING:
    from collections.abc import Sequence

SAID = "the dashboard is at "  # begins the line that `serve` writes once it listens
END_S = 10.0
_KEPT = 200  # last lines of its log


@dataclass(frozen=True, slots=True)
class Served:
    """A server in a child process, with the address of its first page and the last lines of its log."""

    process: subprocess.Popen[str]
    url: str
    log: deque[str]

    def link(self, path: str = "") -> str:
        """Return the address of a page for one browser, within minutes: a notebook's output is kept."""
        return own_server(self.url, urlsplit(self.url).port or 0).address_once(path)

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended by itself
                self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(words: Sequence[str]) -> Served:
    """Start ``dlrover-nb serve`` with these words, and return once it listens.

    Parameters
    ----------
    words
        Of the verb, such as ``--cluster local``; any free port unless they name one.

    Raises
    ------
    BackendError
        When it ends before it listens; the text is its own.
    """
    port = (
        ()
        if any(word.partition("=")[0] in {"--port", "--unix-socket"} for word in words)
        else ("--port", "0")
    )
    command = [sys.executable, "-m", "dlrover_nb.cli", "serve", "--until-eof", *port, *words]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    log: deque[str] = deque(maxlen=_KEPT)
    assert process.stderr is not None
    for line in process.stderr:
        log.append(line.rstrip())
        if line.startswith(SAID):
            url = line.removeprefix(SAID).split(";")[0].split()[0]
            threading.Thread(
                target=_drain, args=(process, log), name="dlrover-serve-log", daemon=True
            ).start()
            return Served(process, url, log)
    process.wait()
    process.stderr.close()
    if process.stdin is not None:
        process.stdin.close()
    raise BackendError(
        log[-1].removeprefix("dlrover-nb: ") if log else "the dashboard ended and said nothing"
    )


def _drain(process: subprocess.Popen[str], log: deque[str]) -> None:
    if process.stderr is not None:
        with process.stderr as lines:
            log.extend(line.rstrip() for line in lines)
