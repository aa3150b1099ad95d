"""The controller of a job with its records: telemetry, journal, history.

A fact reaches all of them or, when the controller refuses it, none. A replacing master reads the newest
snapshot and replays the events after it: the controller decides by its events alone, so the same events give
the same proposals, decisions and models. Its instructions were carried out before and are not repeated; only
the last records may be missing in the history, and are written again.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.driver.history_writer import HistoryWriter
from dlrover_nb.core.driver.loop import master_snapshot
from dlrover_nb.core.driver.policies import find_policy
from dlrover_nb.core.errors import DlroverError, InvalidValueError, WireError
from dlrover_nb.core.rundir.journal import Journal, compress, read_journal, read_snapshot, segments
from dlrover_nb.core.straggler.methods import find_methods
from dlrover_nb.core.structs.views.events import JobSubmitted, NodeReported, Remember, Scale
from dlrover_nb.core.telemetry import JobTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.rundir.journal import Segment
    from dlrover_nb.core.structs.training.gradient_ages import MeanAges
    from dlrover_nb.core.structs.training.shards import ShardCounts
    from dlrover_nb.core.structs.views.events import Event, Instruction
    from dlrover_nb.core.structs.views.snapshot import SeriesChunk

logger = logging.getLogger(__name__)


def unheard(_what: str) -> None:
    """Ignore progress that the caller did not ask for."""


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
    losses
        What `replay` could not read of the journal, for people; empty: nothing.

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
        *,
        namespace: str = "",
    ) -> None:
        self._job, self._settings = job, settings
        self._controller: Controller | None = None
        self.last_decision = self.losses = ""
        self._folder = folder
        self._journal, self._memory = Journal(folder), HistoryWriter(job, history_url, namespace)
        self._telemetry, self._lock = JobTelemetry(), threading.Lock()
        self._recent = master_snapshot.Recent()

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

    @property
    def segment(self) -> int:
        """Number of the journal's segment that is written."""
        return self._journal.segment

    @property
    def at_s(self) -> float:
        """Time of the last event; minus infinity before the first."""
        return float("-inf") if self._controller is None else self._controller.at_s

    def _new(self, job: JobSubmitted) -> Controller:
        return Controller(
            job,
            self._settings,
            policy=find_policy(job.spec.policy),
            stragglers=find_methods(job.spec),
        )

    def _handle(self, event: Event) -> tuple[Instruction, ...]:
        if self._controller is None and isinstance(event, JobSubmitted):
            self._controller = self._new(event)
            return self._controller.first_orders
        return self.controller.handle(event)

    def emit(self, event: Event) -> tuple[Instruction, ...]:
        """Pass a fact to the controller; return its instructions, already recorded."""
        if isinstance(event, NodeReported):
            with self._lock:
                self._telemetry.record_node(event.sample)
        instructions = self._handle(event)
        self._journal.append(event)
        self._recent.add(event, instructions)
        for instruction in instructions:
            if isinstance(instruction, Remember):
                self._memory.remember(instruction)
            elif isinstance(instruction, Scale):
                self.last_decision = instruction.decision
        if self._journal.is_due:
            self._begin_segment()
        return instructions

    def _begin_segment(self) -> None:
        """Begin another segment of the journal with the present state."""
        try:
            with self._lock:
                telemetry = self._telemetry.state
            state = master_snapshot.pack(self.controller, telemetry, self._recent)
        except WireError as error:  # a policy of another package may hold anything
            logger.warning("the journal of job %s grows: %s", self._job, error)
            self._journal.cannot_begin()
        else:
            self._journal.begin_segment(state)

    def replay(self, on_progress: Callable[[str], None] = unheard) -> None:
        """Continue as an earlier master: from the newest snapshot that can be read, and the events after it.

        Parameters
        ----------
        on_progress
            Called with what is read and how far that is, in words.
        """
        unread = self._restored(segments(self._folder))
        n_done, n_all = 0, sum(segment.n_byte for segment in unread)

        def on_read(n_byte: int) -> None:
            nonlocal n_done
            n_done += n_byte
            on_progress(f"reads its journal: {n_done / 1e6:,.0f} of {max(n_done, n_all) / 1e6:,.0f} MB")

        damaged = list[int]()
        on_read(0)
        for segment in unread:
            for event in read_journal(segment.events, on_read, damaged.append):
                self._replay(event)
        self.losses = self._losses(len(damaged))
        if self.is_submitted:
            self._memory.continue_run(self.controller.job.spec, self.controller.submitted_at_s)
        for order in self._recent.remembered:
            self._memory.remember(order)
        if self.is_submitted and self._journal.is_closed:
            self._begin_segment()

    def _losses(self, n_damaged: int) -> str:
        if not self.is_submitted:
            return f"the journal in {self._folder} is gone or damaged: story and decisions so far are lost"
        if not n_damaged:
            return ""
        lines = "1 line" if n_damaged == 1 else f"{n_damaged} lines"
        return (
            f"{lines} of the journal in {self._folder} cannot be read: what they told is missing in the "
            "story, and so is a decision where one of them held it"
        )

    def _restored(self, written: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Restore the newest snapshot that can be read; return the segments whose events follow it.

        Where none can, these are all: the first of a job begins with its submission.
        """
        for i in reversed(range(len(written))):
            if written[i].number == 0 or self._restore(written[i]):
                self._journal.begun_with(written[i].number)
                return written[i:]
        return written

    def _restore(self, segment: Segment) -> bool:
        try:
            restored = master_snapshot.unpack(read_snapshot(segment.snapshot), self._new)
        except DlroverError as error:
            logger.warning("job %s continues from an earlier snapshot: %s", self._job, error)
            return False
        self._controller, self._recent = restored.controller, restored.recent
        self._telemetry.restore(restored.telemetry)
        return True

    def _replay(self, event: Event) -> None:
        if self._controller is None and not isinstance(event, JobSubmitted):
            return  # the submission cannot be read: nothing can follow from what came after it
        self._recent.replay(event, self._telemetry)
        try:
            self._recent.add(event, self._handle(event))
        except DlroverError as error:  # it was not refused then: an event before it cannot be read
            logger.warning(
                "job %s: %s at %s is left out: %s", self._job, type(event).__name__, event.at_s, error
            )

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

    @property
    def mean_ages(self) -> MeanAges | None:
        """Mean ages of the job's gradients; None: none were counted."""
        with self._lock:
            return self._telemetry.mean_ages

    def close(self) -> None:
        """Close journal and history; compress the journal of a job that has ended."""
        self._journal.close()
        self._memory.close()
        if self._controller is not None and self._controller.is_ended:
            compress(self._folder)
