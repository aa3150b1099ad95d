"""What the queue of a cluster's admission system lets a job have, and what it decided on the job's nodes."""

from __future__ import annotations

from dataclasses import dataclass

Limit = tuple[float | None, float | None]  # cores and MiB; None: not limited, or not known
UNLIMITED: Limit = (None, None)


@dataclass(frozen=True, slots=True)
class QueueQuota:
    """The quota of a queue as last read.

    Parameters
    ----------
    queue
        Its name, as the job's label has it.
    keeper
        Whose quota it is, in words: the ClusterQueue; empty: that is not known.
    most
        What it can ever admit at once, with all that it may borrow.
    free
        What of that is not reserved now.
    closed
        Why it admits nothing now; empty: it does.
    verdicts
        What it decided on the job's nodes, in its words.
    note
        What could not be read; empty: nothing.
    """

    queue: str
    keeper: str = ""
    most: Limit = UNLIMITED
    free: Limit = UNLIMITED
    closed: str = ""
    verdicts: tuple[str, ...] = ()
    note: str = ""

    @property
    def name(self) -> str:
        """The queue, and whose quota it is."""
        return f"Kueue's queue {self.queue}{f' ({self.keeper})' if self.keeper else ''}"

    @property
    def limit_words(self) -> str:
        """What it can ever admit; empty: nothing limits that, as far as is known."""
        return f"{self.name} admits at most {_amount(self.most)}" if self.most != UNLIMITED else ""

    @property
    def words(self) -> str:
        """All of it in sentences."""
        parts = [self.limit_words or self.name]
        if self.free != UNLIMITED and not self.closed:
            parts.append(f"{_amount(self.free)} are free now")
        parts += [each for each in (self.closed, *self.verdicts, self.note) if each]
        return "; ".join(parts)


def _amount(limit: Limit) -> str:
    cpu, mib = limit
    parts = (f"{cpu:g} cores" if cpu is not None else "", f"{mib:g} MiB" if mib is not None else "")
    return " and ".join(each for each in parts if each)
