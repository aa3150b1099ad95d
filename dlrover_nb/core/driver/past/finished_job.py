"""A job that ended and whose master is gone: its last snapshot answers the calls that it can.

A saved snapshot is compressed; where it is still too large, its telemetry is dropped, and then parts that the
history keeps too, oldest first. The last lines of its nodes are saved beside it, for the run folder goes with
the master's pod, and where it lies on a volume no client reads it.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from heapq import merge
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.client.link.call_ends import CallLink
from dlrover_nb.core.client.link.calls import (
    Answer,
    AskLogs,
    AskModel,
    AskSeries,
    AskSnapshot,
    AskSummary,
    Call,
    Done,
    Lines,
    SnapshotReply,
    Stop,
)
from dlrover_nb.core.client.submit_again import submit_again
from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.errors import NotFoundError, StaleDecisionError, WireError
from dlrover_nb.core.rundir.bundle import pack_checkpoint
from dlrover_nb.core.rundir.node_logs import by_node, left_lines, newest
from dlrover_nb.core.structs.job.kubernetes import STATE
from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
from dlrover_nb.core.structs.views.summary import summarize

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.query_answers import LogLine

MOST_RAW_BYTES = 256 << 20  # that a saved snapshot may unpack to
_LONG = (
    "samples",
    "story",
    "curves",
    "nodes",
    "proposals",
    "mitigations",
    "decisions",
    "outcomes",
    "markers",
    "rounds",
)
_SNAPSHOTS: Tagged[JobSnapshot] = Tagged(JobSnapshot)
_LINES: Tagged[Lines] = Tagged(Lines)


class FinishedJob(CallLink):
    """Answers for a job whose master is gone; every call that needs a master is refused.

    Telemetry is answered from its start alone: a reader with a cursor followed the job and has finer rows.

    Parameters
    ----------
    snapshot
        The last one, with the telemetry that is kept.
    lines
        The last lines of its nodes that are kept, for readers that have no access to its run folder.
    """

    def __init__(self, snapshot: JobSnapshot, lines: tuple[LogLine, ...] = ()) -> None:
        super().__init__()
        self._lines = lines
        self._series = snapshot.series or SeriesChunk(0, {}, {})
        self._last = replace(snapshot, series=None)

    def send(self, call: Call) -> Answer:
        """Answer from the last snapshot."""
        match call:
            case AskSnapshot():
                return SnapshotReply(self._last, "")
            case AskSummary():
                return replace(summarize(self._last), live=False)
            case AskSeries(cursor):
                return self._series if cursor == 0 else SeriesChunk(cursor, {}, {})
            case AskLogs(node, n_line):
                return Lines(newest(by_node(self._left()), node, n_line))
            case AskModel():
                return pack_checkpoint(Path(self._last.folder))
            case Stop():
                return Done()
            case _:  # a new call too
                spec, phase = self._last.spec, self._last.phase
                raise StaleDecisionError(
                    f"job {spec.name} has {phase} and its master is gone, so there is nothing left to "
                    "decide; "
                    f"{submit_again(spec)}"
                )

    def _left(self) -> tuple[LogLine, ...]:
        """Return the lines that the nodes left: of the run folder if it is here, else the saved ones."""
        last = self._last
        lines = (last.folder and left_lines(Path(last.folder))) or self._lines
        if lines:
            return lines
        is_kept = last.folder.startswith(f"{STATE}/") and last.spec.kubernetes.keeps_state
        where = f"; what is left of them is on its volume, in {last.folder}/logs" if is_kept else ""
        raise NotFoundError(f"no log lines of job {last.spec.name} were kept: its master is gone{where}")


def pack_lines(lines: tuple[LogLine, ...], *, most_bytes: int) -> bytes:
    """Return lines, compressed; where they are too many, the newest of each node."""
    n_line = max((len(each) for each in by_node(lines).values()), default=0)
    while True:
        last = merge(*(each[-n_line:] for each in by_node(lines).values()), key=lambda line: line.at_s)
        data = zlib.compress(_LINES.pack(Lines(tuple(last) if n_line else ())), 6)
        if len(data) <= most_bytes or not n_line:
            return data
        n_line //= 2


def unpack_lines(data: bytes) -> tuple[LogLine, ...]:
    """Return the lines that `pack_lines` packed; `WireError` when these are none."""
    return _LINES.unpack(_unzipped(data)).lines


def pack_snapshot(snapshot: JobSnapshot, *, most_bytes: int) -> bytes:
    """Return a snapshot, compressed; where too large, without telemetry or its oldest samples and lines."""
    if len(data := zlib.compress(_SNAPSHOTS.pack(snapshot), 6)) <= most_bytes:
        return data
    snapshot = replace(snapshot, series=None)
    keep = max(len(getattr(snapshot, name)) for name in _LONG)
    while len(data := zlib.compress(_SNAPSHOTS.pack(snapshot), 6)) > most_bytes and keep:
        keep //= 2
        newest: dict[str, Any] = {name: getattr(snapshot, name)[-keep:] if keep else () for name in _LONG}
        snapshot = replace(snapshot, **newest)
    return data


def unpack_snapshot(data: bytes) -> JobSnapshot:
    """Return a snapshot that `pack_snapshot` made.

    Raises
    ------
    WireError
        When it is none, or one of an incompatible release.
    """
    return _SNAPSHOTS.unpack(_unzipped(data))


def _unzipped(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, MOST_RAW_BYTES)
    except zlib.error as error:
        raise WireError(f"expected a compressed snapshot of a job, got something else: {error}") from error
