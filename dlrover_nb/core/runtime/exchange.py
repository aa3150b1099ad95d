"""The data plane between worker and PS: one combined push and pull per PS and iteration.

A worker ends step t with gradients for the rows that it used, and step t+1 needs rows of its own. Both
travel in one message, so that an iteration costs one round trip, and the PS applies before it reads: a
lone worker sees exactly what one process would compute. Arrays travel beside the records:

=============  ===================================================================================
`Exchange`     push_rows int64 [n], push_grads float32 [n, width], dense gradient float32 [slice or 0],
               pull_rows int64 [m]
`Exchanged`    rows float32 [m, width], dense float32 [slice]
`InitDense`    dense float32 [slice]
`MoveChunk`    ids int64 [n], table float32 [n, width + state], dense float32 [1 + state, m]
`Hold`         push_rows, push_grads, dense gradient, as of `Exchange`
=============  ===================================================================================

Rows of one push are distinct. Nothing in an array counts as applied before its `Exchanged` is here; a
request may be sent again, as the PS applies a step of one connection once only.

Workers that keep in step (BSP, SSP) also talk to the coordinator, which is the PS of index 0 (`pacing`):
they `Join`, `Arrive` in each round and `Leave`, and hear `Proceed` when they may go on. In BSP a worker has
all PS `Hold` its gradients before it arrives; what belongs to a round that ended is applied when the first
worker names that round in its next `Exchange`, and once only.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs import _check


@dataclass(frozen=True, slots=True)
class Round:
    """A round that ended in BSP: its number, and (worker, rows of its batch) of all who took part."""

    number: int
    contributors: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        _check.at_least("contributors", len(self.contributors), 1)
        for _, n_row in self.contributors:
            _check.at_least("rows of a contributor", n_row, 1)


@dataclass(frozen=True, slots=True)
class Go:
    """Coordinator to worker: go on with `round`.

    Parameters
    ----------
    done
        The round that ended last: to be applied before rows are read (BSP); None: there was none.
    sizes
        (round, batch size) pairs of this worker: in force from that round on.
    """

    round: int
    done: Round | None
    sizes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Worker to PS: apply these gradients, then send me those rows and your dense slice.

    `step` grows by one with each request of a connection (identity) and is how a repetition is known. `done`
    is the round that ended last (BSP): its gradients are applied first.
    """

    ps_epoch: int
    step: int
    done: Round | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Worker to PS: keep these gradients of mine until you hear that they belong to a round."""

    ps_epoch: int
    step: int
    worker: str
    round: int


@dataclass(frozen=True, slots=True)
class Join:
    """Worker to coordinator: I have batches, count me in."""

    ps_epoch: int
    step: int
    worker: str


@dataclass(frozen=True, slots=True)
class Arrive:
    """Worker to coordinator: my gradients of a round, of `n_row` rows, are at all PS."""

    ps_epoch: int
    step: int
    worker: str
    round: int
    n_row: int

    def __post_init__(self) -> None:
        _check.at_least("n_row", self.n_row, 1)


@dataclass(frozen=True, slots=True)
class Leave:
    """Worker to coordinator: do not wait for me."""

    ps_epoch: int
    step: int
    worker: str


@dataclass(frozen=True, slots=True)
class InitDense:
    """Worker to PS: start the dense slice from these values unless it has some; the first one wins."""

    ps_epoch: int


@dataclass(frozen=True, slots=True)
class Exchanged:
    """PS to worker: the gradients of `step` are applied; here is what was asked for.

    `update_s` and `lookup_s` say how long the PS worked on the one and the other.
    """

    ps_epoch: int
    step: int
    update_s: float = 0.0
    lookup_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Held:
    """PS to worker: the gradients of `step` are kept."""

    ps_epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class Proceed:
    """Coordinator to worker, who joined or arrived with `step`: go on."""

    ps_epoch: int
    step: int
    go: Go


@dataclass(frozen=True, slots=True)
class Gone:
    """Coordinator to worker: it is no member now, be it that it left, or that it was counted as dead."""

    ps_epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class DenseReady:
    """PS to worker: the dense slice has values."""

    ps_epoch: int


@dataclass(frozen=True, slots=True)
class StaleEpoch:
    """PS to worker: refused and nothing applied, because the PS serves `ps_epoch` (-1: none yet)."""

    ps_epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """PS to worker: this can never be served, as it is of another model; the sender is at fault and fails."""

    why: str


@dataclass(frozen=True, slots=True)
class MoveChunk:
    """PS to PS: take these rows, and these dense parameters from `dense_offset` on, for the next group.

    `sequence` grows by one from 1 with each chunk of one `source` in one move; after the chunk that
    `is_last` nothing more comes of it.
    """

    move: int
    source: str
    sequence: int
    dense_offset: int
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class ChunkTaken:
    """PS to PS: chunks up to `sequence` are here."""

    move: int
    sequence: int


Pacing = Join | Arrive | Leave
ToPs = Exchange | InitDense | Hold | Join | Arrive | Leave
FromPs = Exchanged | DenseReady | Held | Proceed | Gone | StaleEpoch | Refused
BetweenPs = MoveChunk | ChunkTaken


@dataclass(frozen=True, slots=True)
class ExchangeCost:
    """What an exchange cost its worker: which share of the wait push and peers took, and its bytes."""

    push_share: float = 0.0
    peers_share: float = 0.0
    n_byte_sent: int = 0
    n_byte_received: int = 0


def exchange_cost(answer: Exchanged, took_s: float, *, sent: int, received: int) -> ExchangeCost:
    """Return what an exchange of `took_s` seconds was spent on.

    Parameters
    ----------
    answer
        Of the PS that answered last: the others were waited for beside it.
    sent, received
        Bytes of all PS, by which the way there and back is shared out.
    """
    way_s = max(0.0, took_s - answer.update_s - answer.lookup_s)
    push_s = answer.update_s + way_s * sent / max(sent + received, 1)
    return ExchangeCost(min(push_s / max(took_s, 1e-9), 1.0), 0.0, sent, received)
