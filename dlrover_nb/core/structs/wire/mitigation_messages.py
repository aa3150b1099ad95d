"""Messages between nodes and the job master by which actions against stragglers take effect."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.training.shards import Lease

# node -> master


@dataclass(frozen=True, slots=True)
class ShardReturned:
    """A worker gives back a shard of which `n_row_done` rows are done: its gradients come too late (BSP)."""

    node: str
    lease: Lease
    n_row_done: int


# master -> node


@dataclass(frozen=True, slots=True)
class Backups:
    """To the PS of index 0 in BSP: a round may end without the last `n` of its members."""

    n: int

    def __post_init__(self) -> None:
        _check.at_least("n", self.n, 0)


@dataclass(frozen=True, slots=True)
class SetRate:
    """Gradients are applied with `factor` times the learning rate from now on.

    To a worker, not in BSP: its own gradients. To a PS: all of them, as workers are more or fewer.
    """

    factor: float

    def __post_init__(self) -> None:
        _check.above_zero("factor", self.factor)
