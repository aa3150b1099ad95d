"""What nodes and the job master say to each other over the wire (control plane).

Each message is one flat record; arrays travel beside it in frames of their own. The data plane
between worker and PS has its own few messages in `core.runtime.exchange`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dlrover_nb.core.structs.checkpoints import MemoryPart, PartSource
from dlrover_nb.core.structs.job import FeatureSpec, JobSpec
from dlrover_nb.core.structs.questions import LogLine
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.samples import NodeSample
from dlrover_nb.core.structs.shards import Lease, Shard

N_BUCKET = 256  # units in which table rows are spread over PS and moved between them


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """All that a node process needs to start.

    `folder` is the job's private run folder (ipc sockets, keys, checkpoints); `master` the endpoint to
    say Hello to; `public_key`/`secret_key` the job's CURVE pair (Z85), used on tcp. `listen` is the
    prefix of the endpoint that a PS binds: ``ipc`` or ``tcp://ADDRESS``. `master_file` names the file
    that holds the master's endpoint when that may change; empty: it never does.
    """

    node: str
    role: Role
    spec: JobSpec
    features: FeatureSpec
    cpu: float
    memory_mib: int
    master: str
    listen: str
    folder: str
    public_key: str
    secret_key: str = field(repr=False)
    master_file: str = ""


# node -> master


@dataclass(frozen=True, slots=True)
class Hello:
    """A node is up. `endpoint` is where a PS serves. `limits` says whether its CPU limit is enforced."""

    node: str
    role: Role
    pid: int
    host: str
    endpoint: str
    cpu_enforced: bool
    memory_enforced: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Heartbeat with measurements; a worker adds how many rows of its shard are done.

    `n_dropped` counts the messages so far that the node did not understand. `members` are the workers that
    wait for each other at this PS (BSP, SSP): a lost word of the master that one is gone is said again.
    """

    sample: NodeSample
    lease: Lease | None = None
    n_row_done: int = 0
    n_dropped: int = 0
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardAsked:
    """A worker wants a shard, beside those that it holds: it asks before the present one ends."""

    node: str
    holding: tuple[Lease, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardFinished:
    """All gradients of the shard have reached the PS.

    Of a worker that holds no other shard it is a question too, answered by Granted or NoShard.

    For an evaluation shard two float32 arrays travel beside it: scores (probabilities) and labels.
    """

    node: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """A stream gave only the first `n_row` rows of a shard: it ended there, or, for 0, before it.

    The worker has let go of the shard.
    """

    node: str
    lease: Lease
    n_row: int


@dataclass(frozen=True, slots=True)
class Paused:
    """The worker stands still, nothing of it is on its way to a PS.

    `lease` is the shard at hand. It may hold the next one too, of which nothing is done.
    """

    node: str
    ps_epoch: int
    lease: Lease | None
    n_row_done: int
    number: int = 0  # of the pause that is answered


@dataclass(frozen=True, slots=True)
class Copied:
    """A PS copied its part of a checkpoint and may change it again; what was copied is written from now on.

    `memory` is None where there was no room for a copy: then the part was written from the store itself,
    and Saved follows at once.
    """

    node: str
    checkpoint: int
    memory: MemoryPart | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """A PS wrote its part of a checkpoint; or could not (full disk), and says why in `error`.

    After an error the PS serves on, and the files of earlier checkpoints are as they were.
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
    """A PS serves under `ps_epoch`; or could not load (damaged file), and says why in `error`.

    `n_from_memory` is how many parts of a checkpoint it read from memory; all others it read from files.
    """

    node: str
    ps_epoch: int
    error: str = ""
    n_from_memory: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """How far a PS is with the rows that it gives away; `is_ready` when the rest takes a moment only."""

    node: str
    move: int
    n_byte_sent: int
    n_byte_left: int
    is_ready: bool


@dataclass(frozen=True, slots=True)
class Left:
    """A worker was drained and goes."""

    node: str


@dataclass(frozen=True, slots=True)
class LinesWritten:
    """What a node wrote since its last word of this kind, oldest first.

    `n_byte` says how far its standard output and its standard error are told: what comes after that in their
    files, its master may read there itself when the node is gone.
    """

    node: str
    lines: tuple[LogLine, ...]
    n_byte: tuple[int, int]


@dataclass(frozen=True, slots=True)
class NodeFailed:
    """A node cannot go on; `retryable` is False for mistakes that a new node would make again."""

    node: str
    why: str
    retryable: bool
    out_of_memory: bool = False


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
    """To a PS: copy your part of the checkpoint (Copied), then write it to `file` atomically (Saved)."""

    checkpoint: int
    file: str


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """A PS and the buckets that it is given."""

    endpoint: str
    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveOut:
    """To a PS: copy these buckets to other PS while you serve, and tell (`Moved`) how far you are.

    `move` is the epoch of the group that it leads to.
    """

    move: int
    targets: tuple[MoveTarget, ...]


@dataclass(frozen=True, slots=True)
class MoveEnd:
    """To a PS of the old or the next group, while workers stand still: send the rest, serve what is new.

    It serves part `index` of `bucket_owner` under the epoch `move` when all of `sources` have sent theirs,
    and answers Loaded; with an `index` of -1 it only gives. `endpoints` are the next group's.
    """

    move: int
    index: int
    endpoints: tuple[str, ...]
    bucket_owner: tuple[int, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoveCancel:
    """To a PS: the move is given up; serve on as before, and forget what came of it."""

    move: int


@dataclass(frozen=True, slots=True)
class Train:
    """To a worker: work with these PS (in index order) under `ps_epoch`; also the way out of a pause.

    `drop_shard` says that the leases of before are void (parameters and queue went back to a checkpoint):
    the worker forgets its shard and asks for one. Else it goes on with the one that it holds.
    """

    ps_epoch: int
    endpoints: tuple[str, ...]
    bucket_owner: tuple[int, ...]
    drop_shard: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """To a worker: finish the iteration at hand, keep the shards, answer Paused with the same number."""

    ps_epoch: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Granted:
    """To a worker: a shard."""

    shard: Shard


@dataclass(frozen=True, slots=True)
class NoShard:
    """To a worker: nothing to do now; ask again after `wait_s`."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class Drain:
    """To a worker: finish the shard that is begun, answer Left and go."""


@dataclass(frozen=True, slots=True)
class Forget:
    """To the PS of index 0: a worker is gone, the others are to wait for it no longer (BSP, SSP)."""

    worker: str


@dataclass(frozen=True, slots=True)
class Adjust:
    """Batches are to have other sizes, as (worker, size).

    To the PS of index 0 where workers keep in step: in force from one round on. To every worker in ASP, which
    knows no rounds: in force from its next batch on.
    """

    sizes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """To any node: end at once."""


FromNode = (
    Hello
    | Report
    | ShardAsked
    | ShardFinished
    | StreamEnded
    | Paused
    | Copied
    | Saved
    | Loaded
    | Moved
    | Left
    | NodeFailed
)
ToNode = (
    Load
    | Save
    | MoveOut
    | MoveEnd
    | MoveCancel
    | Train
    | Pause
    | Granted
    | NoShard
    | Drain
    | Forget
    | Adjust
    | Stop
)
