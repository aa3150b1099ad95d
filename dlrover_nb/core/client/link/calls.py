"""Calls to a job's master and its answers: two closed unions of records, the same for every kind of cluster.

A call is encoded as msgpack, over Ray as over HTTP. JSON was rejected: telemetry has values that JSON cannot
express (NaN). Pickles, Ray's default, were rejected too: a client and a master of different
releases could not read each other's, and a pickle can run code. Decoding builds these records only.

`core.client.link.call_ends` converts methods to calls on the client's side, and calls to methods on the
master's. A new call needs a record here and its right in `RIGHTS`, a method and a case there, and a method of
the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.rundir.bundle import CheckpointBundle
from dlrover_nb.core.structs.decisions.call_rights import CallRight
from dlrover_nb.core.structs.decisions.decisions import Decision
from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
from dlrover_nb.core.structs.plan.offers import Allotment, JobOffer, NoOffer
from dlrover_nb.core.structs.plan.queued_jobs import WaitingOffer
from dlrover_nb.core.structs.plan.resources import ResourcePlan
from dlrover_nb.core.structs.training.quality import QualityCurve
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice, ShardChoice
from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
from dlrover_nb.core.structs.views.summary import JobSummary


@dataclass(frozen=True, slots=True)
class AskSnapshot:
    """Request the newest snapshot, unless it is the one with the tag `seen`, which the client has."""

    seen: str = ""


@dataclass(frozen=True, slots=True)
class AskSummary:
    """Request the line of the job in a list of jobs."""


@dataclass(frozen=True, slots=True)
class AskSeries:
    """Request telemetry newer than a cursor."""

    cursor: int


@dataclass(frozen=True, slots=True)
class AskLogs:
    """Request the newest log lines of a node; None: of all nodes."""

    node: str | None
    n_line: int


@dataclass(frozen=True, slots=True)
class AskWeigh:
    """Request predictions for plans."""

    plans: tuple[ResourcePlan, ...]


@dataclass(frozen=True, slots=True)
class AskExplain:
    """Request the explanation of a proposal; None: the open one."""

    proposal: str | None


@dataclass(frozen=True, slots=True)
class Decide:
    """Submit a decision."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Choose:
    """Choose what to do with a shard, set batch sizes, or finish early: one of them."""

    shard: ShardChoice | None = None
    batches: BatchChoice | None = None
    finish: FinishChoice | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the job."""

    by: str
    why: str


@dataclass(frozen=True, slots=True)
class AskModel:
    """Request the newest checkpoint, of a job that keeps its checkpoints on a volume."""


@dataclass(frozen=True, slots=True)
class AskOffer:
    """Request the plans that the job could use, for a choice among jobs."""


@dataclass(frozen=True, slots=True)
class Allot:
    """Say what the job may plan with beside others."""

    allotment: Allotment


@dataclass(frozen=True, slots=True)
class LearnCurves:
    """Plan with these curves of quality against the age of gradients, and no others, from now on."""

    curves: tuple[QualityCurve, ...]


Call = (
    AskSnapshot
    | AskModel
    | AskSummary
    | AskSeries
    | AskLogs
    | AskWeigh
    | AskExplain
    | AskOffer
    | Allot
    | LearnCurves
    | Decide
    | Choose
    | Stop
)

# A model is what a job makes, and a viewer sees what the job does: it is for those who steer.
RIGHTS = {
    AskSnapshot: CallRight.VIEW,
    AskSummary: CallRight.VIEW,
    AskSeries: CallRight.VIEW,
    AskLogs: CallRight.VIEW,
    AskWeigh: CallRight.VIEW,
    AskExplain: CallRight.VIEW,
    AskOffer: CallRight.VIEW,
    AskModel: CallRight.STEER,
    Allot: CallRight.STEER,
    LearnCurves: CallRight.STEER,
    Decide: CallRight.STEER,
    Choose: CallRight.STEER,
    Stop: CallRight.END,
}


def right_of(call: Call) -> CallRight:
    """Return the right that a call needs; the strongest where the table does not say."""
    if isinstance(call, Choose) and call.finish is not None:  # it ends training, and cannot be taken back
        return CallRight.END
    return RIGHTS.get(type(call), CallRight.END)


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """The newest snapshot, and its tag."""

    snapshot: JobSnapshot
    tag: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The client has the newest snapshot."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Log lines, the newest last."""

    lines: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """Predictions for plans, in the order of the request."""

    weighed: tuple[Weighed, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The call was carried out."""


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The job has not begun, or is continued by another master; `why` is what it does now, or waits for."""

    why: str
    is_resuming: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """An error for the user: the name of its class in `core.errors`, and its text."""

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
    | JobOffer
    | WaitingOffer
    | NoOffer
    | Done
    | NotBegun
    | Failed
)
ONCE = (Decide, Choose)  # not sent again when the answer was lost: the master may have carried them out
CALLS: Tagged[Call] = Tagged(Call)
ANSWERS: Tagged[Answer] = Tagged(Answer, written={SnapshotReply: "Picture", CheckpointBundle: "Parcel"})
