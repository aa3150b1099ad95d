"""Log lines of a job's nodes, kept by its master: the newest lines of each node, ended ones included.

Lines arrive over the wire in batches. When a node is gone its master reads the rest from the node's own files
where it can: a worker that crashes or is killed cannot send its last lines. All lines are also appended to
``logs/NODE.log`` of the run folder, for a restarted master and for people, and ``NODE.read`` beside it holds
the position up to which the node's own files are read, and how long the log is with these lines: what stands
behind that was written by a master that was killed before it could note the position, and the next one gets
it again. A full disk affects only these files.

A master writes them in a thread: a thousand nodes send a hundred messages a second, and a busy disk takes
milliseconds for each, in which its loop would answer no client.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from heapq import merge
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import Redactor, shown
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.rundir.locate import run_folder
from dlrover_nb.core.runtime.process.last_words import last_error
from dlrover_nb.core.runtime.process.output import STREAMS, Tail, head, output_path, read_head
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.decisions.query_answers import LogLine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from dlrover_nb.core.structs.training.failures import ProgramError
    from dlrover_nb.core.structs.wire.messages import LinesWritten

logger = logging.getLogger(__name__)

FOLDER = "logs"
N_LINE = 1000  # kept of each node
N_GONE = 20  # ended nodes whose lines are kept
FILE_BYTES = 1 << 20  # of a node's file; one older file is kept
_SHOWN = 10  # names in an error
_LONGEST_NAME = 200  # of a node; with what follows it a file's name has at most 255 bytes
_LAST_LINES = 200  # of a node, that are searched for an error


class NodeLogs:
    """Lines of the nodes of one job. Its driver's loop writes, any thread may read.

    Lines of a node whose name would lead out of the folder of logs are dropped, and the first one is logged.

    Parameters
    ----------
    folder
        The job's run folder.
    secrets
        Texts that no line may contain; credentials of known forms are taken out too.
    in_thread
        Whether files are written in a thread of their own, until `close`.
    """

    def __init__(self, folder: Path, *, secrets: Sequence[str] = (), in_thread: bool = False) -> None:
        self._run, self._folder, self._secrets = folder, folder / FOLDER, tuple(secrets)
        self.without_secrets = Redactor(self._secrets)
        self._lock = threading.Lock()
        self._rings: dict[str, deque[LogLine]] = {}
        self._read: dict[str, tuple[int, int]] = {}
        self._gone: deque[str] = deque()
        self._is_full = self._has_refused = False
        self._writer = ThreadPoolExecutor(1, "node-logs") if in_thread else None

    def add(self, written: LinesWritten) -> None:
        """Add lines that a node sent, unless already read from its files."""
        node, n_byte = written.node, written.n_byte
        if not self._may_name(node):
            return
        if node in self._gone and all(map(int.__le__, n_byte, self._read[node])):
            return
        lines = [replace(line, node=node, text=self.without_secrets(line.text)) for line in written.lines]
        self._add(node, lines, n_byte)

    def position(self, node: str) -> tuple[int, int]:
        """Return the position of the last line kept of a node in each of its streams."""
        return self._read.get(node, (0, 0))

    def knows(self, node: str) -> bool:
        """Whether there are lines of a node of this name."""
        return node in self._rings

    def finish_node(self, node: str, at_s: float) -> None:
        """Read the last lines of a node that exited, and drop those of the one that exited longest ago."""
        self._finish(node, at_s)
        while len(self._gone) > N_GONE:
            self._forget(self._gone.popleft())

    def last_error(self, node: str, *, since_s: float = float("-inf")) -> ProgramError | None:
        """Return the last error in the newest lines of a node; None: there is none since then."""
        with self._lock:
            newest = list(self._rings.get(node, ()))[-_LAST_LINES:]
        return last_error((line.level, line.text) for line in newest if line.at_s >= since_s)

    def last_print(self, node: str) -> str:
        """Return the last line of a node if its program printed it; empty: it did not."""
        with self._lock:
            newest = list(self._rings.get(node, ()))[-1:]
        return next((line.text for line in newest if line.level in STREAMS), "")

    def lines(self, node: str | None, n_line: int, *, there: Iterable[str] = ()) -> tuple[LogLine, ...]:
        """Return the newest lines, see `newest`; `there` are the live nodes, with or without lines."""
        with self._lock:
            rings = {name: list(ring) for name, ring in self._rings.items()}
        silent: dict[str, list[LogLine]] = {name: [] for name in there}
        return newest(silent | rings, node, n_line)

    def cut(self) -> None:
        """Remove the lines whose position an earlier master could not note, before `reload`."""
        for path in self._folder.glob("*.log"):
            noted = _noted(path.with_suffix(".read"))
            with contextlib.suppress(OSError):
                n_byte = path.stat().st_size
                if len(noted) == 3 and noted[2] != n_byte:
                    os.truncate(path, noted[2] if noted[2] < n_byte else 0)  # a shorter one was just begun

    def reload(self, there: Collection[str] = ()) -> None:
        """Read the files of an earlier master; nodes that are not in `there` count as exited."""
        with contextlib.suppress(OSError):
            for path in sorted(self._folder.glob("*.log"), key=lambda path: path.stat().st_mtime):
                node = path.stem
                texts = [text for each in (_older(path), path) for text in _texts(each)]
                self._rings[node] = deque(_parsed(node, texts), N_LINE)
                self._read[node] = _position(path.with_suffix(".read"))
        self._gone.extend(node for node in self._rings if node not in there)

    def close(self, at_s: float) -> None:
        """Read the files of nodes that ran to the end, those too that could not send anything.

        All of them are kept, whatever their number.
        """
        files = output_path(self._run, "*", "stderr")
        for node in {*self._rings, *(path.stem for path in files.parent.glob(files.name))}:
            self._finish(node, at_s)
        if self._writer is not None:
            self._writer.shutdown()

    def _may_name(self, node: str) -> bool:
        """Whether files can have this name; it comes over the wire, and becomes a part of paths."""
        if (
            node not in {"", ".", ".."}
            and not set(node) & {"/", "\0"}
            and len(os.fsencode(node)) <= _LONGEST_NAME
        ):
            return True
        if not self._has_refused:
            logger.warning("lines of a node called %s are dropped: no file can have that name", shown(node))
        self._has_refused = True
        return False

    def _finish(self, node: str, at_s: float) -> None:
        if node in self._gone or not self._may_name(node):
            return
        self._gone.append(node)
        before = self._read.get(node, (0, 0))
        tails = [
            Tail(output_path(self._run, node, stream), node, stream, at=at, secrets=self._secrets)
            for stream, at in zip(STREAMS, before, strict=True)
        ]
        lines = [line for tail in tails for line in tail.take(at_s, is_last=True)]
        out, err = tails
        self._add(node, sorted(lines, key=lambda line: line.at_s), (out.n_byte, err.n_byte))

    def _add(self, node: str, lines: Sequence[LogLine], n_byte: tuple[int, int]) -> None:
        with self._lock:
            self._rings.setdefault(node, deque(maxlen=N_LINE)).extend(lines)
        self._read[node] = n_byte
        if lines:
            self._do(self._write, node, lines, n_byte)

    def _do(self, change: Callable[..., None], *arguments: object) -> None:
        """Change files, one change after the other: in the thread, where there is one."""
        if self._writer is None:
            change(*arguments)
        else:
            self._writer.submit(change, *arguments)

    def _write(self, node: str, lines: Sequence[LogLine], n_byte: tuple[int, int]) -> None:
        try:
            _append(self._folder / f"{node}.log", lines, n_byte)
            self._is_full = False
        except OSError as error:
            if not self._is_full:
                logger.warning("lines of nodes are not written to %s: %s", self._folder, error)
            self._is_full = True

    def _forget(self, node: str) -> None:
        with self._lock:
            self._rings.pop(node, None)
        self._read.pop(node, None)
        path = self._folder / f"{node}.log"
        own = [output_path(self._run, node, stream) for stream in STREAMS]
        self._do(_remove, (path, _older(path), path.with_suffix(".read"), *own))


def names_in(folder: Path) -> set[str]:
    """Return the names of all nodes of which a run folder has a file."""
    places = (
        output_path(folder, "*", "stderr"),
        output_path(folder, "*", "stdout"),
        folder / FOLDER / "*.log",
    )
    return {path.stem for place in places for path in place.parent.glob(place.name)}


def newest(lines: Mapping[str, Sequence[LogLine]], node: str | None, n_line: int) -> tuple[LogLine, ...]:
    """Return the newest lines of a node, or of all nodes together, the newest last.

    Parameters
    ----------
    lines
        Of each known node, oldest first.
    node
        Its name, with or without the job's name as prefix: charts leave that out.

    Raises
    ------
    NotFoundError
        When no node of that name is known; it names the nearest.
    InvalidValueError
        When `n_line` is below 1.
    """
    _check.at_least("number of lines", n_line, 1)
    if node is None:
        return tuple(list(merge(*lines.values(), key=lambda line: line.at_s))[-n_line:])
    short = [name for name in lines if name.endswith(f"-{node}")]
    if node not in lines and len(short) == 1:
        node = short[0]
    if node not in lines:
        near = difflib.get_close_matches(node, lines, n=3)
        names = ", ".join(sorted(lines, key=lambda name: (len(name), name))[-_SHOWN:]) or "none yet"
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {names}"
        raise NotFoundError(f"no node {shown(node)} in this job; {hint}")
    return tuple(lines[node][-n_line:])


def read_logs(job: Path | str, node: str | None = None, *, n_line: int = 100) -> tuple[LogLine, ...]:
    """Return the newest lines of a job without a master.

    Parameters
    ----------
    job
        Its run folder, or its name: the newest run of that name on this machine.

    Raises
    ------
    NotFoundError
        When there is no such job, or no line of it, or of that node.
    """
    folder = run_folder(job)
    logs = NodeLogs(folder)
    logs.reload()
    if node is None and not logs.lines(None, 1):
        raise NotFoundError(f"no node of the job has left a log in {folder}")
    return logs.lines(node, n_line)


def left_lines(folder: Path) -> tuple[LogLine, ...]:
    """Return all lines that a job's nodes left in its run folder, oldest first; none without a folder."""
    logs = NodeLogs(folder)
    logs.reload()
    return logs.lines(None, N_LINE << 10)


def by_node(lines: Iterable[LogLine]) -> dict[str, list[LogLine]]:
    """Return lines by node, in their order."""
    lines_of: dict[str, list[LogLine]] = {}
    for line in lines:
        lines_of.setdefault(line.node, []).append(line)
    return lines_of


def _append(path: Path, lines: Iterable[LogLine], n_byte: tuple[int, int]) -> None:
    """Add lines to a node's file; a full one replaces the older one."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.exists() and path.stat().st_size > FILE_BYTES:
        path.replace(_older(path))
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{head(line.at_s, line.level)}{line.text}\n" for line in lines)
        size = file.tell()
    new = path.with_suffix(".read.new")
    new.write_text("{} {} {}\n".format(*n_byte, size))
    new.replace(path.with_suffix(".read"))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _older(path: Path) -> Path:
    return path.with_suffix(".log.1")


def _texts(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []


def _parsed(node: str, texts: Iterable[str]) -> list[LogLine]:
    """Return the lines of a file; one truncated by a crash has no header and is left out."""
    heads = (read_head(text) for text in texts)
    return [LogLine(head[0], node, head[1], head[2]) for head in heads if head is not None]


def _position(path: Path) -> tuple[int, int]:
    out, err, *_ = _noted(path) or (0, 0)
    return out, err


def _noted(path: Path) -> list[int]:
    """Return the position in both streams, and the log's length, which release 0.1 did not note."""
    try:
        noted = list(map(int, path.read_text().split()))
    except (OSError, ValueError):
        return []
    return noted if len(noted) in {2, 3} else []
