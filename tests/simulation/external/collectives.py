"""Played collectives: what `torch.distributed` is to elastic programs, in virtual time.

A collective ends once all members of a world have called it. What becomes of one in which a member is lost is left to
chance, as with gloo: some get its result, and others an error. A member that is stopped lets the others wait for their limit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulation.tasks import PER_S

if TYPE_CHECKING:
    from datetime import timedelta

    import torch
    from simulation.external.programs import PlayedSession
    from simulation.external.world import ExternalWorld
    from simulation.tasks import Task

Batch = tuple[int, tuple[int, ...]]  # epoch, rows


@dataclass
class Collective:
    """One call of all members: what each gave, and who waits in which of its waits."""

    given: dict[int, Any] = field(default_factory=dict)
    waiting: dict[int, tuple[Task, int]] = field(default_factory=dict)


@dataclass
class Meeting:
    """The members of one world, who met at one store."""

    size: int
    is_broken: bool = False
    n_begun: Counter[int] = field(default_factory=Counter)
    calls: dict[int, Collective] = field(default_factory=dict)


class PlayedCollectives:
    """Fits the parts of `torch.distributed` that `dlrover_nb.client.group` uses."""

    def __init__(self, world: ExternalWorld) -> None:
        self._world = world
        self._meetings: dict[tuple[str, str], Meeting] = {}

    @property
    def _joined(self) -> PlayedSession:
        joined: PlayedSession = self._world.tasks.present.greenlet.session
        return joined

    # where they meet

    def TCPStore(self, host: str, _port: int, **_: Any) -> str:  # noqa: N802 - torch's name
        self._world.tasks.sleep(4 / PER_S)
        if all(pod.address != host for pod in self._world.pods.values()):
            raise OSError("connection refused")
        return host

    def prefix_store(self, prefix: str, store: str) -> tuple[str, str]:
        return prefix, store

    def init_process_group(
        self, _backend: str, *, store: tuple[str, str], rank: int, world_size: int, timeout: timedelta
    ) -> None:
        joined = self._joined
        joined.meeting = self._meetings.setdefault(store, Meeting(world_size))
        joined.rank, joined.limit_s = rank, timeout.total_seconds()
        self._together(None)

    def is_initialized(self) -> bool:
        return self._joined.meeting is not None

    def destroy_process_group(self) -> None:
        self.leave(self._joined)

    def leave(self, joined: PlayedSession) -> None:
        """Let a member be gone from its world, which is of no use to the others then."""
        meeting, joined.meeting = joined.meeting, None
        if meeting is None or meeting.is_broken:
            return
        meeting.is_broken = True
        for call in meeting.calls.values():
            is_complete = len(call.given) == meeting.size
            for task, number in call.waiting.values():
                if not (is_complete and self._world.rng.random() < 0.5):
                    self._world.tasks.wake_if(task, number, value=False)

    # what they do together

    def all_reduce(self, flat: torch.Tensor) -> None:
        joined = self._joined
        batches, joined.batches = tuple(joined.batches), []
        given = self._together((flat.clone(), batches))
        flat.copy_(sum(part for part, _ in given))
        joined.coming = tuple(batch for _, batches in given for batch in batches)

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        tensor.copy_(self._together(tensor.clone())[source])

    def _together(self, value: Any) -> list[Any]:
        """Give a value; return those of all members by rank."""
        joined, tasks = self._joined, self._world.tasks
        meeting = joined.meeting
        if meeting is None or meeting.is_broken:
            raise RuntimeError("another member has left")
        call = meeting.calls.setdefault(meeting.n_begun[joined.rank], Collective())
        meeting.n_begun[joined.rank] += 1
        call.given[joined.rank] = value
        call.waiting[joined.rank] = tasks.present, tasks.present.number + 1
        if len(call.given) == meeting.size:
            for task, number in sorted(call.waiting.values(), key=lambda each: each[0].of):
                self._world.wake_later(self._world.rng.choice([1, 1, 4, 64]) / PER_S, task, number)
        has_ended = tasks.park(joined.limit_s)
        del call.waiting[joined.rank]
        if not has_ended:
            self.leave(joined)
            raise RuntimeError("another member is lost" if has_ended is False else "timed out")
        return [given for _, given in sorted(call.given.items())]
