"""A job that ended and whose master is gone: its last snapshot answers the calls that it can.

A saved snapshot is compressed; where it is still too large, its telemetry is dropped, and then parts that the
history keeps too, oldest first.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlrover_nb.core.client.calls import (
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
from dlrover_nb.core.client.link import CallLink
from dlrover_nb.core.client.submit_again import submit_again
from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.errors import StaleDecisionError, WireError
from dlrover_nb.core.rundir.bundle import pack_checkpoint
from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
from dlrover_nb.core.structs.summary import summarize

MOST_RAW_BYTES = 256 << 20  # that a saved snapshot may unpack to
_LONG = ("samples", "story", "curves", "nodes", "proposals", "decisions", "outcomes", "markers", "rounds")
_SNAPSHOTS: Tagged[JobSnapshot] = Tagged(JobSnapshot)


class FinishedJob(CallLink):
    """Answers for a job whose master is gone; every call that needs a master is refused.

    Telemetry is answered from its start alone: a reader with a cursor followed the job and has finer rows.

    Parameters
    ----------
    snapshot
        The last one, with the telemetry that is kept.
    """

    def __init__(self, snapshot: JobSnapshot) -> None:
        super().__init__()
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
            case AskLogs():
                return Lines(())
            case AskModel():
                return pack_checkpoint(Path(self._last.folder))
            case Stop():
                return Done()
            case _:  # a new call too
                spec, phase = self._last.spec, self._last.phase
                raise StaleDecisionError(
                    f"job {spec.name} has {phase} and its master is gone: nothing to decide any more; "
                    f"{submit_again(spec)}"
                )


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
    try:
        raw = zlib.decompressobj().decompress(data, MOST_RAW_BYTES)
    except zlib.error as error:
        raise WireError(f"expected a compressed snapshot of a job, got something else: {error}") from error
    return _SNAPSHOTS.unpack(raw)
