"""What a driver shows to other threads: frozen records, exchanged whole, so that nobody needs a lock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.job import JobPhase

if TYPE_CHECKING:
    from dlrover_nb.core.controller import PlanQueries
    from dlrover_nb.core.structs.snapshot import JobSnapshot


class PublishedState:
    """The newest picture of a job, and the counsel that goes with it.

    Parameters
    ----------
    job
        The job's name.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._snapshot: JobSnapshot | None = None
        self._counsel: PlanQueries | None = None

    @property
    def snapshot(self) -> JobSnapshot:
        """The newest picture; `BackendError` before the first."""
        if self._snapshot is None:
            raise BackendError(f"job {self._job} has not begun; call start first")
        return self._snapshot

    @property
    def counsel(self) -> PlanQueries:
        """What the controller knows about plans; `BackendError` before the first picture."""
        if self._counsel is None:
            raise BackendError(f"job {self._job} has not begun; call start first")
        return self._counsel

    @counsel.setter
    def counsel(self, counsel: PlanQueries) -> None:
        self._counsel = counsel

    @property
    def loss(self) -> float | None:
        """The last loss that was shown."""
        return self._snapshot.loss if self._snapshot else None

    def show(self, snapshot: JobSnapshot, counsel: PlanQueries) -> None:
        """Let all see this from now on."""
        self._snapshot, self._counsel = snapshot, counsel

    def end(self, why: str, at_s: float) -> None:
        """Make the last picture that of an end, when none could be drawn of it."""
        if not self.snapshot.phase.is_final:
            self._snapshot = replace(
                self.snapshot, phase=JobPhase.FAILED, message=why, ended_at_s=at_s, running=None
            )
