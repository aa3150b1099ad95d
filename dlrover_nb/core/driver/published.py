"""Data published by a driver to other threads: frozen records, replaced whole, so no lock is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job import JobPhase

if TYPE_CHECKING:
    from dlrover_nb.core.controller import PlanQueries
    from dlrover_nb.core.structs.snapshot import JobSnapshot


class PublishedState:
    """The newest snapshot of a job, and the plan queries that go with it.

    Parameters
    ----------
    snapshot, queries
        The first ones.

    Attributes
    ----------
    snapshot
        The newest snapshot.
    queries
        Answers questions about plans.
    """

    def __init__(self, snapshot: JobSnapshot, queries: PlanQueries) -> None:
        self.snapshot, self.queries = snapshot, queries

    def publish(self, snapshot: JobSnapshot, queries: PlanQueries) -> None:
        """Replace what other threads read."""
        self.snapshot, self.queries = snapshot, queries

    def end(self, why: str, at_s: float) -> None:
        """Mark the last snapshot as that of a failed job, unless it is that of an end."""
        if not self.snapshot.phase.is_final:
            self.snapshot = replace(
                self.snapshot, phase=JobPhase.FAILED, message=why, ended_at_s=at_s, running=None
            )
