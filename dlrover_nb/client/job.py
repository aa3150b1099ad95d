"""What a program may ask of its job: whether to stop, and how many rows a step should have."""

from __future__ import annotations

from .session import session


def in_job() -> bool:
    """Whether this process belongs to a job, whose master accounts for its rows."""
    return session() is not None


def should_stop() -> bool:
    """Whether the job is being stopped: save what is worth it, and end; False outside of a job.

    Cheap enough for each step: the answer is about a second old. `shards` ends by itself then.
    """
    joined = session()
    return joined is not None and bool(joined.state()["should_stop"])


def is_changing() -> bool:
    """Whether programs will restart soon with other processes: a good moment for a checkpoint."""
    joined = session()
    return joined is not None and bool(joined.state()["is_changing"])


def batch_size(default: int) -> int:
    """Return how many rows a step of this node should have: as set by a command, else `default`."""
    joined = session()
    return default if joined is None else joined.batch_size() or default


def acknowledge() -> None:
    """Report all rows that are done, and return when the master has counted them.

    Before a checkpoint of several processes in step: each acknowledges, then they wait for each other, then
    one of them saves.
    """
    joined = session()
    if joined is not None:
        joined.report()
