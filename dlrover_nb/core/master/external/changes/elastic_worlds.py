"""Elastic jobs (`Framework.DDP`): their worlds follow the nodes that are there, and no program restarts.

In place of a rendezvous of all nodes there is a world of those that are up (`worlds`). The first one waits
for all nodes of the plan; later ones wait for no node: a lost one is missed at once, and its successor joins
when it is up. What a lost member held is taken back with the next world, since only its members know how much
of it is in the job's parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.job.step_shares import Part, by_speed, even, is_balanced
from dlrover_nb.core.master.external.launch.rendezvous import Member, endpoint, environment
from dlrover_nb.core.master.external.orders import SendEnvironment
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.services import WorldLater, WorldMade, WorldOver

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.master.external.job.node_set import ExternalNode
    from dlrover_nb.core.master.external.job.state import ExternalState
    from dlrover_nb.core.master.external.job.worlds import Request, World
    from dlrover_nb.core.structs.training.batch_cost import BatchCost
    from dlrover_nb.core.structs.wire.services import ServiceAnswer

ALONE_AFTER_S = 60.0  # that a first world waits for nodes without room
LATE_S = 30.0  # that processes wait for another one before it is named
WAIT_S, LONG_WAIT_S = 0.05, 0.5  # between requests: while a world is being made, and while nodes are missing
CALLS_PER_S = 500  # of all members while they wait for a world


def wanted(state: ExternalState) -> tuple[str, ...]:
    """Return the workers that are to train: of those that are up the oldest, as many as the plan has.

    One of another shape goes on until a successor asks for a world (`shapes`).
    """
    plan, members = state.target.worker, state.worlds.now.members
    up = [n for n in state.node_set.of(Role.WORKER) if _is_up(n)]
    right = _oldest(members, [n.id for n in up if n.fits(plan)])[: plan.count]
    old = _oldest(members, [n.id for n in up if not n.fits(plan)])
    n_old = plan.count - sum(map(state.worlds.is_there, right))
    return (*right, *old[:n_old])


def store_of(state: ExternalState) -> ExternalNode | None:
    """Return the store where members meet; None while there is none."""
    return next((n for n in state.node_set.nodes if _is_up(n) and n.role is Role.PS), None)


def advance(state: ExternalState, at_s: float) -> bool:
    """Make the next world if it can be made; return whether it was."""
    names, store = wanted(state), store_of(state)
    is_due = state.worlds.is_outdated(names)
    state.outdated_world = state.worlds.now.number if is_due else 0
    if store is None or state.is_over:
        return False
    reached = state.worlds.advance(names, awaited=() if _may_begin(state, names, at_s) else _all(state))
    if reached is None:
        return False
    state.account.reach(reached)
    state.release_left()
    state.account.release_replaced()
    state.outdated_world, state.parts = 0, even(state.spec, state.worlds.now.members)
    state.speeds.restart(state.worlds.now.members)
    return True


def late(state: ExternalState) -> tuple[str, ...]:
    """Return the nodes whose processes others wait for, to make the next world; empty: none waits."""
    names, before = wanted(state), state.worlds.now.members
    awaited = [name for name in names if name in before] if before else names
    is_waiting = any(map(state.worlds.asks, names))
    return tuple(name for name in awaited if is_waiting and not state.worlds.asks(name))


def members(state: ExternalState) -> tuple[str, ...]:
    """Return the workers of the world by rank, and the store."""
    store = store_of(state)
    return (*state.worlds.now.members, *([] if store is None else [store.id]))


def environments(state: ExternalState, nodes: Iterable[ExternalNode]) -> list[SendEnvironment]:
    """Return the variables of nodes that are up, which never change and do not depend on others."""
    up = [node for node in nodes if _is_up(node) and node.role in set(Role)]
    own = [Member(node.id, node.role, node.address) for node in up]
    return [
        SendEnvironment(each.node, environment(state.external, [each], each.node, rendezvous_id=""))
        for each in own
    ]


def answer(state: ExternalState, node: str, request: Request) -> ServiceAnswer:
    """Return the world of a process that asks for it."""
    world, store = state.worlds.found(node, request), store_of(state)
    if state.should_stop or state.is_over:
        return WorldOver("the job ends")
    if world is not None and store is not None:
        return _made(node, world, endpoint(store.address, state.external.port))
    if state.worlds.now.number and node not in wanted(state):
        return WorldOver("the job goes on with fewer processes")
    n_member = len(state.worlds.now.members)
    return WorldLater(max(WAIT_S, n_member / CALLS_PER_S) if n_member else LONG_WAIT_S)


def share(state: ExternalState, node: str) -> Part:
    """Return what a node has of a step; a size of 0: as its program has it."""
    part, size = state.parts.get(node, Part(0)), dict(state.batch_sizes).get(node, 0)
    return Part(size, dict(state.batch_times).get(node, part.times)) if size else part


def hear_speed(
    state: ExternalState, node: str, n_row: int, busy_s: float, cost: BatchCost | None = None
) -> None:
    """Note how fast a node computes, and share steps by speeds where the job asks for that."""
    members = state.worlds.now.members
    if not busy_s or node not in members:
        return
    state.own_work.hear(node, busy_s, cost)
    if not is_balanced(state.spec):
        return
    state.speeds.hear(node, n_row, busy_s)
    speeds = state.speeds.take(members)
    if speeds is not None:
        now = {each: share(state, each) for each in members}
        state.parts = by_speed(state.spec, members, speeds, now, state.own_work.costs)


def _oldest(members: Sequence[str], nodes: Sequence[str]) -> tuple[str, ...]:
    """Return nodes with those of the world first, by rank."""
    there = set(nodes)
    return tuple(dict.fromkeys([*(node for node in members if node in there), *nodes]))


def _made(node: str, world: World, store: str) -> WorldMade:
    rank = world.members.index(node)
    return WorldMade(world.number, rank, world.programs, world.steps, world.source, store, world.reached)


def _may_begin(state: ExternalState, names: Sequence[str], at_s: float) -> bool:
    """Whether a world may be made without all nodes of the plan."""
    waits_s = state.waits_since_s
    return bool(state.worlds.now.number) or (
        bool(names) and waits_s is not None and at_s > waits_s + ALONE_AFTER_S
    )


def _all(state: ExternalState) -> tuple[str, ...]:
    """Return the nodes that a first world waits for: those of the plan, whether they are there or not."""
    there = wanted(state)
    missing = state.target.worker.count - len(there)
    return (*there, *(f"missing-{i}" for i in range(missing)))


def _is_up(node: ExternalNode) -> bool:
    return bool(node.address) and not node.is_finished
