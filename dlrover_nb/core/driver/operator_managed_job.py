"""The driver of a foreign job whose pods DLRover's operator runs.

All is as for one in pods of our own, but that the master follows what the operator shows, and the backend is
told the plan instead of each node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.driver.backend import ExternalBackend
from dlrover_nb.core.driver.external_job import ExternalDriver
from dlrover_nb.core.external import ExternalMaster, OperatorManagedJob, OperatorManagedMaster
from dlrover_nb.core.structs.events import Scale

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.rundir.job_file import JobFile
    from dlrover_nb.core.structs.events import Event, Instruction
    from dlrover_nb.core.structs.external import StepsDone
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import ResourcePlan


class OperatorManagedBackend(ExternalBackend, Protocol):
    """What follows and re-scales a job of an operator, beyond what runs programs of others."""

    def aim(self, plan: ResourcePlan, decision: str) -> None:
        """Have the operator take the job to a plan; return at once; what it was asked is not asked again."""
        ...

    def seen(self) -> OperatorManagedJob | None:
        """Return the job as the operator shows it; None while nothing is known."""
        ...

    def node_of(self, pod: str) -> str:
        """Return which node a pod is, by its name."""
        ...


class OperatorManagedDriver(ExternalDriver):
    """Runs one foreign job under an operator; see `ExternalDriver`."""

    def __init__(  # noqa: PLR0913 - as `ExternalDriver`
        self,
        spec: JobSpec,
        backend: OperatorManagedBackend,
        *,
        folder: Path,
        history_url: str | None,
        clock: Clock,
        url: str,
        job: JobFile | None = None,
    ) -> None:
        self._operator, self._decision = backend, ""
        super().__init__(spec, backend, folder=folder, history_url=history_url, clock=clock, url=url, job=job)

    def report(self, told: StepsDone) -> None:
        """Hear from a program what it has done: it knows the name of its pod alone."""
        super().report(replace(told, node=self._operator.node_of(told.node)))

    def _new_master(self) -> ExternalMaster:
        self._operated = OperatorManagedMaster(self.spec, self._capacity)
        return self._operated

    def _see_pods(self, at_s: float) -> None:
        seen = self._operator.seen()
        if seen is None:
            return
        before = {node.id for node in self._master.nodes}
        self._carry_out(self._operated.see_job(seen, at_s))
        for node in sorted(before - {each.id for each in seen.nodes}):
            self._words.see_gone(node, at_s)
        if not self._master.phase.is_final:
            self._operator.aim(self._master.target, self._decision)

    def _tell(self, event: Event) -> tuple[Instruction, ...]:
        instructions = super()._tell(event)
        self._decision = next((i.decision for i in instructions if isinstance(i, Scale)), self._decision)
        return instructions
