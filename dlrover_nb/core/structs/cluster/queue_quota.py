"""What the queue of a cluster's admission system lets a job have, and what it decided on the job's nodes."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.basics.lists import and_list

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
    most_gpu, free_gpu
        The same of GPUs; None: not limited, or not known.
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
    most_gpu: float | None = None
    free_gpu: float | None = None

    @property
    def name(self) -> str:
        """The queue, and whose quota it is."""
        return f"Kueue's queue {self.queue}{f' ({self.keeper})' if self.keeper else ''}"

    @property
    def limit_words(self) -> str:
        """What it can ever admit; empty: nothing limits that, as far as is known."""
        most = _amount(self.most, self.most_gpu)
        return f"{self.name} admits at most {most}" if most else ""

    @property
    def words(self) -> str:
        """All of it in sentences."""
        parts = [self.limit_words or self.name]
        free = _amount(self.free, self.free_gpu)
        if free and not self.closed:
            parts.append(f"{free} are free now")
        parts += [each for each in (self.closed, *self.verdicts, self.note) if each]
        return "; ".join(parts)


def _amount(limit: Limit, gpu: float | None) -> str:
    cpu, mib = limit
    given = ((cpu, "cores"), (mib, "MiB"), (gpu, "GPU" if gpu == 1 else "GPUs"))
    parts = [f"{amount:g} {unit}" for amount, unit in given if amount is not None]
    return and_list(parts)
