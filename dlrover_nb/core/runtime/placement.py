"""Where things go: nodes on machines, buckets of rows on parameter servers. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.messages import N_BUCKET
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.resources import Capacity, ResourcePlan

Need = tuple[float, int]  # cores and MiB of one node
_CPU_SLACK = 1e-6  # cores; sums of hundredths are not exact


def plan_needs(plan: ResourcePlan) -> list[Need]:
    """Return what each node of a plan needs."""
    roles = [plan.role(role) for role in Role]
    return [(role.cpu, role.memory_mib) for role in roles for _ in range(role.count)]


def fits(capacity: Capacity, needs: Iterable[Need]) -> bool:
    """Whether nodes with these needs find room: first-fit, largest first, as `Capacity` defines it."""
    free = [[shape.cpu, shape.memory_mib] for shape in capacity.shapes for _ in range(shape.count)]
    for cpu, memory_mib in sorted(needs, reverse=True):
        machine = next((m for m in free if m[0] + _CPU_SLACK >= cpu and m[1] >= memory_mib), None)
        if machine is None:
            return False
        machine[0] -= cpu
        machine[1] -= memory_mib
    return True


def n_more(capacity: Capacity, present: Sequence[Need], need: Need, *, at_most: int) -> int:
    """Return how many more nodes of one kind fit beside those present, up to `at_most`."""
    n = 0
    while n < at_most and fits(capacity, [*present, *[need] * (n + 1)]):
        n += 1
    return n


def assign_buckets(previous: Sequence[int], n_ps: int) -> tuple[int, ...]:
    """Return the PS that owns each bucket: balanced to within one, moving as few as can be.

    Parameters
    ----------
    previous
        Owner of each bucket until now, as PS indices; empty at the start.
    n_ps
        Number of PS from now on, indices 0 to n_ps - 1.

    Notes
    -----
    Every PS may keep up to its quota; the quotas that exceed the floor go to the PS that hold most, so
    that no bucket moves that could stay.
    """
    if not previous:
        return tuple(bucket * n_ps // N_BUCKET for bucket in range(N_BUCKET))
    held: list[list[int]] = [[b for b, owner in enumerate(previous) if owner == ps] for ps in range(n_ps)]
    floor, n_above = divmod(len(previous), n_ps)
    richest = sorted(range(n_ps), key=lambda ps: (-len(held[ps]), ps))
    quota = {ps: floor + (rank < n_above) for rank, ps in enumerate(richest)}
    owner = dict.fromkeys(range(len(previous)), -1)
    for ps in range(n_ps):
        owner.update(dict.fromkeys(held[ps][: quota[ps]], ps))
    room = [ps for ps in range(n_ps) for _ in range(quota[ps] - len(held[ps]))]
    homeless = [bucket for bucket, ps in owner.items() if ps < 0]
    owner.update(zip(homeless, room, strict=True))
    return tuple(owner[bucket] for bucket in range(len(previous)))
