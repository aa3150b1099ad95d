"""What mini-batches of a program cost on each kind of device, for later jobs of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy import select

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.rows import record_from
from dlrover_nb.core.history.tables import batch_costs
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.training.batch_cost import ProgramCost

if TYPE_CHECKING:
    from dlrover_nb.core.history.database import Database
    from dlrover_nb.core.structs.training.batch_cost import BatchCost

_log = logging.getLogger(__name__)


def add(database: Database, new: ProgramCost) -> None:
    """Keep a measurement over an older one of its program and kind of device.

    A master that continues from its journal writes its own again; those of later jobs stay.
    """
    cost, c = new.cost, batch_costs.c
    key = {"program": new.program[:64], "device": cost.device[:160]}
    is_newer = c.at_s > cost.at_s
    if database.rows(select(c.at_s).where(c.program == key["program"], c.device == key["device"], is_newer)):
        return
    row = {**key, "at_s": cost.at_s, "job": cost.job[:64], "record": to_json(new).decode()}
    database.upsert(batch_costs, row, update=True)


class BatchCostStore(Store):
    """Costs of mini-batches, as `HistoryStore.remember` keeps them."""

    def costs(self, program: str, *, limit: int = 100) -> tuple[BatchCost, ...]:
        """Return the newest measurement of a program on each kind of device, newest first."""
        _check.at_least("limit", limit, 1)
        c, read = batch_costs.c, []
        query = select(c.record).where(c.program == program[:64]).order_by(c.at_s.desc(), c.device)
        for row in self._database.rows(query.limit(limit)):
            try:
                read.append(record_from(row.record, ProgramCost).cost)
            except BackendError as error:
                _log.warning("a cost of mini-batches in the history is not used: %s", error)
        return tuple(read)
