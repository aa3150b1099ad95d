"""Run pip with one plain line on its current step: ``pip_progress.py LOG install -c constraints.txt ...``.

pip's own output is either hundreds of lines or, with ``--quiet``, silence for minutes. Here its output goes
to the file LOG, and every ten seconds a line tells the seconds since the start and the step; on a terminal
the line is renewed in place each second. When pip fails, the end of its output is printed and its exit code
is ours.

The steps are read from pip's plain output, which is no interface: a line of an unknown form changes nothing.
How many of the collected packages are installed is counted in the environment, because pip prints nothing
until the last one is. Only the standard library is used: this runs before anything is installed.
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import sysconfig
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN_EVERY_S, TERMINAL_EVERY_S = 10.0, 1.0
SHOWN_ON_FAILURE = 25  # lines
COLLECTING = re.compile(r"\s*(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")
DOWNLOADING = re.compile(r"\s*Downloading (\S+?)(?:-py\S+|-cp\S+)?\.(?:whl|tar\.gz)\S*( \([\d.]+ [kMG]B\))?")
FROM_FILE = re.compile(r"\s*Processing (?:\S*/)?([A-Za-z0-9._]+)-\S+\.(?:whl|tar\.gz)")
BUILDING = re.compile(r"\s*(?:Building|Preparing|Installing build|Getting requirements)\b.*")
INSTALLING = re.compile(r"Installing collected packages: (.*)")


@dataclass
class Progress:
    """What pip does, read line by line."""

    step: str = "starting pip"
    seen: set[str] = field(default_factory=set)
    to_install: int = 0

    def read(self, line: str) -> None:
        """Take one line of pip's output."""
        if match := COLLECTING.match(line) or FROM_FILE.match(line):
            self.seen.add(match[1].lower())
            self.step = f"resolving {match[1]} ({len(self.seen)} packages so far)"
        elif match := DOWNLOADING.match(line):
            self.step = f"downloading {match[1]}{match[2] or ''}"
        elif match := INSTALLING.match(line):
            self.to_install = len(match[1].split(","))
            self.step = "installing"
        elif BUILDING.match(line):
            self.step = line.strip().removesuffix("...").rstrip(": ").lower()

    def text(self, elapsed_s: float, n_installed: int) -> str:
        """Return the line to print after so many seconds, with so many packages new since the start."""
        n_done = min(n_installed, self.to_install)
        done = f" {n_done} of {self.to_install} packages" if self.to_install else ""
        return f"{elapsed_s:5.0f} s  {self.step}{done}"


class Line:
    """The line on the screen: renewed in place on a terminal, else printed anew."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._is_terminal = out, out.isatty()
        self.every_s = TERMINAL_EVERY_S if self._is_terminal else PLAIN_EVERY_S

    def show(self, text: str) -> None:
        """Show the current state."""
        self._out.write(f"\r\x1b[K{text[:100]}" if self._is_terminal else f"{text}\n")
        self._out.flush()

    def end(self, text: str) -> None:
        """Show the last state, which stays."""
        self.show(text)
        self._out.write("\n" if self._is_terminal else "")


def count_installed() -> int:
    """Return how many packages this environment holds."""
    return sum(1 for _ in Path(sysconfig.get_path("purelib")).glob("*.dist-info"))


def run(log: Path, arguments: list[str], out: TextIO) -> int:
    """Run pip with these arguments, show its progress, and return its exit code."""
    began_s, before = time.monotonic(), count_installed()
    command = [sys.executable, "-m", "pip", *arguments]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    progress, line, lines = Progress(), Line(out), list[str]()
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as pip,
    ):
        for text in _lines_and_ticks(pip, line.every_s):
            if text is None:
                line.show(progress.text(time.monotonic() - began_s, count_installed() - before))
            else:
                file.write(text)
                lines.append(text)
                progress.read(text)
    elapsed_s, n_installed = time.monotonic() - began_s, count_installed() - before
    if pip.returncode:
        line.end(f"{elapsed_s:5.0f} s  pip ended with exit code {pip.returncode}; its output is in {log}:")
        out.writelines(lines[-SHOWN_ON_FAILURE:])
    else:
        line.end(f"{elapsed_s:5.0f} s  installed ({n_installed} new packages)")
    return pip.returncode


def _lines_and_ticks(pip: subprocess.Popen[str], every_s: float) -> Iterator[str | None]:
    """Yield each line of pip's output, and None whenever a tick has passed, until pip has ended."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    stdout = pip.stdout
    assert stdout is not None

    def read() -> None:
        for text in stdout:
            lines.put(text)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    due_s = time.monotonic() + every_s
    while True:
        if time.monotonic() >= due_s:
            yield None
            due_s += every_s
        try:
            text = lines.get(timeout=max(0.0, due_s - time.monotonic()))
        except queue.Empty:
            continue
        if text is None:
            return
        yield text


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:], sys.stdout))
