"""What each machine of a cluster has, who holds it, and what of it is used.

Held and used are two facts. A scheduler counts what nodes requested; what they use is measured, where that
can be done without privileges, and counts every process of the machine. None always means that a number could
not be read, never zero; `ClusterLoad.notes` says why. A kind of cluster fills these records, and everything
else (sums, series, tables) follows from them, so that all kinds answer alike.

Nodes may hold more than a machine has where nothing but memory limits them: jobs of the local cluster share
their machine. Then nothing is idle, and `over` says by how much. So always, where all is known:

    held by jobs + held by others + idle - over = what the machine has
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Amount:
    """Cores and MiB."""

    cpu: float
    memory_mib: float

    def __post_init__(self) -> None:
        if not (0 <= self.cpu < float("inf") and 0 <= self.memory_mib < float("inf")):
            raise InvalidValueError(
                f"an amount must be of finite cores and MiB >= 0, got {self.cpu} and {self.memory_mib}"
            )

    def beyond(self, other: Amount) -> Amount:
        """Return by how much this exceeds another amount: zero where it does not."""
        return Amount(
            round(max(0.0, self.cpu - other.cpu), 6), round(max(0.0, self.memory_mib - other.memory_mib), 6)
        )


NONE = Amount(0.0, 0.0)


def total(amounts: Iterable[Amount]) -> Amount:
    """Return the sum of amounts; hundredths of cores add up without a tail of digits."""
    every = tuple(amounts)
    return Amount(round(sum(a.cpu for a in every), 6), round(sum(a.memory_mib for a in every), 6))


def total_known(amounts: Iterable[Amount | None]) -> Amount | None:
    """Return the sum of amounts; None where one of them, or all, are not known."""
    every = tuple(amounts)
    numbers = [amount for amount in every if amount is not None]
    return total(numbers) if numbers and len(numbers) == len(every) else None


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """One machine.

    Parameters
    ----------
    name
        Unique among the machines of its cluster, and the same each time it is read.
    has
        What it offers to nodes; None: it may not be read.
    jobs
        What each of our jobs holds there, by its name; each job once.
    others
        What nodes of others hold there; None: it may not be read.
    used
        What all processes of the machine use now; None: not measured.
    """

    name: str
    has: Amount | None
    jobs: tuple[tuple[str, Amount], ...] = ()
    others: Amount | None = NONE
    used: Amount | None = None

    @property
    def by_jobs(self) -> Amount:
        """What our jobs hold."""
        return total(amount for _, amount in self.jobs)

    @property
    def held(self) -> Amount | None:
        """What our jobs and others hold."""
        return None if self.others is None else total((self.by_jobs, self.others))

    @property
    def idle(self) -> Amount | None:
        """What no job or other pod holds."""
        held_in_all = self.held
        return None if self.has is None or held_in_all is None else self.has.beyond(held_in_all)

    @property
    def over(self) -> Amount | None:
        """What is held beyond what the machine has."""
        held_in_all = self.held
        return None if self.has is None or held_in_all is None else held_in_all.beyond(self.has)


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """All machines that can be seen.

    Parameters
    ----------
    machines
        Each of them.
    notes
        What could not be read, in sentences.
    place
        The name under which series of the cluster are kept; empty: none are (it is simulated).
    """

    machines: tuple[MachineLoad, ...]
    notes: tuple[str, ...] = ()
    place: str = ""

    def __post_init__(self) -> None:
        names = [machine.name for machine in self.machines]
        if len(set(names)) != len(names):
            raise InvalidValueError(f"names of machines must be unique, got {', '.join(sorted(names))}")

    @property
    def has(self) -> Amount | None:
        """What all machines have."""
        return total_known(m.has for m in self.machines)

    @property
    def by_jobs(self) -> Amount:
        """What our jobs hold."""
        return total(m.by_jobs for m in self.machines)

    @property
    def others(self) -> Amount | None:
        """What others hold."""
        return total_known(m.others for m in self.machines)

    @property
    def idle(self) -> Amount | None:
        """What no job or other pod holds."""
        return total_known(m.idle for m in self.machines)

    @property
    def over(self) -> Amount | None:
        """What is held beyond what single machines have."""
        return total_known(m.over for m in self.machines)

    @property
    def used(self) -> Amount | None:
        """What is used; None where one machine is not measured."""
        return total_known(m.used for m in self.machines)

    @property
    def jobs(self) -> tuple[tuple[str, Amount], ...]:
        """What each of our jobs holds on all machines, by its name."""
        return by_job(pair for machine in self.machines for pair in machine.jobs)


def by_job(holdings: Iterable[tuple[str, Amount]]) -> tuple[tuple[str, Amount], ...]:
    """Return what each job holds in all, sorted by name."""
    amounts_of: dict[str, list[Amount]] = {}
    for job, amount in holdings:
        amounts_of.setdefault(job, []).append(amount)
    return tuple((job, total(amounts)) for job, amounts in sorted(amounts_of.items()))
