"""Variables of the roles beside the world, which know its addresses (`ExternalSpec.beside`).

A program is told once all nodes of its role and of the world have an address, and again, with a restart, when
one of these addresses changes. An evaluator is told once alone: it reads checkpoints and calls no node, so no
change of the world restarts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.launch.rendezvous import Member, environment
from dlrover_nb.core.master.external.orders import SendEnvironment
from dlrover_nb.core.structs.job.external import EVALUATOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.core.master.external.job.node_set import ExternalNode
    from dlrover_nb.core.master.external.job.state import ExternalState
    from dlrover_nb.core.structs.plan.resources import Role


def tell(state: ExternalState, members: Sequence[str]) -> list[SendEnvironment]:
    """Return the variables that are new; none while a member of the world is missing."""
    world = [node for name in members if (node := state.node_set.get(name)) is not None]
    if not world or len(world) < len(members):
        return []
    return [order for fixed in state.external.beside for order in _environments(state, world, fixed.role)]


def tell_again(state: ExternalState) -> list[SendEnvironment]:
    """Return the variables that programs were told last: an order of an earlier master may be lost."""
    roles = {each.role for each in state.external.beside}
    living = (n for n in state.node_set.nodes if n.role in roles and n.told and not n.is_finished)
    return [SendEnvironment(node.id, node.told) for node in living]


def _environments(
    state: ExternalState, world: Sequence[ExternalNode], role: Role
) -> Iterator[SendEnvironment]:
    alike = state.node_set.beside(role) or ()
    members = [Member(node.id, node.role, node.address) for node in (*world, *alike)]
    for node in alike:
        if node.is_finished or (node.told and role is EVALUATOR):
            continue
        text = environment(state.external, members, node.id, rendezvous_id="")
        if text != node.told:
            node.told = text
            yield SendEnvironment(node.id, text)
