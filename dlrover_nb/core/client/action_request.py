"""An action against stragglers from what people write: names of nodes, sizes, factors.

The Python API, the verb, the HTTP API, agents and the dashboard's forms take the same seven words, of which
exactly one is given; cores and memory of one node may be given together, for they are one size. A node is
looked up among those of the job, so that a wrong name is told with the right ones before anything is asked of
the job's master; whether the job can do it now, its master decides.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.errors import InvalidValueError, shown
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    SetSize,
)
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.decisions.actions import Action
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView

MOST_BATCH, MOST_FACTOR = 10_000_000, 1000.0  # of a worker
_SIZE = {"cores", "memory"}
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """What was asked for; exactly one is given, or both parts of one node's size.

    Parameters
    ----------
    restart
        Name of the node to start anew beside the old one.
    move
        Name of the PS that shall hold fewer parameters.
    batches
        Samples of one mini-batch by the worker's name, of each worker: together they are the global batch.
    backup
        Without how many slowest workers an iteration goes on; 0: it waits for all.
    rates
        Factor on the learning rate by the worker's name.
    cores, memory
        What one node may use, by its name: cores and MiB; one that is not given stays.
    """

    restart: str | None = None
    move: str | None = None
    batches: Mapping[str, int] | None = None
    backup: int | None = None
    rates: Mapping[str, float] | None = None
    cores: Mapping[str, float] | None = None
    memory: Mapping[str, int] | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The names of what was given."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) is not None)

    def action(self, snapshot: JobSnapshot) -> Action:
        """Return the action for a job.

        Raises
        ------
        InvalidValueError
            When not exactly one is given, a node is not there or has another role, a worker has no size, or
            a number is larger than any that is meant.
        """
        if len(self.given) != 1 and set(self.given) != _SIZE:
            names = ", ".join(each.name for each in fields(self))
            got = " and ".join(self.given) or "none"
            raise InvalidValueError(f"an action must be one of {names}, got {got}; give exactly one")
        if self.restart is not None:
            node = _node(snapshot, self.restart, "restart")
            return KillRestart(node.id, node.role)
        if self.move is not None:
            return MoveBuckets(_node(snapshot, self.move, "move", Role.PS).id)
        if self.batches is not None:
            sizes = _of_workers(snapshot, self.batches, "batches", MOST_BATCH)
            _check_all_named(snapshot, sizes)
            return AdjustBatches(sizes)
        if self.rates is not None:
            return AdjustRates(_of_workers(snapshot, self.rates, "rates", MOST_FACTOR))
        if self.backup is not None:
            return BackupWorkers(self.backup)
        return self._size(snapshot)

    def _size(self, snapshot: JobSnapshot) -> SetSize:
        cores = None if self.cores is None else _of_one(snapshot, self.cores, "cores")
        memory = None if self.memory is None else _of_one(snapshot, self.memory, "memory")
        node, *others = (each[0] for each in (cores, memory) if each is not None)
        if any(other.id != node.id for other in others):
            raise InvalidValueError(
                f"cores and memory must name the same node of job {snapshot.spec.name}, got {node.id} and "
                f"{others[0].id}; one node at a time gets a size of its own"
            )
        cpu = node.cpu if cores is None else cores[1]
        return SetSize(node.id, node.role, cpu, node.memory_mib if memory is None else memory[1])


def _of_workers(
    snapshot: JobSnapshot, values: Mapping[str, N], what: str, most: float
) -> tuple[tuple[str, N], ...]:
    for name, value in values.items():
        if value > most:
            raise InvalidValueError(
                f"{what} must give a worker at most {most:,.0f}, got {value:,} of {shown(name)}; give it less"
            )
    return tuple(
        (_node(snapshot, name, what, Role.WORKER).id, value) for name, value in sorted(values.items())
    )


def _of_one(snapshot: JobSnapshot, values: Mapping[str, N], what: str) -> tuple[NodeView, N]:
    if len(values) != 1:
        got = ", ".join(sorted(values)) or "none"
        raise InvalidValueError(
            f"{what} must name one node of job {snapshot.spec.name}, got {got}; one node at a time gets a "
            "size of its own, and scale gives all nodes of a role another one"
        )
    [(name, value)] = values.items()
    return _node(snapshot, name, what), value


def _check_all_named(snapshot: JobSnapshot, sizes: tuple[tuple[str, int], ...]) -> None:
    """Refuse sizes of some workers alone: all of them change at one iteration."""
    given = {name for name, _ in sizes}
    trains = [n.id for n in snapshot.nodes if n.role is Role.WORKER and n.phase is NodePhase.READY]
    missing = [name for name in trains if name not in given]
    if sizes and missing:
        raise InvalidValueError(
            f"batches must name each worker of job {snapshot.spec.name}, got {', '.join(sorted(given))}; "
            f"give {', '.join(missing)} too"
        )


def _node(snapshot: JobSnapshot, name: str, what: str, role: Role | None = None) -> NodeView:
    """Return a node by its name, or by its name within the job."""
    there = [
        node for node in snapshot.nodes if node.phase is not NodePhase.GONE and role in {None, node.role}
    ]
    names = {name, f"{snapshot.spec.name}-{name}"}
    node = next((node for node in there if node.id in names), None)
    if node is not None:
        return node
    kind = {None: "a node", Role.PS: "a parameter server", Role.WORKER: "workers"}[role]
    ids = ", ".join(node.id for node in there) or "none now"
    raise InvalidValueError(
        f"{what} must name {kind} of job {snapshot.spec.name}, got {shown(name)}; there are: {ids}"
    )
