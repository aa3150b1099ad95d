"""The auditor of an external job: it counts what its programs trained, and who of them got rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.job_audit import JobAudit
from simulation.promises import PromiseBrokenError
from support.driver.damaged_world import WAY_OUT

from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from simulation.external.world import ExternalWorld

LEAST_LOSSES = 3  # of nodes of one role, before a job may give up


class ExternalAudit(JobAudit):
    """Follows one external job."""

    _world: ExternalWorld

    def _check_rows(self) -> None:
        world, now = self._world, self._world.now
        if world.account.wrong:
            raise PromiseBrokenError("rows were trained twice", world.account.wrong[0])
        if world.wrong:
            raise PromiseBrokenError("a dead generation takes part", world.wrong[0])
        if now.train.n_sample_done - now.train.n_sample_skipped > len(world.learnt):
            words = f"{now.train.n_sample_done} rows count as trained, {len(world.learnt)} were"
            raise PromiseBrokenError("rows count that were not trained", words)

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
            case JobPhase.FAILED if "keep failing" in end.message and world.n_loss >= LEAST_LOSSES:
                pass
            case _:
                raise PromiseBrokenError(f"the job {end.phase}", end.message)

    def _check_success(self) -> None:
        world, end = self._world, self._world.now
        rows = {(epoch, row) for epoch in range(world.spec.n_epoch) for row in range(world.case.n_row)}
        missing = rows - world.learnt.keys() - world.skipped
        if missing:
            raise PromiseBrokenError("rows are missing", f"{len(missing)} rows, as {min(missing)}")
        if end.train.n_sample_done + end.train.n_sample_skipped != len(rows):
            raise PromiseBrokenError("the count is wrong", f"{end.train} of {len(rows)} rows")
