"""Small records of the job master's state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import MOST_NAMED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.master.own.state.roster import Node


@dataclass(frozen=True, slots=True)
class Fence:
    """A worker that was given up and may be alive: it holds its shards until all PS refuse it.

    Parameters
    ----------
    worker
        Its name, which is never used again.
    ps_epoch
        The group whose PS it knows: a later one refuses it by the epoch.
    confirmed
        PS that refuse it.
    """

    worker: str
    ps_epoch: int
    confirmed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RateRamp:
    """A change of the learning rate from one factor of the job's to another, over rows that are trained.

    Parameters
    ----------
    start, end
        The factors.
    since_row, n_row
        Rows that were done when it began, and over how many it goes; 0: at once.
    """

    start: float = 1.0
    end: float = 1.0
    since_row: int = 0
    n_row: int = 0


JOBS_OWN = RateRamp()  # the job's own rate, from the start


@dataclass(slots=True)
class WithoutScore:
    """Rows whose score is not finite: how many, and the numbers of the first `MOST_NAMED`."""

    n_row: int = 0
    first: tuple[int, ...] = ()

    def add(self, numbers: Sequence[int]) -> None:
        """Add rows."""
        self.n_row += len(numbers)
        self.first = tuple(sorted((*self.first, *numbers))[:MOST_NAMED])

    def __str__(self) -> str:
        n_more = self.n_row - len(self.first)
        more = f" and {n_more} more" * (n_more > 0)
        return f"row{'s' * (self.n_row > 1)} {', '.join(map(str, self.first))}{more}"


@dataclass(frozen=True, slots=True)
class OpenMitigation:
    """An action against a straggler that was begun and is not in effect yet.

    Parameters
    ----------
    decision
        Id of the decision that ordered it.
    node, role
        The node that is replaced or resized; or, with a `ps_epoch`, the PS whose buckets move.
    since_s
        When it began.
    ps_epoch
        The group in which the buckets are with their next owners; 0: the node is replaced.
    failed
        Why it came to nothing; empty: it has not, as far as is known.
    size
        Cores and MiB that the node gets, or the one that takes its place; None: those of the plan.
    in_place
        Whether it is the node itself.
    """

    decision: str
    node: str
    role: Role
    since_s: float
    ps_epoch: int = 0
    failed: str = ""
    size: tuple[float, int] | None = None
    in_place: bool = False

    @property
    def replaces(self) -> bool:
        """Whether another node takes the place of this one."""
        return not (self.ps_epoch or self.in_place)


def after_loss(mitigations: tuple[OpenMitigation, ...], node: Node, why: str) -> tuple[OpenMitigation, ...]:
    """Return actions after the loss of a node; one fails with its PS, or an idle successor."""
    has_worked = node.has_worked or node.loaded_epoch > 0
    return tuple(
        replace(each, failed=f"{node.id} was lost: {why}")
        if each.replaces
        and each.role is node.role
        and (
            (each.node == node.id and each.role is Role.PS)
            or (each.node != node.id and not has_worked and node.since_s >= each.since_s)
        )
        else each
        for each in mitigations
    )


def failed(
    mitigations: tuple[OpenMitigation, ...], why: str, *, of_moves: bool
) -> tuple[OpenMitigation, ...]:
    """Return actions of which moves of buckets, or replacements, have failed."""
    return tuple(
        replace(each, failed=why) if (bool(each.ps_epoch) if of_moves else each.replaces) else each
        for each in mitigations
    )


def take_size(node: Node, mitigations: Iterable[OpenMitigation], nodes: Iterable[Node]) -> None:
    """Give a new node the size of the one whose place it takes, where that is an exception from the plan."""
    for each in mitigations:
        is_taken = any(
            n is not node and n.role is each.role and n.size == each.size and n.since_s >= each.since_s
            for n in nodes
        )
        if each.replaces and each.size is not None and each.role is node.role and not is_taken:
            node.cpu, node.memory_mib = node.size = each.size
            return


def size_failed(mitigations: tuple[OpenMitigation, ...], node: str, why: str) -> tuple[OpenMitigation, ...]:
    """Return actions of which the one that gives a node another size has failed."""
    return tuple(
        replace(each, failed=why) if each.in_place and each.node == node else each for each in mitigations
    )
