"""An action against stragglers from what people write: names of nodes, sizes, factors.

Every face takes the same eight words (`Mitigate`), of which exactly one is given. Cores and memory of one
node may be given together, for they are one size; so may batch sizes and how many of them make an update. A
node is looked up among those of the job, so that a wrong name is answered with the right ones before anything
is asked of the job's master; whether the job can do it now, its master decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.commands import fields as f
from dlrover_nb.core.commands.requests import Decides
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions.actions import (
    ActionChoice,
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    SetSize,
)
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.decisions.actions import Action as StragglerAction
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView

WORDS = ("restart", "move", "batches", "accumulate", "backup", "rates", "cores", "memory")
_SIZE, _BATCHES = {"cores", "memory"}, {"batches", "accumulate"}
N = TypeVar("N", int, float)


class Mitigate(Decides, frozen=True, tag="mitigate"):
    """Order an action against stragglers: one of the first seven fields, or two that belong together.

    `restart` starts another node beside the one named, `move` gives a PS fewer parameters, `batches` are
    samples per mini-batch by worker, `backup` is without how many workers a round goes on, `rates` are
    factors on learning rates by worker, `cores` and `memory` (MiB) are what one node may use, whatever the
    plan says of its role. `accumulate` comes with `batches`: how many of them a worker computes for one
    update.
    """

    action = Action.MITIGATE
    restart: f.Restarted | None = None
    move: f.Relieved | None = None
    batches: f.Batches | None = None
    backup: f.Backup | None = None
    rates: f.Rates | None = None
    cores: f.OneCores | None = None
    memory: f.OneMemory | None = None
    accumulate: f.Accumulated | None = None

    def as_decision(self, now: JobSnapshot | None) -> Decision:
        """Return the decision, with the nodes of the job."""
        chosen = None if now is None else ActionChoice.of(self.chosen(now))
        return Decision(Verdict.MITIGATE, "", 0.0, action=chosen)

    def chosen(self, snapshot: JobSnapshot) -> StragglerAction:
        """Return the action that is named, for a job.

        Raises
        ------
        InvalidValueError
            When not exactly one is given, a node is not there or has another role, a worker has no size, or a
            number is larger than any that is meant.
        """
        given = [word for word in WORDS if getattr(self, word) is not None]
        if self.batches is None and self.accumulate is not None:
            raise InvalidValueError(
                "accumulate must come with batches, got it alone; give the mini-batch of each worker too"
            )
        if len(given) != 1 and set(given) not in (_SIZE, _BATCHES):
            got = " and ".join(given) or "none"
            raise InvalidValueError(
                f"an action must be one of {', '.join(WORDS)}, got {got}; give exactly one"
            )
        if self.restart is not None:
            node = _node(snapshot, self.restart, "restart")
            return KillRestart(node.id, node.role)
        if self.move is not None:
            return MoveBuckets(_node(snapshot, self.move, "move", Role.PS).id)
        if self.batches is not None:
            sizes = _of_workers(snapshot, self.batches, "batches", f.MOST_BATCH)
            _check_all_named(snapshot, sizes)
            times = _of_workers(snapshot, self.accumulate or {}, "accumulate", f.MOST_TIMES)
            return AdjustBatches(sizes, tuple((node, n) for node, n in times if n != 1))
        if self.rates is not None:
            return AdjustRates(_of_workers(snapshot, self.rates, "rates", f.MOST_FACTOR))
        if self.backup is not None:
            return BackupWorkers(self.backup)
        return _size(self, snapshot)


def _size(request: Mitigate, snapshot: JobSnapshot) -> SetSize:
    cores = None if request.cores is None else _of_one(snapshot, request.cores, "cores")
    memory = None if request.memory is None else _of_one(snapshot, request.memory, "memory")
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
    """Refuse sizes of some workers alone: all of them change at one step."""
    given = {name for name, _ in sizes}
    trains = [n.id for n in snapshot.nodes if n.role is Role.WORKER and n.phase is NodePhase.READY]
    missing = [name for name in trains if name not in given]
    if sizes and missing:
        raise InvalidValueError(
            f"batches must name each worker of job {snapshot.spec.name}, got {', '.join(sorted(given))}; "
            f"give {and_list(missing)} too"
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
