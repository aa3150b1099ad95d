"""What can be done about stragglers (AntDT, table II), as records that say themselves in a sentence.

A node action concerns one node and needs no agreement. A global action changes what all workers do, so all of
them take it at one and the same iteration; otherwise the batches of an iteration would not sum to the global
batch. AntDT's NONE is no action here but an empty list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import Role, RolePlan

MOST_NAMED = 4  # nodes that a sentence names


@dataclass(frozen=True, slots=True)
class AdjustBatches:
    """ADJUST_BS: give workers other batch sizes, whose sum stays the global batch.

    Parameters
    ----------
    sizes
        Samples per mini-batch of each worker.
    accumulate
        How many mini-batches of each worker make one update, where it is not 1.
    """

    sizes: tuple[tuple[str, int], ...]
    accumulate: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        _named_once("sizes", self.sizes)
        _named_once("accumulate", self.accumulate, empty=True)
        for what, pairs in (("batch size", self.sizes), ("accumulated batches", self.accumulate)):
            for node, value in pairs:
                _check.at_least(f"{what} of {node}", value, 1)
        _known("accumulate", self.accumulate, self.sizes)

    @property
    def is_global(self) -> Literal[True]:
        """All workers take it at one iteration."""
        return True

    @property
    def samples(self) -> tuple[tuple[str, int], ...]:
        """Samples of each worker in one iteration."""
        times = dict(self.accumulate)
        return tuple((node, size * times.get(node, 1)) for node, size in self.sizes)

    @property
    def total(self) -> int:
        """The global batch."""
        return sum(n_sample for _, n_sample in self.samples)

    @property
    def words(self) -> str:
        """The action in a sentence."""
        times = dict(self.accumulate)
        sizes = (
            f"{node} {times[node]} times {b}" if node in times else f"{node} {b}" for node, b in self.sizes
        )
        return f"adjust batch sizes to {_listed(sizes)}"


@dataclass(frozen=True, slots=True)
class BackupWorkers:
    """BACKUP_WORKERS: in each iteration, go on without the gradients of the `n` slowest workers."""

    n: int

    def __post_init__(self) -> None:
        _check.at_least("n", self.n, 0)

    @property
    def is_global(self) -> Literal[True]:
        """All workers take it at one iteration."""
        return True

    @property
    def words(self) -> str:
        """The action in a sentence."""
        if self.n == 0:
            return "wait for all workers in each step"
        return f"go on without the {self.n} slowest worker{'s' if self.n > 1 else ''} of each step"


@dataclass(frozen=True, slots=True)
class KillRestart:
    """KILL_RESTART: end a node and start it anew, on another machine where there is one."""

    node: str
    role: Role

    @property
    def is_global(self) -> Literal[False]:
        """It concerns one node."""
        return False

    @property
    def words(self) -> str:
        """The action in a sentence."""
        return f"restart {self.node}"


@dataclass(frozen=True, slots=True)
class MoveBuckets:
    """Move the parameters of a PS to the others while the job goes on, so that it can be restarted empty."""

    ps: str

    @property
    def node(self) -> str:
        """The PS."""
        return self.ps

    @property
    def role(self) -> Role:
        """A PS always."""
        return Role.PS

    @property
    def is_global(self) -> Literal[False]:
        """It concerns one node: workers learn the new places of parameters as after any migration."""
        return False

    @property
    def words(self) -> str:
        """The action in a sentence."""
        return f"move the parameters of {self.ps} to the other parameter servers"


@dataclass(frozen=True, slots=True)
class SetSize:
    """Let one node use other cores and memory than the plan gives its role.

    This is the exception from a plan for a node that needs more than the others. It gets them in place where
    its cluster can do that, else a node of that size takes its place. It lasts as long as that node and its
    role's size in the plan: the next one in its place, after a loss, has the size of the plan.

    Parameters
    ----------
    node, role
        The node.
    cpu
        Cores that it may use.
    memory_mib
        MiB that it may use.
    """

    node: str
    role: Role
    cpu: float
    memory_mib: int

    def __post_init__(self) -> None:
        plan = RolePlan(1, self.cpu, self.memory_mib)  # the limits of a node's size are those of a plan
        object.__setattr__(self, "cpu", plan.cpu)

    @property
    def is_global(self) -> Literal[False]:
        """It concerns one node."""
        return False

    @property
    def words(self) -> str:
        """The action in a sentence."""
        return f"let {self.node} use {self.cpu:g} cores and {self.memory_mib} MiB"


@dataclass(frozen=True, slots=True)
class OwnAction:
    """What an installed package does about one node, beside the actions that we have.

    Parameters
    ----------
    name
        Of the function that does it, an entry point of the group ``dlrover_nb.actions``.
    node, role
        The node.
    cost
        What it costs, as a sentence for people; empty: its package does not say.
    """

    name: str
    node: str
    role: Role
    cost: str = ""

    @property
    def is_global(self) -> Literal[False]:
        """It concerns one node."""
        return False

    @property
    def words(self) -> str:
        """The action in a sentence."""
        return f"{self.name} for {self.node}"


@dataclass(frozen=True, slots=True)
class AdjustRates:
    """ADJUST_LR: multiply each worker's learning rate by a factor."""

    factors: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        _named_once("factors", self.factors)
        for node, factor in self.factors:
            _check.above_zero(f"factor of {node}", factor)

    @property
    def is_global(self) -> Literal[True]:
        """All workers take it at one iteration."""
        return True

    @property
    def words(self) -> str:
        """The action in a sentence."""
        changed = [f"{node} {factor:.2f}" for node, factor in self.factors if factor != 1]
        return f"multiply learning rates: {_listed(changed)}" if changed else "set learning rates back"


NodeAction = KillRestart | MoveBuckets | SetSize | OwnAction
GlobalAction = AdjustBatches | BackupWorkers | AdjustRates
Action = NodeAction | GlobalAction


def named(action: Action) -> frozenset[str]:
    """Return the nodes that an action names."""
    match action:
        case AdjustBatches():
            return frozenset(node for node, _ in action.sizes)
        case AdjustRates():
            return frozenset(node for node, _ in action.factors)
        case BackupWorkers():
            return frozenset()
        case KillRestart() | MoveBuckets() | SetSize() | OwnAction():
            return frozenset({action.node})


@dataclass(frozen=True, slots=True)
class ActionChoice:
    """One action as a record of one type, for decisions, journal and wire: one of its fields is set."""

    adjust: AdjustBatches | None = None
    backup: BackupWorkers | None = None
    rates: AdjustRates | None = None
    restart: KillRestart | None = None
    move: MoveBuckets | None = None
    size: SetSize | None = None
    own: OwnAction | None = None

    def __post_init__(self) -> None:
        n_set = sum(getattr(self, each.name) is not None for each in fields(self))
        if n_set != 1:
            names = ", ".join(each.name for each in fields(self))
            raise InvalidValueError(f"an action must be one of {names}, got {n_set} of them; give one")

    @classmethod
    def of(cls, action: Action) -> ActionChoice:  # noqa: PLR0911 - a field for each kind
        """Return the record of an action."""
        match action:
            case AdjustBatches():
                return cls(adjust=action)
            case BackupWorkers():
                return cls(backup=action)
            case AdjustRates():
                return cls(rates=action)
            case KillRestart():
                return cls(restart=action)
            case MoveBuckets():
                return cls(move=action)
            case SetSize():
                return cls(size=action)
            case OwnAction():
                return cls(own=action)

    @property
    def action(self) -> Action:
        """The action."""
        node = self.restart or self.move or self.size or self.own
        action: Action | None = self.adjust or self.backup or self.rates or node
        assert action is not None, self
        return action

    @property
    def words(self) -> str:
        """The action in a sentence."""
        return self.action.words


@dataclass(frozen=True, slots=True)
class MitigationChoice:
    """An action that was decided, for the job master; `decision` is the id of the decision."""

    decision: str
    action: ActionChoice
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Proposed:
    """An action that a solution asks for.

    Parameters
    ----------
    action
        What to do.
    reason
        As a sentence for people.
    gain
        Expected share by which the job trains faster; None: unknown.
    """

    action: Action
    reason: str
    gain: float | None = None


def _named_once(what: str, pairs: tuple[tuple[str, object], ...], *, empty: bool = False) -> None:
    nodes = [node for node, _ in pairs]
    if not (nodes or empty):
        raise InvalidValueError(f"{what} must name at least one worker, got none; leave the action out")
    if len(set(nodes)) < len(nodes):
        twice = next(node for node in nodes if nodes.count(node) > 1)
        raise InvalidValueError(f"{what} must name each worker once, got {twice} twice; remove one of them")


def _known(what: str, pairs: tuple[tuple[str, int], ...], among: tuple[tuple[str, int], ...]) -> None:
    unknown = {node for node, _ in pairs} - {node for node, _ in among}
    if unknown:
        raise InvalidValueError(
            f"{what} must name workers that have a size, got {min(unknown)}; give its size"
        )


def _listed(texts: Iterable[str]) -> str:
    return and_list(texts, most=MOST_NAMED)
