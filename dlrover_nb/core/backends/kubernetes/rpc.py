"""What clients ask a job's master and what it answers: two closed unions of records, sent as msgpack.

Not as JSON: telemetry has values that JSON does not know (NaN). Nothing but these records can come out of a
request, whatever somebody sends.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, assert_never

from dlrover_nb.core.client.handle import MasterLink
from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.rundir.bundle import CheckpointBundle, pack_checkpoint
from dlrover_nb.core.structs.decisions import Decision
from dlrover_nb.core.structs.questions import Explanation, LogLine, Weighed
from dlrover_nb.core.structs.resources import ResourcePlan
from dlrover_nb.core.structs.shards import BatchChoice, ShardChoice
from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
from dlrover_nb.core.structs.summary import JobSummary


class Served(MasterLink, Protocol):
    """What answers: a driver, or what is left of a job that ended."""

    def summary(self) -> JobSummary:
        """Return the one line that a list of jobs shows."""
        ...


@dataclass(frozen=True, slots=True)
class AskSnapshot:
    """The newest picture, unless it is the one that the client has: that with the tag `seen`."""

    seen: str = ""


@dataclass(frozen=True, slots=True)
class AskSummary:
    """The one line that a list of jobs shows."""


@dataclass(frozen=True, slots=True)
class AskSeries:
    """Telemetry newer than a cursor."""

    cursor: int


@dataclass(frozen=True, slots=True)
class AskLogs:
    """The newest lines that a node wrote; None: all nodes."""

    node: str | None
    n_line: int


@dataclass(frozen=True, slots=True)
class AskWeigh:
    """What plans would bring."""

    plans: tuple[ResourcePlan, ...]


@dataclass(frozen=True, slots=True)
class AskExplain:
    """Why a proposal was made; None: the open one."""

    proposal: str | None


@dataclass(frozen=True, slots=True)
class Decide:
    """A decision that is handed in."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Choose:
    """What to do with a shard, or with batch sizes: one of the two."""

    shard: ShardChoice | None = None
    batches: BatchChoice | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the job."""

    by: str
    why: str


@dataclass(frozen=True, slots=True)
class AskModel:
    """The newest checkpoint, of a job that keeps them on a volume."""


Call = (
    AskSnapshot | AskModel | AskSummary | AskSeries | AskLogs | AskWeigh | AskExplain | Decide | Choose | Stop
)


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """The newest picture, and its tag."""

    snapshot: JobSnapshot
    tag: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The client has the newest picture."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Log lines, the newest last."""

    lines: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """What plans would bring, in the order in which they were asked about."""

    weighed: tuple[Weighed, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """It was done."""


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The job has not begun: what its master is at."""

    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """An error that is meant for the user: the name of its class, and its text."""

    error: str
    text: str


Answer = (
    SnapshotReply
    | Unchanged
    | JobSummary
    | SeriesChunk
    | Lines
    | Weights
    | Explanation
    | Decision
    | CheckpointBundle
    | Done
    | NotBegun
    | Failed
)
CALLS: Tagged[Call] = Tagged(Call)
ANSWERS: Tagged[Answer] = Tagged(Answer, written={SnapshotReply: "Picture"})


class CallHandler:
    """Answers calls about one job; for any number of threads.

    Parameters
    ----------
    boot
        What tells this process from those before it: a tag of theirs is none of ours.
    """

    def __init__(self, boot: str) -> None:
        self._boot, self._n_picture = boot, 0
        self._last: tuple[JobSnapshot, str] | None = None
        self._lock = threading.Lock()

    def answer(self, master: Served, call: Call) -> Answer:
        """Return what the master says; an error of ours is an answer too."""
        try:
            return self._answer(master, call)
        except DlroverError as error:
            return Failed(type(error).__name__, str(error))

    def _answer(self, master: Served, call: Call) -> Answer:  # noqa: C901, PLR0911, PLR0912 - one to a call
        match call:
            case AskSnapshot(seen):
                return self._picture(master.snapshot(), seen)
            case AskSummary():
                return master.summary()
            case AskSeries(cursor):
                return master.series(cursor)
            case AskLogs(node, n_line):
                return Lines(master.logs(node, n_line))
            case AskWeigh(plans):
                return Weights(master.weigh(plans))
            case AskExplain(proposal):
                return master.explain(proposal)
            case AskModel():
                return pack_checkpoint(Path(master.snapshot().folder))
            case Decide(decision):
                return master.decide(decision)
            case Choose(shard, batches):
                for choice in (shard, batches):
                    if choice is not None:
                        master.choose(choice)
                return Done()
            case Stop(by, why):
                master.stop(by, why)
                return Done()
            case _ as never:
                assert_never(never)

    def _picture(self, snapshot: JobSnapshot, seen: str) -> Answer:
        """Return the picture with a tag; pictures are exchanged whole, so another one is another object."""
        with self._lock:
            last = self._last
            if last is None or last[0] is not snapshot:
                self._n_picture += 1
                last = self._last = (snapshot, f"{self._boot}-{self._n_picture}")
        return Unchanged() if last[1] == seen else SnapshotReply(*last)
