"""On which machine a program starts whose role says with which others it runs, or apart from which.

The meaning is that of required affinities of Kubernetes' pods: `together_with` needs a machine where a
program of that role runs already, `apart_from` one without any, also of those that come later. It is for
clusters that have no such rules of their own.
"""

from __future__ import annotations

from operator import ge
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.basics.lists import and_list

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dlrover_nb.core.structs.job.external import ExternalSpec
    from dlrover_nb.core.structs.plan.resources import Need, Role


class Place(NamedTuple):
    """The machine of a program, or why there is none now."""

    machine: str
    why: str = ""


def place(
    spec: ExternalSpec,
    role: Role,
    need: Need,
    *,
    room: Mapping[str, Need],
    there: Mapping[str, Collection[str]],
) -> Place:
    """Return where a program of a role starts: of the machines that may have it the one with the most room.

    Parameters
    ----------
    need
        Of one of its nodes.
    room
        What is free, by machine.
    there
        Roles of the job's programs, by machine.
    """
    own, apart = spec.program(role), spec.apart_of(role)
    allowed = [
        machine
        for machine in room
        if set(own.together_with) <= set(there.get(machine, ())) and not apart & set(there.get(machine, ()))
    ]
    rule = _rule(own.together_with, sorted(apart))
    if not allowed:
        return Place("", f"no machine is {rule}")
    fitting = [machine for machine in allowed if all(map(ge, room[machine], need))]
    if not fitting:
        return Place("", f"no room on a machine {rule}" if rule else "no room")
    return Place(max(fitting, key=lambda machine: room[machine]))


def _rule(together: Collection[str], apart: Collection[str]) -> str:
    """Return what a machine has to be, in words."""
    named = {"with": together, "without": apart}
    return " and ".join(f"{word} {and_list(roles)}" for word, roles in named.items() if roles)
