"""The auditor of an own job: it counts what parameter servers were taught, and keeps an account of its own of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.job_audit import JobAudit
from simulation.promises import PromiseBrokenError
from support.driver.damaged_world import WAY_OUT

from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from simulation.own.world import OwnWorld

LEAST_LOSSES = 6  # of nodes, before a job may give up


class OwnAudit(JobAudit):
    """Follows one own job."""

    _world: OwnWorld

    def _check_rows(self) -> None:
        world, now = self._world, self._world.now
        if world.account.wrong:
            raise PromiseBrokenError("rows were trained twice", world.account.wrong[0])
        n_learnt = len(world.learnt.keys() | world.untrained)
        if (
            now is self._world.seen[-1]
            and now.running
            and now.at_s == world.at_s
            and now.train.n_sample_done > n_learnt
        ):
            words = f"{now.train.n_sample_done} rows count as trained, the servers were taught {n_learnt}"
            raise PromiseBrokenError("rows count that were not trained", words)

    # the end

    def at_end(self) -> None:
        """Check what holds of a job that has ended."""
        world, end = self._world, self._world.now
        self._check_rows()
        if any(node.is_alive and name not in world.unreachable for name, node in world.nodes.items()):
            raise PromiseBrokenError("nodes are left", str(world.living))
        match end.phase:
            case JobPhase.SUCCEEDED:
                self._check_success()
            case JobPhase.STOPPED if self.stopped_by:
                pass
            case JobPhase.FAILED if WAY_OUT.search(end.message) and self.damages:
                pass
            case JobPhase.FAILED if self.may_be_refused(end.message):
                pass
            case JobPhase.FAILED if "keep failing" in end.message and world.n_loss >= LEAST_LOSSES:
                pass
            case _:
                raise PromiseBrokenError(f"the job {end.phase}", end.message)

    def _check_success(self) -> None:
        world, end = self._world, self._world.now
        rows = {(epoch, row) for epoch in range(world.job.n_epoch) for row in range(world.rows.n_train)}
        missing = rows - world.learnt.keys() - world.untrained - world.skipped
        if missing:
            raise PromiseBrokenError("rows are missing", f"{len(missing)} rows, as {min(missing)}")
        n_skipped = end.train.n_sample_skipped
        if end.train.n_sample_done + n_skipped != len(rows) or (n_skipped and not world.skipped):
            raise PromiseBrokenError("the count is wrong", f"{end.train} of {len(rows)} rows")
        held = world.held()
        if held != {e * world.rows.n_train + row: n for (e, row), n in world.learnt.items()}:
            raise PromiseBrokenError(
                "servers hold other rows", f"{len(held)} rows held, {len(world.learnt)} taught"
            )
