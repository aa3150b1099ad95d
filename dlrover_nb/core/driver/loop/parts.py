"""The parts that the loop of a job is composed of, and their interfaces.

There is one loop (`core.driver.loop.job_loop`) and three kinds of jobs: own jobs, external jobs, and external
jobs whose pods an operator manages. They differ in four parts only: the master that decides, its inputs, the
persistence of its state, and the actions that it may order. A loop per kind was rejected: two of them had
come to differ in the order in which orders were carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dlrover_nb.core.driver.loop.job_snapshot import Run
from dlrover_nb.core.structs.views.snapshot import MasterRestart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.driver.backend import Backend, NodeExited
    from dlrover_nb.core.driver.loop.recorded_controller import RecordedController
    from dlrover_nb.core.master.shared.orders import Emit
    from dlrover_nb.core.structs.decisions.actions import MitigationChoice
    from dlrover_nb.core.structs.decisions.query_answers import LogLine
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.job.start_from import BeganFrom
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.shards import UserChoice

ActionT = TypeVar("ActionT")
ActionT_co = TypeVar("ActionT_co", covariant=True)
ActionT_contra = TypeVar("ActionT_contra", contravariant=True)


class Master(Run, Protocol[ActionT_co]):
    """Decides for the nodes of one job: facts in, orders out, no input or output."""

    def set_target(self, plan: ResourcePlan, at_s: float, /) -> tuple[ActionT_co | Emit, ...]:
        """Work towards `plan` from now on."""
        ...

    def choose(self, choice: UserChoice, at_s: float, /) -> tuple[ActionT_co | Emit, ...]:
        """Apply a user's choice about a shard or batch sizes; `InvalidValueError` where there is none."""
        ...

    def mitigate(self, choice: MitigationChoice, at_s: float, /) -> tuple[ActionT_co | Emit, ...]:
        """Carry out an action against stragglers; no orders follow where it is under way already.

        `MitigationEnded` says later that it is in effect, or why not. Raises `InvalidValueError` or
        `StaleDecisionError` where it cannot be done now; then nothing has changed.
        """
        ...

    def stop(self, by: str, why: str, at_s: float, /) -> tuple[ActionT_co | Emit, ...]:
        """End the job at a user's request."""
        ...

    def fail(self, why: str, at_s: float, /) -> tuple[ActionT_co | Emit, ...]:
        """End the job at once, because its surroundings failed."""
        ...

    def set_waiting(self, reasons: Mapping[str, str], at_s: float, /) -> tuple[ActionT_co | Emit, ...]:
        """Note which nodes cannot start yet, and why."""
        ...

    def set_capacity(self, capacity: Capacity, at_s: float, /) -> tuple[ActionT_co | Emit, ...]:
        """Note a change of machines."""
        ...

    def tick(self, at_s: float, /) -> tuple[ActionT_co | Emit, ...]:
        """Note that time passed."""
        ...


class Inputs(Protocol[ActionT_co]):
    """Passes external facts to the master; for the loop's thread, except `wake` and `lines`."""

    @property
    def n_dropped(self) -> int:
        """Messages that could not be decoded."""
        ...

    @property
    def n_refused(self) -> int:
        """Connections that were refused."""
        ...

    def wake(self) -> None:
        """Let `receive` return now; for any thread."""
        ...

    def receive(self, wait_s: float) -> Sequence[ActionT_co | Emit]:
        """Wait at most so long for input or `wake`; return the orders that follow from all input."""
        ...

    def observe(self, at_s: float) -> Sequence[ActionT_co | Emit]:
        """Compare the nodes with the cluster's state; called on every tick."""
        ...

    def on_exit(self, exited: NodeExited, at_s: float) -> Sequence[ActionT_co | Emit]:
        """Report a node's exit to the master, with the last line of its log."""
        ...

    def lines(self, node: str | None, n_line: int, *, there: Iterable[str]) -> tuple[LogLine, ...]:
        """Return the newest log lines; for any thread."""
        ...

    def finish(self, at_s: float) -> None:
        """Read remaining logs after all nodes have ended."""
        ...


class Persistence(Protocol[ActionT_contra]):
    """Saves the state that a replacing master needs."""

    def begin(self) -> None:
        """Write everything, replacing the earlier state."""
        ...

    def write_ahead(self, orders: Sequence[ActionT_contra | Emit]) -> None:
        """Write the state behind `orders`, before they are carried out."""
        ...

    def keep(self) -> None:
        """Write changes without an order."""
        ...

    def close(self) -> None:
        """Write the end."""
        ...


@dataclass(frozen=True, slots=True)
class Parts(Generic[ActionT]):
    """All parts of one job.

    Parameters
    ----------
    spec, capacity, started_at_s, folder
        The job, its cluster's capacity, the time of its submission, and its run folder.
    backend
        Where nodes run.
    master, inputs, persistence
        See their protocols.
    perform
        Carries out one action and returns the orders that follow from it.
    recorded
        The controller, with journal, history and telemetry.
    clock
        The time.
    began_from
        The checkpoint that the job has begun from; None: untrained parameters.
    damage
        What was wrong with files that this master read, and what that cost; empty: nothing.
    restart
        How the master came to continue the job; None: it has begun it, or that is not told.
    """

    spec: JobSpec
    capacity: Capacity
    started_at_s: float
    folder: Path
    backend: Backend
    master: Master[ActionT]
    inputs: Inputs[ActionT]
    persistence: Persistence[ActionT]
    perform: Callable[[ActionT], tuple[ActionT | Emit, ...]]
    recorded: RecordedController
    clock: Clock
    began_from: BeganFrom | None = None
    damage: str = ""
    restart: MasterRestart | None = None


def restart_of(how_ended: str, at_s: float) -> MasterRestart | None:
    """Return what is told of a master that continues a job; None where nothing is known of the one before."""
    return MasterRestart(at_s, how_ended) if how_ended else None
