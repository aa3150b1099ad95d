"""The round barrier of synchronous training: which worker may continue with which round.

In bulk-synchronous training (BSP) a round ends when every member has arrived in it; then its gradients are
applied together. In stale-synchronous training (SSP) gradients are applied as they come, and a member may be
at most `staleness` rounds ahead of the slowest: BSP is the same rule with a staleness of zero.

A `RoundBarrier` lives in the PS of index 0 only, so PS can never disagree about the members of a round. It
does no input or output: messages of workers and of the master in, releases out. A worker is a member from its
join until it leaves (at a pause, or without a batch) or the master declares it dead. A round waits for
members only, so a worker that leaves releases the others.

With backup workers (BSP) a round ends without its last members, as many as the backups are; one at least
has to arrive. Who arrives in a round that has ended is told so: its gradients were not used, and it goes on
in the open round, with the same rows. So each row is in the gradients of exactly one round.

Batch sizes change in the same round on all workers. A worker takes batches ahead of its round, so a change
applies from a round for which no worker can have taken a batch yet, and every worker gets it before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import BatchShare, FinishedRound, Go
from dlrover_nb.core.structs.job.spec_choices import Sync

if TYPE_CHECKING:
    from collections.abc import Mapping

TAKEN_AHEAD = 3  # before its release to round r a worker takes batches below r + TAKEN_AHEAD


@dataclass(frozen=True, slots=True)
class Release:
    """A worker that may continue, and its next round."""

    worker: str
    go: Go


@dataclass(slots=True)
class _Member:
    round: int  # the next one to arrive in
    n_row: int = 0  # of its batch in the last round
    waits: bool = False
    arrived: int | None = None  # the round of its last arrival
    is_late: bool = False  # that round had ended


@dataclass(slots=True)
class RoundBarrier:
    """Members and rounds of one group of PS; see the module.

    Parameters
    ----------
    sync, staleness
        Of the job.
    """

    sync: Sync
    staleness: int
    _members: dict[str, _Member] = field(default_factory=dict)
    _round: int = 0  # BSP: the open round; else the slowest member's, kept without members
    _n_backup: int = 0
    _furthest: int = 0
    _done: FinishedRound | None = None
    _sizes: list[tuple[int, dict[str, BatchShare]]] = field(default_factory=list)

    @property
    def members(self) -> tuple[str, ...]:
        """All members."""
        return tuple(self._members)

    def is_member(self, worker: str) -> bool:
        """Whether rounds wait for a worker."""
        return worker in self._members

    def join(self, worker: str) -> tuple[Release, ...]:
        """Add a member at the open round (SSP: the slowest's); a member that joins again starts over."""
        self._members.pop(worker, None)
        released = self._release()
        self._members[worker] = _Member(self._round)
        return (*released, Release(worker, self._go(worker)))

    def leave(self, worker: str) -> tuple[Release, ...]:
        """Remove a member; return the workers that this releases."""
        self._members.pop(worker, None)
        return self._release()

    def arrive(self, worker: str, number: int, n_row: int) -> tuple[Release, ...]:
        """Record the arrival of a member in a round with gradients of `n_row` rows; return the releases.

        A repeated arrival is answered again.

        Raises
        ------
        WireError
            When it is no member, or the round is neither its present one nor the one of its last arrival.
        """
        member = self._members.get(worker)
        if member is None or number not in {member.round, member.arrived}:
            at = "no member" if member is None else f"in round {member.round}"
            raise WireError(f"{worker} arrived in round {number}, but is {at}")
        if number == member.round:
            member.is_late = self.sync is Sync.BSP and number < self._round
            member.arrived, member.n_row = number, n_row
            member.round = self._round if member.is_late else number + 1
            self._furthest = max(self._furthest, member.round)
        member.waits = True
        return self._release()

    def set_backups(self, n: int) -> tuple[Release, ...]:
        """Let rounds end without their last `n` members, from the open one on; return the releases."""
        self._n_backup = n
        return self._release()

    def adjust(self, sizes: Mapping[str, int], accumulate: Mapping[str, int] | None = None) -> int:
        """Change batch sizes of workers; return the round from which they are in force."""
        times = accumulate or {}
        shares = {worker: BatchShare(n_row, times.get(worker, 1)) for worker, n_row in sizes.items()}
        first = self._furthest + 1 + TAKEN_AHEAD  # round furthest may be released already; the next is not
        before = self._sizes[-1][1] if self._sizes else {}
        in_force = [at for at in self._sizes if at[0] <= self._round][-1:]
        coming = [at for at in self._sizes if self._round < at[0] < first]
        self._sizes = [*in_force, *coming, (first, before | shares)]
        return first

    def _release(self) -> tuple[Release, ...]:
        """Release every worker that may continue now."""
        if not self._members:
            return ()
        if self.sync is Sync.BSP:
            self._end_round()
            last = self._round
        else:
            self._round = min(member.round for member in self._members.values())
            last = self._round + self.staleness
        free = [name for name, member in self._members.items() if member.waits and member.round <= last]
        for name in free:
            self._members[name].waits = False
        return tuple(Release(name, self._go(name)) for name in free)

    def _end_round(self) -> None:
        """End the open round, if enough members have arrived."""
        arrived = [name for name, member in sorted(self._members.items()) if member.round > self._round]
        if len(arrived) >= max(1, len(self._members) - self._n_backup):
            taken_part = tuple((name, self._members[name].n_row) for name in arrived)
            self._done = FinishedRound(self._round, taken_part)
            self._round += 1

    def _go(self, name: str) -> Go:
        mine = [(first, shares[name]) for first, shares in self._sizes if name in shares]
        sizes = tuple((first, share.n_row) for first, share in mine)
        times = tuple(share.times for _, share in mine)
        member = self._members[name]
        accumulate = times if any(each > 1 for each in times) else ()
        return Go(member.round, self._done, sizes, member.is_late, accumulate)
