"""Decide which proposed actions may be carried out now: safety rules as one table, each refusal a sentence.

Solutions propose, and need not know of each other. The rules are checked in the order of `RULES`; the first
that refuses says why. A round admits either node actions or one global action: a restart takes a worker out
of the iteration at which all others would take a new size, and the sum of sizes would be wrong.

A busy cluster refuses restarts alone, since only they need a new node; smaller batches need none and are the
help that is left. A slow PS first gives buckets away, in proportion to what it can serve: that needs no node
either, and is enough for a processor that is slow. One that is slow with its smaller part too, as behind a
slow link, is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.decisions.actions import (
    Action,
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    Proposed,
    SetSize,
)
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dlrover_nb.core.structs.training.stragglers import Straggler


@dataclass(frozen=True, slots=True)
class Limits:
    """How careful the arbiter is.

    Parameters
    ----------
    share
        Of the workers, how many may be restarted at once; at least one.
    cooldown_s
        Least time between two actions on a node: its long window, before which there is no new finding.
    """

    share: float = 0.25
    cooldown_s: float = 600.0

    def __post_init__(self) -> None:
        _check.fraction("share", self.share)
        _check.at_least("cooldown_s", self.cooldown_s, 0)


@dataclass(frozen=True, slots=True)
class Facts:
    """The job at the time of a decision.

    Parameters
    ----------
    at_s
        Now.
    iterations
        The workers that take part, and how many iterations each has reported; None: none yet.
    ps
        All parameter servers.
    relieved_ps
        Those that gave buckets away by load, and have not been replaced since.
    global_batch
        Samples of one iteration of all workers.
    findings
        The present stragglers.
    running
        Actions that were ordered and have not ended.
    last_at_s
        When the last action on each node was ordered.
    is_busy
        Whether a new node would wait long for its place in the cluster.
    """

    at_s: float
    iterations: Mapping[str, int | None]
    ps: tuple[str, ...]
    global_batch: int
    findings: tuple[Straggler, ...] = ()
    relieved_ps: frozenset[str] = frozenset()
    running: tuple[Action, ...] = ()
    last_at_s: Mapping[str, float] = field(default_factory=dict)
    is_busy: bool = False

    @property
    def slow(self) -> frozenset[str]:
        """Nodes that are slow now."""
        return frozenset(finding.node for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Order:
    """An admitted action."""

    action: Action
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused action with the rule and its reason."""

    action: Action
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of one decision."""

    orders: tuple[Order, ...] = ()
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class _Case:
    """One action to be judged, with those that the round has admitted already."""

    action: Action
    facts: Facts
    limits: Limits
    admitted: tuple[Action, ...]


def _one_at_a_time(case: _Case) -> str | None:
    if case.facts.running:
        return f"the job is still busy with: {case.facts.running[0].words}"
    return None


def _alone(case: _Case) -> str | None:
    for other in case.admitted:
        if case.action.is_global or other.is_global or case.action.node == other.node:
            return f"it waits for the next decision, after: {other.words}"
        if case.action.role is other.role is Role.PS:  # parameters move once at a time
            return f"it waits for the next decision, after: {other.words}"
    return None


def _known(case: _Case) -> str | None:
    if case.action.is_global:
        return None
    node, role = case.action.node, case.action.role
    if node not in (case.facts.iterations if role is Role.WORKER else case.facts.ps):
        return f"the job has no {role.value} {node}"
    return None


def _room(case: _Case) -> str | None:
    if isinstance(case.action, KillRestart) and case.facts.is_busy:
        return f"the cluster is busy: a new node for {case.action.node} would wait long"
    return None


def _some_are_well(case: _Case) -> str | None:
    role = Role.WORKER if case.action.is_global else case.action.role
    nodes = set(case.facts.iterations if role is Role.WORKER else case.facts.ps)
    if len(nodes) > 1 and nodes <= case.facts.slow:
        return f"all {len(nodes)} {_nodes(role)} are slow: the cause is something that they share"
    return None


def _still_slow(case: _Case) -> str | None:
    if isinstance(case.action, SetSize):
        return None  # also for nodes that are not slow, of whose cores others have more use
    if case.action.is_global or case.action.node in case.facts.slow:
        return None
    return f"{case.action.node} has recovered"


def _rested(case: _Case) -> str | None:
    if case.action.is_global:
        return None
    node = case.action.node
    last_at_s = case.facts.last_at_s.get(node)
    follows_move = isinstance(case.action, KillRestart | SetSize) and node in case.facts.relieved_ps
    rest_s = case.limits.cooldown_s / (2 if follows_move else 1)
    if last_at_s is None or case.facts.at_s - last_at_s >= rest_s:
        return None
    return (
        f"the last action on {node} was {case.facts.at_s - last_at_s:.0f} s ago; "
        f"the next may come after {rest_s:.0f} s"
    )


def _few_at_once(case: _Case) -> str | None:
    if not (isinstance(case.action, KillRestart) and case.action.role is Role.WORKER):
        return None
    n, most = len(case.facts.iterations), most_at_once(len(case.facts.iterations), case.limits)
    away = _restarting(case, Role.WORKER) | {case.action.node}
    if n - len(away) < 1:
        return f"{case.action.node} is the last worker that would be left"
    if len(away) > most:
        return f"at most {most} of {n} workers are restarted at once"
    return None


def _one_ps_left(case: _Case) -> str | None:
    if not isinstance(case.action, MoveBuckets):
        return None
    if len(case.facts.ps) == 1:
        return f"{case.action.node} is the only parameter server that could hold its parameters"
    return None


def _relieved_first(case: _Case) -> str | None:
    if not isinstance(case.action, KillRestart) or case.action.role is Role.WORKER:
        return None
    node = case.action.node
    if node in case.facts.relieved_ps or len(case.facts.ps) == 1:
        return None
    return f"{node} holds parameters: it gives some to the other parameter servers first"


def _for_all_workers(case: _Case) -> str | None:
    if not case.action.is_global:
        return None
    silent = sorted(node for node, iteration in case.facts.iterations.items() if iteration is None)
    if silent:
        return f"all workers must change at one step, and {silent[0]} has not reported any yet"
    match case.action:
        case AdjustBatches():
            return _for_these(case, case.action.sizes) or _whole_batch(case.action, case.facts.global_batch)
        case AdjustRates():
            return _for_these(case, case.action.factors)
        case BackupWorkers() if case.action.n >= len(case.facts.iterations):
            return f"{case.action.n} of {len(case.facts.iterations)} workers cannot be left out"
        case _:
            return None


def _for_these(case: _Case, pairs: tuple[tuple[str, object], ...]) -> str | None:
    other = set(case.facts.iterations) ^ {node for node, _ in pairs}
    return f"it was made for other workers than the present ones: {min(other)}" if other else None


def _whole_batch(action: AdjustBatches, global_batch: int) -> str | None:
    if action.total == global_batch:
        return None
    return f"its sizes sum to {action.total:,} and not to the global batch of {global_batch:,}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its name in logs, and what it has against an action, None for nothing."""

    name: str
    against: Callable[[_Case], str | None]


RULES: tuple[Rule, ...] = (
    Rule("one at a time", _one_at_a_time),
    Rule("known node", _known),
    Rule("some are well", _some_are_well),
    Rule("still slow", _still_slow),
    Rule("room in the cluster", _room),
    Rule("rested", _rested),
    Rule("one PS left", _one_ps_left),
    Rule("relieved first", _relieved_first),
    Rule("few at once", _few_at_once),
    Rule("for all workers", _for_all_workers),
    Rule("node or global", _alone),
)


def most_at_once(n_worker: int, limits: Limits) -> int:
    """Return how many workers may be restarted at once."""
    return max(int(limits.share * n_worker), 1)


def arbitrate(proposed: Iterable[Proposed], facts: Facts, limits: Limits | None = None) -> Round:
    """Return what is ordered and what is refused, each in the order of the proposals.

    A PS that would be replaced gives buckets to the others instead, the first time.
    """
    limits = limits or Limits()
    orders: list[Order] = []
    refusals: list[Refusal] = []
    waiting = list(proposed)
    while waiting:
        item = waiting.pop(0)
        case = _Case(item.action, facts, limits, tuple(order.action for order in orders))
        refusal = _refusal(case)
        if refusal is None:
            orders.append(Order(item.action, item.reason))
            continue
        refusals.append(refusal)
        if refusal.rule == "relieved first":
            assert not refusal.action.is_global, refusal
            waiting.insert(0, replace(item, action=MoveBuckets(refusal.action.node)))
    return Round(tuple(orders), tuple(refusals))


def recovered(orders: Iterable[Order], facts: Facts) -> tuple[Refusal, ...]:
    """Return the orders that have not begun and whose node has recovered since: they are withdrawn."""
    cases = [_Case(order.action, facts, Limits(), ()) for order in orders]
    return tuple(
        Refusal(case.action, "still slow", why) for case in cases if (why := _still_slow(case)) is not None
    )


def _refusal(case: _Case) -> Refusal | None:
    for rule in RULES:
        why = rule.against(case)
        if why is not None:
            return Refusal(case.action, rule.name, why)
    return None


def _restarting(case: _Case, role: Role) -> frozenset[str]:
    """Return the nodes that the round takes away."""
    return frozenset(a.node for a in case.admitted if not a.is_global and a.role is role)


def _nodes(role: Role) -> str:
    return "workers" if role is Role.WORKER else "parameter servers"
