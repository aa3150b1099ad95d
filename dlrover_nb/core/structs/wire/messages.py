"""Messages between nodes and the job master (control plane).

Each message is one flat record; arrays are sent beside it in frames of their own. The data plane between
worker and PS has its own few messages in `core.runtime.exchange.push_pull`.

A connection that is reset, or a master that is killed, loses what was on its way. What says it again:

=================================================  ===================================================
ShardFinished, ShardReturned, BatchSkipped         the worker: in Hello, ShardAsked, Paused and Left
ShardAsked, Granted, NoShard, StreamEnded, scores  the worker asks again and names what it holds; what
                                                   it does not hold is granted again
Left                                               the worker, until Stop
Train, Pause, Drain, Adjust, SetRate, Backups      the master, after Hello; Paused is said again
Load, Loaded                                       the master, after Hello, while PS load
MoveOut                                            after Hello the move begins anew (one of buckets alone
                                                   is given up after a limit of time)
MoveEnd, MoveCancel, Resize, KeepCopy              the master, after Hello; their answers come again
Save, Cut, Copied, Saved                           after Hello the checkpoint is given up; the final one
                                                   begins anew
Forget, Forgotten                                  the master, at each tick
Report, Alive, Moved                               the next one
Stop, NodeFailed                                   the backend: it ends nodes and reports how they ended
LinesWritten                                       nothing: lines are missing in the log that users see
=================================================  ===================================================

To number and acknowledge every message was rejected: most of them say a state, which the next one repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import BucketLoad
from dlrover_nb.core.structs.training.checkpoints import MemoryPart, PartSource
from dlrover_nb.core.structs.training.failures import ProgramError
from dlrover_nb.core.structs.training.resize_messages import Resize, Resized
from dlrover_nb.core.structs.training.samples import NodeSample
from dlrover_nb.core.structs.training.shards import Lease, Shard, ShardProgress, SkippedBatch
from dlrover_nb.core.structs.wire.copy_messages import CopyKept, Cut, KeepCopy
from dlrover_nb.core.structs.wire.mitigation_messages import Backups, SetRate, ShardReturned

# node -> master


@dataclass(frozen=True, slots=True)
class Hello:
    """A node is up. `endpoint` is where a PS serves, `copies` where a node sends what it has in memory.

    `machine` is what is lost at once: in a pod the machine under it, else its `host`. A worker that connects
    again reports what it did in the training shards that it holds, and in the last ones that it `released`.
    A PS then reports the epoch that it serves (0: none yet), and answers at once an order to load that epoch.
    -1: an earlier release, which would load it once more.
    """

    node: str
    role: Role
    pid: int
    host: str
    endpoint: str
    cpu_enforced: bool
    memory_enforced: bool = False
    copies: str = ""
    machine: str = ""
    released: tuple[ShardProgress, ...] = ()
    unfinished: tuple[ShardProgress, ...] = ()
    ps_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Report:
    """Heartbeat with measurements; a worker adds how many rows of its shard are done.

    `n_dropped` counts the messages so far that the node could not decode. `members` are the workers in the
    rounds of this PS (BSP, SSP), or whose gradients it gathers (GBA): the master repeats a lost Forget for
    one that was given up. `doing` names long work of the node, of which a piece may take longer than a
    heartbeat; empty: none. A PS `is_leaving` when it got SIGTERM: it serves on, for as long as its cluster
    lets it. `load` comes every ten seconds.
    `late_s` is how long its thread of heartbeats had to wait for a processor, since the message before.
    """

    sample: NodeSample
    lease: Lease | None = None
    n_row_done: int = 0
    n_dropped: int = 0
    members: tuple[str, ...] = ()
    doing: str = ""
    is_leaving: bool = False
    load: BucketLoad | None = None
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Alive:
    """Heartbeat of a node whose report is overdue: its main thread has done `n_step` pieces of work.

    `starved_s` is for how long one of its threads could run since then and did not get a processor;
    `late_s` is as in `Report`.
    """

    node: str
    n_step: int
    doing: str = ""
    starved_s: float = 0.0
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ShardAsked:
    """A worker requests a shard beside those that it holds, before the current one ends.

    `released` repeats what it said of the last ones: who does not hold a shard has not always lost it.
    """

    node: str
    holding: tuple[Lease, ...] = ()
    released: tuple[ShardProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardFinished:
    """All gradients of the shard have reached the PS.

    From a worker without another shard it is also a request, answered by Granted or NoShard.

    For an evaluation shard two float32 arrays are sent beside it: scores (probabilities) and labels.
    """

    node: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class BatchSkipped:
    """A batch of a training shard could not be used; its rows count as done."""

    node: str
    lease: Lease
    batch: SkippedBatch


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """A stream had only the first `n_row` rows of a shard: it ended there, or, for 0, before it.

    The worker has released the shard.
    """

    node: str
    lease: Lease
    n_row: int


@dataclass(frozen=True, slots=True)
class Paused:
    """The worker has paused; no request of it to a PS is pending.

    `lease` is its current shard. It may hold the next one too, of which no row is done. `released` as in
    `ShardAsked`: a checkpoint holds rows and their account together.
    """

    node: str
    ps_epoch: int
    lease: Lease | None
    n_row_done: int
    number: int = 0  # of the pause that is answered
    released: tuple[ShardProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class Copied:
    """A PS copied its part of a checkpoint and may change it again; what was copied is written from now on.

    `memory` is None where memory did not suffice for a copy: then the part was written from the store itself,
    and Saved follows at once.
    """

    node: str
    checkpoint: int
    memory: MemoryPart | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """A PS wrote its part of a checkpoint, or failed (full disk) with the reason in `error`.

    After an error the PS goes on serving, and the files of earlier checkpoints are unchanged.
    """

    node: str
    checkpoint: int
    file: str
    sha256: str
    n_row: int
    n_byte: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A PS serves under `ps_epoch`, or could not load (damaged file) with the reason in `error`.

    So many parts it read from memory, and from copies of peers; the others were read from files.
    """

    node: str
    ps_epoch: int
    error: str = ""
    n_from_memory: int = 0
    n_from_peers: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """Progress of a PS with the rows that it sends; `is_ready` when few enough are left for a pause."""

    node: str
    move: int
    n_byte_sent: int
    n_byte_left: int
    is_ready: bool


@dataclass(frozen=True, slots=True)
class Left:
    """A worker that was drained, by its master or by SIGTERM, ends; `lease` is a shard that it leaves.

    It is repeated until the master answers with Stop.
    """

    node: str
    lease: Lease | None = None
    n_row_done: int = 0
    released: tuple[ShardProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A PS refuses all requests of a worker from now on, in answer to Forget."""

    node: str
    worker: str


@dataclass(frozen=True, slots=True)
class LinesWritten:
    """New log lines of a node since its last message of this kind, oldest first.

    `n_byte` is the position up to which standard output and standard error were sent: the master may read the
    rest from their files when the node has ended.
    """

    node: str
    lines: tuple[LogLine, ...]
    n_byte: tuple[int, int]


@dataclass(frozen=True, slots=True)
class NodeFailed:
    """A node has failed; `retryable` is False for errors that a new node would repeat.

    `place` is where in the code, as in `ProgramError`; `by_its_work` is False where it lost a connection.
    """

    node: str
    why: str
    retryable: bool
    out_of_memory: bool = False
    place: str = ""
    by_its_work: bool = True

    @property
    def error(self) -> ProgramError | None:
        """The error of its program; None: it was out of memory, which more of it mends."""
        return None if self.out_of_memory else ProgramError(self.why, self.place)


# master -> node


@dataclass(frozen=True, slots=True)
class Load:
    """To a PS: serve part `index` of `bucket_owner` from now on, from a checkpoint's parts or from nothing.

    A part is read from memory where it can be, else from its file.

    `bucket_owner[b]` is the index of the PS that owns bucket b (length N_BUCKET); of the flat dense
    vector PS i of n owns elements [i*len//n, (i+1)*len//n).
    """

    ps_epoch: int
    index: int
    n_ps: int
    bucket_owner: tuple[int, ...]
    parts: tuple[PartSource, ...]


@dataclass(frozen=True, slots=True)
class Save:
    """To a PS: copy the part of the checkpoint (Cut, Copied), then write it to `file` atomically (Saved).

    Without a `file` it stays in memory. What is in memory of the checkpoint `kept` must stay if it can. One
    that `is_awaited`, by a stop or a change of plan, is made as fast as the machine can. In deterministic
    training it has the first `n_step` steps.
    """

    checkpoint: int
    file: str
    kept: int = -1
    is_awaited: bool = False
    n_step: int | None = None


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """A target PS and its new buckets."""

    endpoint: str
    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveOut:
    """To a PS: copy these buckets to other PS while serving, and report progress (`Moved`).

    `move` is the epoch of the group that it leads to.
    """

    move: int
    targets: tuple[MoveTarget, ...]


@dataclass(frozen=True, slots=True)
class MoveEnd:
    """To a PS of the old or the next group, while workers are paused: send the rest, serve the new part.

    It serves part `index` of `bucket_owner` under the epoch `move` when all of `sources` have sent theirs,
    and answers Loaded; with an `index` of -1 it only sends. `endpoints` are the next group's. In
    deterministic training `n_step` steps are applied before.
    """

    move: int
    index: int
    endpoints: tuple[str, ...]
    bucket_owner: tuple[int, ...]
    sources: tuple[str, ...]
    n_step: int | None = None


@dataclass(frozen=True, slots=True)
class MoveCancel:
    """To a PS: the move is cancelled; go on serving, and discard received chunks."""

    move: int


@dataclass(frozen=True, slots=True)
class Train:
    """To a worker: train with these PS (in index order) under `ps_epoch`; also ends a pause.

    `drop_shard` says that earlier leases are void after a rollback: the worker drops its shards and requests
    one. Otherwise it continues with those that it holds.
    """

    ps_epoch: int
    endpoints: tuple[str, ...]
    bucket_owner: tuple[int, ...]
    drop_shard: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """To a worker: finish the current iteration, keep the shards, answer Paused with the same number.

    With `drops` it drops an exchange that some PS does not answer, though that may have applied its batch.
    """

    ps_epoch: int
    number: int = 0
    drops: bool = False


@dataclass(frozen=True, slots=True)
class Granted:
    """To a worker: a shard, and in deterministic training how many steps are complete."""

    shard: Shard
    n_step: int | None = None


@dataclass(frozen=True, slots=True)
class NoShard:
    """To a worker: no shard now; repeat the request after `wait_s`. `n_step` is as of `Granted`."""

    wait_s: float
    n_step: int | None = None


@dataclass(frozen=True, slots=True)
class StepOpened:
    """To a worker in deterministic training: `n_step` steps are complete, and the next is open.

    A lost one is made good by the next `Granted` or `NoShard`: workers that wait for a step repeat requests.
    """

    n_step: int


@dataclass(frozen=True, slots=True)
class Drain:
    """To a worker: finish the current shard, or only the iteration if `at_once`; answer Left and end."""

    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """To a PS: a worker was given up. Refuse it, let no round wait for it, and answer Forgotten."""

    worker: str


@dataclass(frozen=True, slots=True)
class Adjust:
    """New batch sizes, as (worker, rows of one update).

    In synchronous training to the PS of index 0: in force from one round on. In ASP and GBA, without rounds,
    to every worker: in force from its next batch on.

    `accumulate` names the workers that compute an update as several mini-batches, one after the other, and
    how many.
    """

    sizes: tuple[tuple[str, int], ...]
    accumulate: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """To any node: end at once."""


FromNode = (
    Hello
    | Report
    | Alive
    | ShardAsked
    | ShardFinished
    | BatchSkipped
    | StreamEnded
    | ShardReturned
    | Paused
    | Cut
    | Copied
    | CopyKept
    | Saved
    | Loaded
    | Moved
    | Left
    | Forgotten
    | Resized
    | NodeFailed
)
ToNode = (
    Load | Save | KeepCopy | MoveOut | MoveEnd | MoveCancel | Train | Pause | Granted | NoShard
    | StepOpened | Drain | Forget | Adjust | Backups | SetRate | Resize | Stop
)  # fmt: skip
