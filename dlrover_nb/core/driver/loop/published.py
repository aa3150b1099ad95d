"""Data published by a driver to other threads: frozen records, replaced whole, so no lock is needed.

A snapshot is published when it is due, at once when something that others wait for has changed (`Awaited`),
and before an answer that it must show. Rejected: one at every change, as one of 1,000 nodes takes 20 ms to
build, and nodes report all the time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.controller.controller import Controller
    from dlrover_nb.core.driver.loop.job_snapshot import Run
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


class Awaited(NamedTuple):
    """What others wait for, as `core.client.until` has it: quick to compare, and seldom another.

    Attributes
    ----------
    phase, running, under_way
        Of the job, the plan that runs, and the one that was ordered and is not in place yet.
    has_trained
        Whether there was a first step.
    proposal, mitigation, measuring
        Ids of the open proposal, of the open action against stragglers, and of the decision whose plan is
        being measured; each is empty while there is none.
    """

    phase: JobPhase
    running: ResourcePlan | None
    under_way: ResourcePlan | None
    has_trained: bool
    proposal: str
    mitigation: str
    measuring: str


class PublishedState:
    """The newest snapshot of a job, and the plan queries that go with it.

    Parameters
    ----------
    master, controller
        Of the job; for its loop's thread alone.
    build
        Returns a snapshot of them, given the last known loss.

    Attributes
    ----------
    snapshot
        The newest snapshot.
    queries
        Answers questions about plans.
    """

    def __init__(
        self, master: Run, controller: Controller, build: Callable[[float | None], JobSnapshot]
    ) -> None:
        self._master, self._controller, self._build = master, controller, build
        self._shown = self._awaited(has_trained=False)
        self.snapshot, self.queries = build(None), controller.queries()

    @property
    def is_outdated(self) -> bool:
        """Whether something that others wait for is not as published."""
        return self._awaited(has_trained=self._shown.has_trained) != self._shown

    def publish(self) -> None:
        """Replace what other threads read."""
        self._shown = self._awaited(has_trained=self._shown.has_trained)
        self.snapshot, self.queries = self._build(self.snapshot.loss), self._controller.queries()

    def end(self, why: str, at_s: float) -> None:
        """Mark the last snapshot as that of a failed job, unless it is that of an end."""
        if not self.snapshot.phase.is_final:
            self.snapshot = replace(
                self.snapshot, phase=JobPhase.FAILED, message=why, ended_at_s=at_s, running=None
            )

    def _awaited(self, *, has_trained: bool) -> Awaited:
        """Return what others wait for now; steps are not counted once there was one."""
        master, brief = self._master, self._controller.brief()
        return Awaited(
            master.phase,
            master.running,
            self._controller.under_way,
            has_trained or master.train_counts.n_sample_done > 0,
            "" if brief.opened is None else brief.opened.id,
            "" if brief.mitigation is None else brief.mitigation.id,
            brief.measuring,
        )
