"""The data plane between worker and PS: one combined push and pull per PS and iteration.

A worker ends step t with gradients for the rows that it used, and step t+1 needs rows of its own. Both
travel in one message, so an iteration costs one round trip. The PS applies the gradients before it reads, so
a single worker sees exactly what one process would compute. Arrays travel beside the records:

===============  =================================================================================
`Exchange`       push_rows int64 [n], push_grads float32 [n, width], dense gradient float32 [slice or 0],
                 pull_rows int64 [m]
`Exchanged`      rows float32 [m, width], dense float32 [slice]
`InitDense`      dense float32 [slice]
`MoveChunk`      ids int64 [n], table float32 [n, width + state], dense float32 [1 + state, m]
`KeepGradients`  push_rows, push_grads, dense gradient, as of `Exchange`
`Probe`          int64 [n], which `Probed` returns
===============  =================================================================================

Rows of one push are distinct. Nothing in an array counts as applied before its `Exchanged` is here; a
request may be sent again, as the PS applies a step of one connection once only.

Between hosts the arrays of an exchange may be packed: numbers of 16 bits, and dense parameters not with every
batch (`Form`, module `packing`).

Where worker and PS share the memory of a host, the arrays of exchanges lie in a slab (`runtime.slab`): the
worker names it (`OfferSlab`), the PS maps it (`SlabTaken`), and later messages say where in it arrays lie. An
`Exchange` without a round and its `Exchanged` are no messages then where a bell carries them (`slab.bell`).

Where PS gather gradients into global batches (GBA, module `gathering`), an `Exchange` says of how many rows
its gradients are the mean. In deterministic training it says of which unit they are (module `ordered_steps`).

In synchronous training (BSP, SSP) a worker also talks to the coordinator, the PS of index 0 (module
`round_barrier`): it sends `Join`, `Arrive` in each round and `Leave`, and receives `Proceed` when it may go
on. In BSP a worker sends `KeepGradients` to all PS before it arrives. The gradients of a finished round are
applied, once, when the first worker names that round in its next `Exchange`. Gradients of a worker that came
too late for its round are named by none, and dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.exchange_spec import Encryption, Precision
from dlrover_nb.core.structs.training.shards import Unit  # noqa: TC001 - decoded by its annotations

NO_SLAB = -1


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """A round that ended in BSP: its number, and (worker, rows of its batch) of all who took part."""

    number: int
    contributors: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        _check.at_least("contributors", len(self.contributors), 1)
        for _, n_row in self.contributors:
            _check.at_least("rows of a contributor", n_row, 1)


@dataclass(frozen=True, slots=True)
class BatchShare:
    """What one worker computes for one update: so many rows, as so many mini-batches one after the other."""

    n_row: int
    times: int = 1

    @property
    def most_at_once(self) -> int:
        """Rows of its largest mini-batch."""
        return -(-self.n_row // self.times)


@dataclass(frozen=True, slots=True)
class Go:
    """Coordinator to worker: continue with `round`.

    Parameters
    ----------
    done
        The round that ended last: to be applied before rows are read (BSP); None: there was none.
    sizes
        (round, batch size) pairs of this worker: in force from that round on.
    is_late
        Whether the round in which the worker arrived had ended before, so that its gradients are not used: it
        trains the same rows again.
    accumulate
        For each of `sizes`, as how many mini-batches it is computed; empty: as one each.
    """

    round: int
    done: FinishedRound | None
    sizes: tuple[tuple[int, int], ...]
    is_late: bool = False
    accumulate: tuple[int, ...] = ()

    def share(self, number: int) -> BatchShare | None:
        """Return what is in force in a round; None: nothing was set."""
        pairs = zip(self.sizes, self.accumulate or [1] * len(self.sizes), strict=True)
        shares = [BatchShare(n_row, times) for (first, n_row), times in pairs if first <= number]
        return shares[-1] if shares else None


@dataclass(frozen=True, slots=True)
class Form:
    """How the arrays of a request are packed, and those of its answer shall be.

    Parameters
    ----------
    rows, dense
        Types of their numbers, both ways.
    scale, dense_scale
        What the gradients of the request were multiplied by.
    wants_dense
        Whether the answer shall have dense parameters.
    """

    rows: Precision
    dense: Precision
    scale: float = 1.0
    dense_scale: float = 1.0
    wants_dense: bool = True


@dataclass(frozen=True, slots=True)
class UnitGradients:
    """Whose gradients an `Exchange` brings in deterministic training: those of a unit of `n_row` rows.

    A unit that `is_skipped`, as its gradients cannot be used, brings none and counts as there.
    """

    unit: Unit
    n_row: int
    is_skipped: bool = False

    def __post_init__(self) -> None:
        _check.at_least("n_row", self.n_row, 1)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Worker to PS: apply these gradients, then return the requested rows and the dense slice.

    `step` grows by one with each request of a connection (identity) and identifies a repeated request. `done`
    is the round that ended last (BSP): its gradients are applied first. The gradients of this request are
    applied with `rate` times the learning rate. `n_row` are the rows of their batch, where the PS gather
    them; 0: it does not, or there are none. `answer_at` is the place in the slab where rows and, after them,
    the dense slice go; `NO_SLAB`: into frames. `form` is None where nothing is packed.

    In deterministic training the gradients are those of a unit, which the PS keep until its step is complete
    (`part`; None: there are none), and what is read has exactly the first `n_step` steps.
    """

    ps_epoch: int
    step: int
    done: FinishedRound | None = None
    rate: float = 1.0
    answer_at: int = NO_SLAB
    form: Form | None = None
    n_row: int = 0
    n_step: int | None = None
    part: UnitGradients | None = None

    def __post_init__(self) -> None:
        _check.above_zero("rate", self.rate)
        _check.at_least("n_row", self.n_row, 0)


@dataclass(frozen=True, slots=True)
class KeepGradients:
    """Worker to PS: keep these gradients until a finished round names them; none of a skipped batch.

    `in_slab`: they lie in the slab of the connection.
    """

    ps_epoch: int
    step: int
    worker: str
    round: int
    is_skipped: bool = False
    in_slab: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """Worker to coordinator: the worker has batches and becomes a member."""

    ps_epoch: int
    step: int
    worker: str


@dataclass(frozen=True, slots=True)
class Arrive:
    """Worker to coordinator: all PS have the worker's gradients of a round, computed from `n_row` rows."""

    ps_epoch: int
    step: int
    worker: str
    round: int
    n_row: int

    def __post_init__(self) -> None:
        _check.at_least("n_row", self.n_row, 1)


@dataclass(frozen=True, slots=True)
class Leave:
    """Worker to coordinator: the worker is no longer a member; rounds do not wait for it."""

    ps_epoch: int
    step: int
    worker: str


@dataclass(frozen=True, slots=True)
class InitDense:
    """Worker to PS: initialize the dense slice with these values unless it has values already."""

    ps_epoch: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Worker to PS: send these bytes back at once, so that the time tells what the connection carries."""

    ps_epoch: int


@dataclass(frozen=True, slots=True)
class Probed:
    """PS to worker: the bytes of its `Probe`."""

    ps_epoch: int


@dataclass(frozen=True, slots=True)
class DescriptorName:
    """A descriptor of the worker's process, and the inode of what is behind it."""

    descriptor: int
    inode: int


@dataclass(frozen=True, slots=True)
class BellName:
    """The pipes of a worker's process: one that it asks by, and one for answers."""

    pid: int
    ask: DescriptorName
    answers: DescriptorName


@dataclass(frozen=True, slots=True)
class OfferSlab:
    """Worker to PS: map this shared memory, if it is of your host.

    Parameters
    ----------
    pid, memory
        The worker's process, and the memory in it.
    number
        The first slab of a connection is 1; arrays in messages name theirs.
    token
        Hexadecimal; it stands in the slab.
    n_byte
        Length.
    bell
        To ring for requests in it; None: there is none.
    """

    pid: int
    memory: DescriptorName
    number: int
    token: str
    n_byte: int
    bell: BellName | None = None


@dataclass(frozen=True, slots=True)
class SlabTaken:
    """PS to worker: slab `number` is mapped, or cannot be; and whether its bell is answered."""

    number: int
    is_taken: bool
    has_bell: bool = False


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Node to PS, over CURVE: open a sealed session (`sealed`) for what follows."""


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """PS to node, over CURVE: a session, the port that carries it, its password, and its key in base64.

    `encryption` says what the key is used for.
    """

    endpoint: str
    password: str
    session: str
    key: str
    encryption: Encryption = Encryption.AES_GCM

    def __repr__(self) -> str:
        return f"SessionOpened(endpoint={self.endpoint!r}, session={self.session!r}, key=...)"


@dataclass(frozen=True, slots=True)
class Exchanged:
    """PS to worker: the gradients of `step` are applied; the requested values are attached.

    `update_s` and `lookup_s` are the seconds that the PS spent on updates and lookups, `scale` and
    `dense_scale` what packed values were multiplied by.
    """

    ps_epoch: int
    step: int
    update_s: float = 0.0
    lookup_s: float = 0.0
    scale: float = 1.0
    dense_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class GradientsKept:
    """PS to worker: the gradients of `step` are kept."""

    ps_epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class Proceed:
    """Coordinator to a worker that joined or arrived with `step`: continue."""

    ps_epoch: int
    step: int
    go: Go


@dataclass(frozen=True, slots=True)
class NotMember:
    """Coordinator to worker: the worker is not a member, because it left or was declared dead."""

    ps_epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class DenseReady:
    """PS to worker: the dense slice has values."""

    ps_epoch: int


@dataclass(frozen=True, slots=True)
class StaleEpoch:
    """PS to worker: refused, nothing was applied, because the PS serves `ps_epoch` (-1: none yet)."""

    ps_epoch: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """PS to worker: refused, nothing was applied, because the master gave this worker up; it ends."""

    ps_epoch: int


@dataclass(frozen=True, slots=True)
class ExchangeRefused:
    """PS to worker: the request can never be served, because it is of another model; the sender fails."""

    why: str


@dataclass(frozen=True, slots=True)
class MoveChunk:
    """PS to PS: rows, and dense parameters from `dense_offset` on, for the next group.

    `sequence` counts the chunks of one `source` in one move, from 1. No chunk of that source follows the one
    that `is_last`.
    """

    move: int
    source: str
    sequence: int
    dense_offset: int
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class ChunkTaken:
    """PS to PS: all chunks up to `sequence` have been received."""

    move: int
    sequence: int


BarrierMessage = Join | Arrive | Leave
OfEpoch = Exchange | InitDense | KeepGradients | Join | Arrive | Leave | Probe  # refused in another one
ToPs = OfEpoch | OpenSession | OfferSlab
FromPs = (
    Exchanged
    | DenseReady
    | GradientsKept
    | Proceed
    | NotMember
    | Probed
    | SessionOpened
    | SlabTaken
    | StaleEpoch
    | Fenced
    | ExchangeRefused
)
BetweenPs = MoveChunk | ChunkTaken


@dataclass(frozen=True, slots=True)
class ExchangeCost:
    """Cost of one exchange: shares of the wait spent on the push and on peers, and the bytes."""

    push_share: float = 0.0
    peers_share: float = 0.0
    n_byte_sent: int = 0
    n_byte_received: int = 0


def exchange_cost(answer: Exchanged, took_s: float, *, sent: int, received: int) -> ExchangeCost:
    """Return how the `took_s` seconds of an exchange divide.

    Parameters
    ----------
    answer
        Answer of the PS that answered last; the waits for the others overlap with it.
    sent, received
        Bytes of all PS; the transfer time is divided in proportion to them.
    """
    way_s = max(0.0, took_s - answer.update_s - answer.lookup_s)
    push_s = answer.update_s + way_s * sent / max(sent + received, 1)
    return ExchangeCost(min(push_s / max(took_s, 1e-9), 1.0), 0.0, sent, received)
