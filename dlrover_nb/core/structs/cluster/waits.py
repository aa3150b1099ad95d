"""What keeps jobs from starting nodes: the reason, what they need, and who holds it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WaitKind(StrEnum):
    """What a wait is for."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    IMAGE = "image"
    QUEUE = "queue"
    OTHER = "another reason"


@dataclass(frozen=True, slots=True)
class QueueWait:
    """A wait in a queue of the cluster, in the words of the system that keeps it.

    Parameters
    ----------
    system
        Kueue or Volcano.
    queue
        Its name; empty: the objects do not tell.
    why
        Of the condition that holds the job back.
    """

    job: str
    system: str
    queue: str
    why: str


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds cores and memory; `left_s` is None where its end is not known."""

    job: str
    owner: str
    cpu: float
    memory_mib: int
    left_s: float | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nodes of one job that wait for one thing.

    Parameters
    ----------
    nodes
        Their names; empty: the job as a whole waits.
    why
        The reason in the cluster's words.
    cpu, memory_mib
        That these nodes need together.
    ends_in_s
        Seconds until its end, where who keeps the queue predicts it.
    """

    job: str
    owner: str
    kind: WaitKind
    why: str
    nodes: tuple[str, ...]
    cpu: float = 0.0
    memory_mib: int = 0
    ends_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class WaitEnd:
    """When a wait ends by prediction, and the sentence that says so; None: not known."""

    in_s: float | None
    words: str
