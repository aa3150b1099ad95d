"""What programs of external jobs ask of their master (``POST /v1/service``), and its answers.

A request is a JSON pair of the name of its kind and its fields, an answer likewise: ``["shard", {...}]``.
Each kind is one record here, a line in `CALL_NAMES`, and a handler in
`core.master.external.changes.service_calls`.

A program repeats a request until it is answered, and the master may be replaced in between. So each request
is idempotent: it says what the program has (its leases, and how far it is in each), not what is to be
changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.training.batch_cost import BatchCost

_WORD = re.compile(r"[A-Za-z0-9._:-]{1,128}")

Held: TypeAlias = tuple[int, int]  # a shard and its grant


@dataclass(frozen=True, slots=True)
class Caller:
    """One process of an external job.

    Parameters
    ----------
    node
        Name of its node.
    slot
        Its place among the processes of the node, such as its local rank. A process that begins in the place
        of an earlier one says by it that the earlier one has ended.
    program
        Distinguishes it from the earlier ones of that place.
    """

    node: str
    slot: str
    program: str

    def __post_init__(self) -> None:
        for name in ("node", "slot", "program"):
            if not _WORD.fullmatch(value := getattr(self, name)):
                raise InvalidValueError(f"{name} must be 1-128 letters, digits or . _ : -, got {value!r}")

    @property
    def place(self) -> str:
        """Its node and place on it."""
        return f"{self.node}/{self.slot}"

    @property
    def owner(self) -> str:
        """Its name as an owner of leases."""
        return f"{self.node}/{self.slot}/{self.program}"


@dataclass(frozen=True, slots=True)
class RowsTrained:
    """The first `n_row` rows of a lease are done; with the last one the lease ends."""

    shard: int
    grant: int
    n_row: int

    def __post_init__(self) -> None:
        _check.at_least("n_row", self.n_row, 0)


@dataclass(frozen=True, slots=True)
class ShardWanted:
    """Ask for another shard.

    `holding` names all leases that the program knows: one that it does not know was granted by an answer that
    was lost, and is granted again. `n_row` are the rows that the program counts in its data; 0: not given.
    """

    caller: Caller
    done: tuple[RowsTrained, ...] = ()
    holding: tuple[Held, ...] = ()
    n_row: int = 0


@dataclass(frozen=True, slots=True)
class StateWanted:
    """Report rows that are done, and ask for the job's state; also the sign of life of a program.

    `n_row_busy` are the rows that it has computed since its start, `busy_s` the seconds that this took; 0:
    not given. `asks_size`: whether it follows the batch size of the answer. `batch_cost` is what it measured
    of its mini-batches; None: it did not.
    """

    caller: Caller
    done: tuple[RowsTrained, ...] = ()
    holding: tuple[Held, ...] = ()
    n_row_busy: int = 0
    busy_s: float = 0.0
    asks_size: bool = False
    batch_cost: BatchCost | None = None

    def __post_init__(self) -> None:
        _check.at_least("n_row_busy", self.n_row_busy, 0)
        _check.finite("busy_s", self.busy_s)


@dataclass(frozen=True, slots=True)
class ShardsGivenBack:
    """Give leases back, with the rows of them that are done."""

    caller: Caller
    leases: tuple[Held, ...]
    done: tuple[RowsTrained, ...] = ()


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """Ask for the account of rows, to be kept with the parameters that they trained."""

    caller: Caller
    done: tuple[RowsTrained, ...] = ()


@dataclass(frozen=True, slots=True)
class RowsRestored:
    """Parameters were loaded: go back to the account of rows that was kept with them.

    Parameters
    ----------
    rows
        What `RowsNow` held; empty: there are no parameters, so all rows are to be trained.
    number
        Counts these requests of the program: a repeated one is no other.
    """

    caller: Caller
    rows: str
    number: int


@dataclass(frozen=True, slots=True)
class Reached:
    """How far parameters are in the rows of one owner: its leases before `grant` are done."""

    owner: str
    grant: int
    n_row: int

    def __post_init__(self) -> None:
        _check.at_least("n_row", self.n_row, 0)


@dataclass(frozen=True, slots=True)
class WorldWanted:
    """Ask with which members to train, in an elastic job (`core.master.external.job.worlds`).

    Parameters
    ----------
    seen
        Number of the last world that the process was in; 0: none.
    step
        The step that it has applied; -1: it has no parameters.
    reached
        How far these are in the data.
    """

    caller: Caller
    seen: int
    step: int
    reached: tuple[Reached, ...] = ()


@dataclass(frozen=True, slots=True)
class StepReached:
    """Count the rows that the parameters of this process contain as done, trained here or elsewhere."""

    caller: Caller
    reached: tuple[Reached, ...]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Tell the quality of the model on rows that were held out: after a pass, or (0) when it is trained."""

    caller: Caller
    auc: float
    log_loss: float
    n_sample: int
    after: int = 0

    def __post_init__(self) -> None:
        _check.fraction("auc", self.auc)
        _check.finite("log_loss", self.log_loss)
        _check.at_least("n_sample", self.n_sample, 1)
        _check.at_least("after", self.after, 0)


@dataclass(frozen=True, slots=True)
class ShardGranted:
    """Rows [start, stop) in pass `epoch`, of which those from `offset` to `until` are to be trained.

    Both count rows in the shard's own order. `stale` are leases of the caller that do not hold any more:
    other programs train their remaining rows.
    """

    shard: int
    grant: int
    epoch: int
    start: int
    stop: int
    offset: int
    until: int
    seed: int
    stale: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardLater:
    """Nothing to grant now: others hold what is left, and may give it back."""

    wait_s: float
    stale: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardsOver:
    """Nothing will be granted any more, and why."""

    why: str
    stale: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class JobState:
    """What a program may want to know of its job.

    Parameters
    ----------
    should_stop
        Whether it should save its work and end.
    is_changing
        Whether another plan is under way: programs restart when it is.
    batch_size
        Rows of a step of this node, as set by a command; 0: not set.
    has_rows, is_over
        Whether there is a shard to grant, and whether there will be none any more.
    memory
        Prefix of the names of the job's shared memory.
    stale
        As of `ShardGranted`.
    n_accumulate
        Mini-batches of a step of this node.
    outdated_world
        Number of the world that another one is to follow; 0: the present one is right.
    evaluate_after
        The pass after which rank 0 is to score held-out rows now; 0: none.
    measures
        Whether what a mini-batch costs is to be measured, for the shares of steps.
    """

    should_stop: bool
    is_changing: bool
    batch_size: int
    has_rows: bool
    is_over: bool
    memory: str
    stale: tuple[Held, ...] = ()
    n_accumulate: int = 1
    outdated_world: int = 0
    evaluate_after: int = 0
    measures: bool = False


@dataclass(frozen=True, slots=True)
class RowsNow:
    """The account of rows at this moment: a text that only the master reads."""

    rows: str
    stale: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldMade:
    """The members of a world by rank.

    Parameters
    ----------
    number, rank
        Of the world, and of the caller in it.
    owners
        Name of each member as an owner of leases.
    steps
        The step that each has applied; -1: none.
    source
        Rank of the member whose state all others get.
    store
        ``HOST:PORT`` of the store where they meet.
    reached
        How far the state of the furthest is in the data.
    """

    number: int
    rank: int
    owners: tuple[str, ...]
    steps: tuple[int, ...]
    source: int
    store: str
    reached: tuple[Reached, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldLater:
    """Not all of them are there: ask again."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class WorldOver:
    """The caller is not needed any more, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class CallNoted:
    """It is done."""

    stale: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class CallRefused:
    """It cannot be done, and why; to repeat it is of no use."""

    why: str


MODEL_CHECKPOINT = 1  # number of the checkpoint that a trained model of ours is


@dataclass(frozen=True, slots=True)
class ModelKept:
    """Tell where the trained parameters of a model of ours are, with their optimizer's state.

    They are the only part of a checkpoint. `n_row` are the rows of its embedding tables, `n_byte` its size.
    """

    caller: Caller
    url: str
    sha256: str
    n_row: int
    n_byte: int


ServiceCall: TypeAlias = (
    ShardWanted
    | StateWanted
    | ShardsGivenBack
    | RowsWanted
    | RowsRestored
    | WorldWanted
    | StepReached
    | Evaluated
    | ModelKept
)
ServiceAnswer: TypeAlias = (
    ShardGranted
    | ShardLater
    | ShardsOver
    | JobState
    | RowsNow
    | WorldMade
    | WorldLater
    | WorldOver
    | CallNoted
    | CallRefused
)

CALL_NAMES: dict[type, str] = {
    ShardWanted: "shard",
    StateWanted: "state",
    ShardsGivenBack: "give back",
    RowsWanted: "rows",
    RowsRestored: "restore",
    WorldWanted: "world",
    StepReached: "reached",
    Evaluated: "evaluated",
    ModelKept: "model kept",
}
ANSWER_NAMES: dict[type, str] = {
    ShardGranted: "granted",
    ShardLater: "later",
    ShardsOver: "over",
    JobState: "state",
    RowsNow: "rows",
    WorldMade: "world",
    WorldLater: "world later",
    WorldOver: "world over",
    CallNoted: "noted",
    CallRefused: "refused",
}
