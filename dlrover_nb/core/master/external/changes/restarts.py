"""What a change of plan starts, ends and restarts of an external job, said before it is accepted.

It follows from the framework alone, by the variables that programs are given: one whose variables change
restarts, others go on. So this asks the function that makes them (`rendezvous.environment`), for the members
of now and for those of then, and cannot depart from what the master does.

==================  ============================================================================
TensorFlow          all that train restart: each knows the addresses of all
… dynamic_workers   another number of workers restarts none; other PS, or another chief, restart all
torch               the workers restart, their store goes on
ddp                 none restarts
==================  ============================================================================

An evaluator goes on. Another role beside restarts if an address that it knows changes.

Nodes that get other cores or memory in place (`shapes`) keep their addresses, so they restart nothing.
Elsewhere they end, and others of the new size start: with ddp one at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.master.external.job.node_set import plan_of
from dlrover_nb.core.master.external.launch.rendezvous import Member, environment
from dlrover_nb.core.structs.job.external import EVALUATOR, ExternalSpec, Framework
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
    from dlrover_nb.core.structs.views.snapshot import NodeView

MOST_NAMES = 8  # of a sentence
OR_ELSE = " (or replaces one that the cluster refuses to resize)"
_NEW = 10**9  # numbers of nodes that are not there yet


@dataclass(frozen=True, slots=True)
class Restarts:
    """The nodes that a change touches, and those that it does not.

    Parameters
    ----------
    started
        How many nodes of each role begin, where any does.
    stopped, restarted, undisturbed
        Nodes that end, whose programs restart, and that go on undisturbed.
    resized
        Nodes of the last two kinds that get other cores or memory in place.
    """

    started: tuple[tuple[Role, int], ...]
    stopped: tuple[str, ...]
    restarted: tuple[str, ...]
    undisturbed: tuple[str, ...]
    resized: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.started or self.stopped or self.restarted or self.resized)


def foretold(
    spec: ExternalSpec, nodes: Sequence[NodeView], plan: ResourcePlan, *, in_place: bool = False
) -> Restarts:
    """Return what another plan changes.

    Parameters
    ----------
    spec
        The job's programs.
    nodes
        The job's nodes, oldest first, as the master's view has them.
    plan
        The plan that would run.
    in_place
        Whether the cluster resizes nodes in place. One for which it refuses that gets a successor, which
        is not known before.
    """
    present = tuple(
        _Node(
            n.id, n.role, (n.cpu, n.memory_mib), n.phase is not NodePhase.PENDING, n.phase is NodePhase.GONE
        )
        for n in nodes
    )
    if not in_place:
        return _restarts(spec, present, plan)
    sizes = {node.id: node.size for node in present}
    then = tuple(_resized(present, plan))
    restarts = _restarts(spec, then, plan)
    changed = {node.id for node in then if node.size != sizes[node.id]}
    return replace(restarts, resized=tuple(name for name in sizes if name in changed))


def _resized(nodes: Sequence[_Node], plan: ResourcePlan) -> Iterator[_Node]:
    """Return nodes as the cluster resizes them: the oldest that run, as many as the plan has."""
    n_left = {role: plan.role(role).count for role in Role}
    for node in nodes:
        if not node.is_up or node.is_finished or not n_left.get(node.role):
            yield node
            continue
        n_left[node.role] -= 1
        own = plan.role(node.role)
        yield node._replace(size=(own.cpu, own.memory_mib))


class _Node(NamedTuple):
    """What matters of a node."""

    id: str
    role: Role
    size: tuple[float, int]
    is_up: bool
    is_finished: bool

    @property
    def member(self) -> Member:
        """The node at some address of its own, which stays."""
        return Member(self.id, self.role, self.id)


@lru_cache(maxsize=64)  # views ask again with each picture, and members know all others
def _restarts(spec: ExternalSpec, nodes: tuple[_Node, ...], plan: ResourcePlan) -> Restarts:
    before = [node for role in spec.world for node in nodes if node.role is role and node.is_up]
    left, ended = list(nodes), set[str]()
    while True:  # without the programs that ended and would have to begin anew, others may stay
        stay = [node for role in spec.world for node in _staying(left, role, plan_of(spec, plan, role))]
        counts = Counter(node.role for node in stay)
        n_new = {role: plan_of(spec, plan, role).count - counts[role] for role in spec.world}
        is_change = stay != before or any(n_new.values())
        restarted = _restarted(spec, left, before, stay, n_new) if is_change else frozenset()
        anew = {node.id for node in stay if node.is_finished and node.id in restarted}
        if not anew:
            break
        ended |= anew
        left = [node for node in left if node.id not in ended]
    there = [node.id for node in (*stay, *(node for node in left if node.role not in spec.world))]
    return Restarts(
        started=tuple((role, n) for role, n in n_new.items() if n),
        stopped=tuple(node.id for node in nodes if node.role in spec.world and node.id not in there),
        restarted=tuple(name for name in there if name in restarted),
        undisturbed=tuple(name for name in there if name not in restarted),
    )


def _staying(nodes: Sequence[_Node], role: Role, plan: RolePlan) -> list[_Node]:
    """Return the nodes of a role that stay: of the plan's size, those that run first, and the oldest."""
    fitting = [node for node in nodes if node.role is role and node.size == (plan.cpu, plan.memory_mib)]
    return sorted(fitting, key=lambda node: not node.is_up)[: plan.count]


def _restarted(
    spec: ExternalSpec,
    nodes: Sequence[_Node],
    before: Sequence[_Node],
    stay: Sequence[_Node],
    n_new: Mapping[Role, int],
) -> frozenset[str]:
    """Return the nodes whose variables are others than now."""
    now = [node.member for node in before]
    new = [
        Member(f"{role}-{_NEW + i}", role, f"new-{role}-{i}") for role, n in n_new.items() for i in range(n)
    ]
    then = [each for role in spec.world for each in (*(n.member for n in stay), *new) if each.role is role]
    both = {member.node for member in now} & {member.node for member in then}
    restarted = {name for name in both if _differ(spec, (now, then), name)}
    for fixed in spec.beside:
        own = [node.member for node in nodes if node.role is fixed.role and node.is_up]
        if fixed.role is not EVALUATOR and len(own) == fixed.count:
            restarted |= {
                each.node for each in own if _differ(spec, ([*now, *own], [*then, *own]), each.node)
            }
    return frozenset(restarted)


def _differ(spec: ExternalSpec, members: tuple[list[Member], list[Member]], node: str) -> bool:
    now, then = members
    return environment(spec, now, node, rendezvous_id="now") != environment(
        spec, then, node, rendezvous_id="then"
    )


def _counted(n: int, role: Role) -> str:
    return f"{n} {role}" if n == 1 or role is Role.PS else f"{n} {role}s"


def words(restarts: Restarts, spec: ExternalSpec, n_repeated: int | None = None) -> str:
    """Return the change in one sentence, and what it costs.

    Parameters
    ----------
    n_repeated
        Rows done since the programs' last checkpoint; None: the master does not know of one.
    """
    is_elastic = spec.framework is Framework.DDP
    one_by_one = ", one at a time as their successors join" if is_elastic and restarts.started else ""
    parts = [
        f"starts {and_list(_counted(n, role) for role, n in restarts.started)}" if restarts.started else "",
        f"ends {_named(restarts.stopped)}{one_by_one}" if restarts.stopped else "",
        f"resizes {_named(restarts.resized)} in place{OR_ELSE}" if restarts.resized else "",
        f"restarts {_named(restarts.restarted)}" if restarts.restarted else "",
        f"leaves {_named(restarts.undisturbed)} running" if restarts.undisturbed else "",
    ]
    by_now = "" if n_repeated is None else f" ({n_repeated:,} rows by now)"
    cost = (
        f"programs that restart go on from their own last checkpoint, and repeat what came after it{by_now}"
        if restarts.restarted
        else "no step is lost"
        if is_elastic or not restarts.stopped
        else "what the ending ones have not saved is lost"
    )
    return f"{'; '.join(filter(None, parts))}; {cost}"


def _named(names: Sequence[str]) -> str:
    return and_list(names, most=MOST_NAMES)
