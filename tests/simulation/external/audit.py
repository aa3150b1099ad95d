"""The auditor of an external job: it counts what its programs trained, and who of them got rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.job_audit import JobAudit
from simulation.promises import PromiseBrokenError
from support.driver.damaged_world import WAY_OUT

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase

if TYPE_CHECKING:
    from simulation.external.world import ExternalWorld

SAID_AFTER_S = 60.0  # for whom programs wait
LEAST_LOSSES = 3  # of nodes of one role, before a job may give up


class ExternalAudit(JobAudit):
    """Follows one external job."""

    _world: ExternalWorld

    def _check_rows(self) -> None:
        world, now = self._world, self._world.now
        if world.account.wrong:
            raise PromiseBrokenError("rows were trained twice", world.account.wrong[0])
        if world.states.wrong:
            raise PromiseBrokenError("rows were trained twice", world.states.wrong[0])
        if world.states.other_accounts:
            words = world.states.other_accounts[0]
            raise PromiseBrokenError("a checkpoint counts other rows than its parameters have", words)
        if world.copies.wrong:
            raise PromiseBrokenError("an older checkpoint is loaded", world.copies.wrong[0])
        if world.wrong:
            raise PromiseBrokenError("a dead generation takes part", world.wrong[0])
        if now.train.n_sample_done - now.train.n_sample_skipped > len(world.learnt):
            words = f"{now.train.n_sample_done} rows count as trained, {len(world.learnt)} were"
            raise PromiseBrokenError("rows count that were not trained", words)

    def _check_progress(self) -> None:
        super()._check_progress()
        world, now = self._world, self._world.now
        since_s = [at_s for name, at_s in world.waits_since_s.items() if world.pods[name].is_alive]
        if not since_s or world.elapsed_s < max(*since_s, world.master_since_s) + SAID_AFTER_S:
            return
        phases = {node.id: node.phase for node in now.nodes if node.role is Role.WORKER}
        is_said = any("training waits for" in line for line in now.story)
        if (
            phases.keys() > world.waits_since_s.keys()
            and NodePhase.PENDING not in phases.values()
            and not is_said
        ):
            raise PromiseBrokenError("it does not say for whom it waits", f"{sorted(since_s)}, {now.message}")

    def at_end(self) -> None:
        world, end = self._world, self._world.now
        self._check_rows()
        if left := [
            name for name, pod in world.pods.items() if pod.is_alive and name not in world.unreachable
        ]:
            raise PromiseBrokenError("nodes are left", str(left))
        match end.phase:
            case JobPhase.SUCCEEDED:
                self._check_success()
            case JobPhase.STOPPED if self.stopped_by:
                pass
            case JobPhase.FAILED if WAY_OUT.search(end.message) and self.damages:
                pass
            case JobPhase.FAILED if self.may_be_refused(end.message):
                pass
            case JobPhase.FAILED if "the same error ended" in end.message and world.case.poison:
                pass
            case JobPhase.FAILED if "keep failing" in end.message and world.n_loss >= LEAST_LOSSES:
                pass
            case _:
                raise PromiseBrokenError(f"the job {end.phase}", end.message)

    def _check_success(self) -> None:
        world, end = self._world, self._world.now
        rows = {(epoch, row) for epoch in range(world.spec.n_epoch) for row in range(world.case.n_row)}
        learnt = (
            [world.states.rows[end] for end in world.states.ends]
            if world.keeps_states
            else [set(world.learnt)]
        )
        missing = set().union(*(rows - each for each in learnt or [set()])) - world.skipped
        if missing:
            raise PromiseBrokenError("rows are missing", f"{len(missing)} rows, as {min(missing)}")
        if end.train.n_sample_done + end.train.n_sample_skipped != len(rows):
            raise PromiseBrokenError("the count is wrong", f"{end.train} of {len(rows)} rows")
