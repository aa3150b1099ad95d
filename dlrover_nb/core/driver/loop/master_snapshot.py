"""What a master's snapshot holds: the controller, the telemetry, and what recent events left to be done.

A snapshot begins a segment of the journal (`core.rundir.journal`). With it, a restart need not read what the
segments before it say: proposals, decisions, outcomes, fits and samples are in the controller, an hour of
rows for the views in the telemetry. The history has all that is older.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.codec import from_msgpack, to_msgpack
from dlrover_nb.core.controller import state_bytes
from dlrover_nb.core.driver.loop import job_snapshot
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.object_graph import GraphDecoder, GraphEncoder
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import JobSubmitted, NodeReported, Remember, Ticked
from dlrover_nb.core.telemetry import TelemetryState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.controller.controller import Controller
    from dlrover_nb.core.structs.training.samples import NodeSample
    from dlrover_nb.core.structs.views.events import Event, Instruction
    from dlrover_nb.core.telemetry import JobTelemetry

UNSURE_S = 60.0  # before the newest event: what is older has reached the history


class Recent:
    """What a restart needs of the newest events, beside what the controller made of them.

    Attributes
    ----------
    remembered
        Records of the last minute: they may not have reached the history.
    last
        The newest report of each node.
    """

    def __init__(self, remembered: Iterable[Remember] = (), last: Iterable[NodeSample] = ()) -> None:
        self.remembered = deque(remembered)
        self.last = {sample.node: sample for sample in last}

    def add(self, event: Event, instructions: Iterable[Instruction]) -> None:
        """Note an event and what followed from it."""
        self.remembered.extend(i for i in instructions if isinstance(i, Remember))
        while self.remembered and self.remembered[0].at_s < event.at_s - UNSURE_S:
            self.remembered.popleft()
        if isinstance(event, NodeReported):
            self.last[event.sample.node] = event.sample
        elif isinstance(event, Ticked):
            fresh = job_snapshot.fresh(self.last.values(), event.at_s)
            self.last = {sample.node: sample for sample in fresh}

    def replay(self, event: Event, telemetry: JobTelemetry) -> None:
        """Fill telemetry as the loop did: a row per report, and one of the job per second."""
        match event:
            case NodeReported(sample=sample):
                telemetry.record_node(sample)
            case Ticked(at_s):
                fresh = job_snapshot.fresh(self.last.values(), at_s)
                workers = [sample for sample in fresh if sample.role is Role.WORKER]
                speed = job_snapshot.throughput(workers)
                telemetry.record_job(at_s, speed, len(workers), len(fresh) - len(workers))


class Restored(NamedTuple):
    """A snapshot, read back."""

    controller: Controller
    telemetry: TelemetryState
    recent: Recent


def pack(controller: Controller, telemetry: TelemetryState, recent: Recent) -> bytes:
    """Return a snapshot.

    Raises
    ------
    WireError
        When the controller holds what cannot be written.
    """
    job, state = state_bytes.pack(controller)
    rows = to_msgpack(telemetry)
    return GraphEncoder({}).pack((job, state, rows, tuple(recent.remembered), tuple(recent.last.values())))


def unpack(data: bytes, new: Callable[[JobSubmitted], Controller]) -> Restored:
    """Return what `pack` was given.

    Parameters
    ----------
    new
        Makes the controller of a job.

    Raises
    ------
    WireError
        When it is damaged, or of a release that this one cannot read.
    """
    parts = GraphDecoder({}).unpack(data)
    if not isinstance(parts, tuple) or len(parts) != 5 or not isinstance(parts[0], JobSubmitted):
        raise WireError("expected a snapshot of a master, got something else")
    job, state, rows, remembered, last = parts
    controller = state_bytes.restore(new(job), state)
    return Restored(controller, from_msgpack(rows, TelemetryState), Recent(remembered, last))
