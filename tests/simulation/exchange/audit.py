"""The auditor of a job with real nodes: it counts updates, and rows by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.exchange.steps import StepAccount
from simulation.own.audit import OwnAudit
from simulation.promises import PromiseBrokenError

if TYPE_CHECKING:
    from simulation.exchange.world import ExchangeWorld


class ExchangeAudit(OwnAudit):
    """Follows one job, and its account of updates."""

    _world: ExchangeWorld

    def _check_rows(self) -> None:
        world, now = self._world, self._world.now
        if world.account.wrong:
            raise world.account.wrong[0]
        if world.account.is_gathered:
            return  # workers count what servers have not applied yet
        if now is self._world.seen[-1] and now.running and now.at_s == world.at_s:
            n_learnt = sum(bool(world.account.applied[row]) for row in range(world.case.n_train))
            if now.train.n_sample_done > n_learnt:
                words = f"{now.train.n_sample_done} rows count as trained, the servers were taught {n_learnt}"
                raise PromiseBrokenError("rows count that were not trained", words)

    def _check_success(self) -> None:
        world, end = self._world, self._world.now
        rows = range(world.case.n_train)
        if isinstance(world.account, StepAccount):
            if world.account.n_step_seen + 1 != len(world.account.after):
                words = f"{world.account.n_step_seen} of {len(world.account.after) - 1} steps were saved last"
                raise PromiseBrokenError("steps are missing", words)
        elif missing := [row for row in rows if not world.account.applied[row]]:
            raise PromiseBrokenError("rows are missing", f"{len(missing)} rows, as {missing[0]}")
        if end.train.n_sample_done != len(rows):
            raise PromiseBrokenError("the count is wrong", f"{end.train} of {len(rows)} rows")
