"""The controller of a job with its records: telemetry, journal, history.

A fact reaches all of them or, when the controller refuses it, none. A replacing master replays the journal:
the controller decides by its events alone, so the same events give the same proposals, decisions and models.
Its instructions were carried out before and are not repeated; only the last records may be missing in the
history, and are written again.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from dlrover_nb.core.controller import Controller
from dlrover_nb.core.driver import job_snapshot
from dlrover_nb.core.driver.history_writer import HistoryWriter
from dlrover_nb.core.driver.policies import find_policy
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.rundir.journal import JOURNAL, Journal, read_journal
from dlrover_nb.core.structs.events import JobSubmitted, NodeReported, Remember, Scale, Ticked
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.telemetry import JobTelemetry

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.controller import ControllerSettings
    from dlrover_nb.core.structs.events import Event, Instruction
    from dlrover_nb.core.structs.samples import NodeSample
    from dlrover_nb.core.structs.shards import ShardCounts
    from dlrover_nb.core.structs.snapshot import SeriesChunk

UNSURE_S = 60.0  # before the end of the journal: what is older has reached the history


class RecordedController:
    """The controller of one job and the records of its events.

    Parameters
    ----------
    job
        The job's name.
    folder
        Its run folder.
    history_url
        Of the history; None for the user's own file.
    settings
        Of the controller.

    Attributes
    ----------
    last_decision
        Id of the decision behind the last change of plan; empty before the first, and after a restart.

    Notes
    -----
    The first event, `JobSubmitted`, creates the controller.
    """

    def __init__(
        self,
        job: str,
        folder: Path,
        history_url: str | None,
        settings: ControllerSettings | None = None,
    ) -> None:
        self._job, self._settings = job, settings
        self._controller: Controller | None = None
        self.last_decision = ""
        self._path = folder / JOURNAL
        self._journal, self._memory = Journal(folder), HistoryWriter(job, history_url)
        self._telemetry, self._lock = JobTelemetry(), threading.Lock()

    @property
    def is_submitted(self) -> bool:
        """Whether there is a controller: a job was submitted to it."""
        return self._controller is not None

    @property
    def controller(self) -> Controller:
        """The controller, to be read; events go through `emit`.

        Raises
        ------
        InvalidValueError
            When no job was submitted yet.
        """
        if self._controller is None:
            raise InvalidValueError(f"the first event of job {self._job} must be JobSubmitted, got none yet")
        return self._controller

    def _handle(self, event: Event) -> tuple[Instruction, ...]:
        if self._controller is None and isinstance(event, JobSubmitted):
            policy = find_policy(event.spec.policy)
            self._controller = Controller(event, self._settings, policy=policy)
            return self._controller.first_orders
        return self.controller.handle(event)

    def emit(self, event: Event) -> tuple[Instruction, ...]:
        """Pass a fact to the controller; return its instructions, already recorded."""
        if isinstance(event, NodeReported):
            with self._lock:
                self._telemetry.record_node(event.sample)
        instructions = self._handle(event)
        self._journal.append(event)
        for instruction in instructions:
            if isinstance(instruction, Remember):
                self._memory.remember(instruction)
            elif isinstance(instruction, Scale):
                self.last_decision = instruction.decision
        return instructions

    def replay(self) -> None:
        """Replay the journal of an earlier master."""
        asked: deque[Remember] = deque()
        recorder = _Recorder(self._telemetry)
        for event in read_journal(self._path):
            recorder.record(event)
            asked.extend(i for i in self._handle(event) if isinstance(i, Remember))
            while asked and asked[0].at_s < event.at_s - UNSURE_S:
                asked.popleft()
        for order in asked:
            self._memory.remember(order)

    def record_job(
        self, at_s: float, samples_per_s: float, *, n_worker: int, n_ps: int, shards: ShardCounts
    ) -> None:
        """Record the job's throughput, nodes and shards at a time."""
        with self._lock:
            self._telemetry.record_job(at_s, samples_per_s, n_worker, n_ps, shards=shards)

    def series(self, cursor: int) -> SeriesChunk:
        """Return telemetry newer than `cursor`; for any thread."""
        with self._lock:
            return self._telemetry.read(cursor)

    def close(self) -> None:
        """Close journal and history."""
        self._journal.close()
        self._memory.close()


class _Recorder:
    """Fills telemetry like the driver: a row per report, and one of the job per second."""

    def __init__(self, telemetry: JobTelemetry) -> None:
        self._telemetry = telemetry
        self._last: dict[str, NodeSample] = {}

    def record(self, event: Event) -> None:
        match event:
            case NodeReported(sample=sample):
                self._last[sample.node] = sample
                self._telemetry.record_node(sample)
            case Ticked(at_s):
                fresh = job_snapshot.fresh(self._last.values(), at_s)
                self._last = {sample.node: sample for sample in fresh}
                workers = [sample for sample in fresh if sample.role is Role.WORKER]
                speed = job_snapshot.throughput(workers)
                self._telemetry.record_job(at_s, speed, len(workers), len(fresh) - len(workers))
