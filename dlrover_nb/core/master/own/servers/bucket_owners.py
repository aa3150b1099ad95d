"""Which parameter server owns which bucket of rows. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

if TYPE_CHECKING:
    from collections.abc import Sequence


def next_members(old: Sequence[str], remaining: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Return the members of the next group in index order.

    A PS that stays keeps its index where there is one: its slice of the dense parameters need not move.
    """
    n_ps = len(remaining) + len(new)
    members = [name if name in remaining else "" for name in [*old, *[""] * n_ps][:n_ps]]
    rest = iter([*(name for name in remaining if name not in members), *new])
    return tuple(name or next(rest) for name in members)


def carried_over(owner: Sequence[int], old: Sequence[str], members: Sequence[str]) -> list[int]:
    """Return the owner of each bucket by the indices of the next group; -1: it leaves and has no successor.

    A new PS takes all buckets of the one in whose place it is.
    """
    takes = [at if at < len(members) and members[at] not in old else -1 for at in range(len(old))]
    index = [members.index(name) if name in members else takes[at] for at, name in enumerate(old)]
    return [index[each] for each in owner]


def assign_buckets(previous: Sequence[int], n_ps: int) -> tuple[int, ...]:
    """Return the PS that owns each bucket: balanced to within one, moving as few as can be.

    Parameters
    ----------
    previous
        Owner of each bucket until now, as PS indices, others for none; empty at the start.
    n_ps
        Number of PS from now on, indices 0 to n_ps - 1.

    Notes
    -----
    Every PS may keep up to its quota; the quotas that exceed the floor go to the PS that hold most, so
    that no bucket moves that could stay.
    """
    if not previous:
        return tuple(bucket * n_ps // N_BUCKET for bucket in range(N_BUCKET))
    by_ps: list[list[int]] = [[b for b, owner in enumerate(previous) if owner == ps] for ps in range(n_ps)]
    floor, n_above = divmod(len(previous), n_ps)
    richest = sorted(range(n_ps), key=lambda ps: (-len(by_ps[ps]), ps))
    quota = {ps: floor + (rank < n_above) for rank, ps in enumerate(richest)}
    owner = dict.fromkeys(range(len(previous)), -1)
    for ps in range(n_ps):
        owner.update(dict.fromkeys(by_ps[ps][: quota[ps]], ps))
    room = [ps for ps in range(n_ps) for _ in range(quota[ps] - len(by_ps[ps]))]
    homeless = [bucket for bucket, ps in owner.items() if ps < 0]
    owner.update(zip(homeless, room, strict=True))
    return tuple(owner[bucket] for bucket in range(len(previous)))
