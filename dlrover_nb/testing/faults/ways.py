"""The ways to slow a node, and the order to a process that does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.testing.faults.patterns import Pattern, Persistent, Together, Transient


@dataclass(frozen=True, slots=True)
class CpuShare:
    """Only a share of the CPU that the node has, above 0 and below 1.

    Where the node runs in a control group of its own, that is a share of its plan's cores; else a share of
    the time, in which the process runs.
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidValueError(f"share must be above 0 and below 1, got {self.share}; 0.25 is a quarter")


@dataclass(frozen=True, slots=True)
class Latency:
    """Each request reaches the PS `delay_s` later; its answers are not delayed."""

    delay_s: float

    def __post_init__(self) -> None:
        _check.above_zero("delay_s", self.delay_s)


Way: TypeAlias = Pattern | CpuShare | Latency


@dataclass(frozen=True, slots=True)
class Order:
    """The task of the injector process: the node's process, and what to do to it.

    Of the ways one is given; a pattern as the single ones that it is made of. `began_up_s` is when the
    pattern began, by the monotonic clock, which all processes of a boot share.
    """

    job: str
    folder: str
    node: str
    pid: int
    started_at_s: float
    parent: int
    heartbeat_timeout_s: float
    began_up_s: float
    by: str
    iter_s: float
    persistent: tuple[Persistent, ...] = ()
    transient: tuple[Transient, ...] = ()
    share: float | None = None
    latency_s: float | None = None

    @property
    def pattern(self) -> Pattern:
        """The pattern of delays."""
        return Together((*self.persistent, *self.transient))


@dataclass(frozen=True, slots=True)
class News:
    """A report of the node: its mean iteration, 0 when none was finished."""

    iter_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What the injector says: how it slows the node, why it refuses, or why it has ended."""

    how: str = ""
    refused: str = ""
    ended: str = ""
