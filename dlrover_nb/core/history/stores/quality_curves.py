"""`CurveStore`: what older gradients cost in quality, of jobs and of rehearsals, for later jobs like them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy import delete, select

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.rows import record_from
from dlrover_nb.core.history.tables import quality_curves
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.views.past_jobs import JobCurve

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import Select

_log = logging.getLogger(__name__)


class CurveStore(Store):
    """Curves, each with the job that it is of. A curve of one job, moment and way is kept once."""

    def add(self, new: JobCurve) -> None:
        """Keep a curve, over one of the same job, moment and way."""
        curve, traits = new.curve, new.traits
        row = {
            "job": new.job[:64],
            "at_s": new.at_s,
            "way": curve.way[:32],
            "origin": str(curve.origin),
            "model": traits.model[:64],
            "optimizer": curve.optimizer[:64],
            "data_hash": traits.data_hash[:64],
            "batch_size": curve.batch_size,
            "learning_rate": curve.learning_rate,
            "record": to_json(new).decode(),
        }
        self._database.upsert(quality_curves, row, update=True)

    def curves_of(self, job: str, *, limit: int = 100) -> tuple[JobCurve, ...]:
        """Return the curves of all runs and rehearsals of a job, by its name, newest first."""
        return self._read(select(quality_curves.c.record).where(quality_curves.c.job == job[:64]), limit)

    def curves(self, *, optimizer: str | None = None, limit: int = 300) -> tuple[JobCurve, ...]:
        """Return the newest curves of all jobs, newest first; of one optimizer where it is given.

        `core.warmstart.curves_of_job` chooses among them those of jobs like another one.
        """
        query = select(quality_curves.c.record)
        if optimizer is not None:
            query = query.where(quality_curves.c.optimizer == optimizer[:64])
        return self._read(query, limit)

    def drop(self, job: str) -> int:
        """Forget the curves of a job; return how many."""
        with self._database.writing() as connection:
            return connection.execute(delete(quality_curves).where(quality_curves.c.job == job[:64])).rowcount

    def _read(self, query: Select[Any], limit: int) -> tuple[JobCurve, ...]:
        """Return records, newest first; one that cannot be read is left out, and logged."""
        _check.at_least("limit", limit, 1)
        c, read = quality_curves.c, []
        for row in self._database.rows(query.order_by(c.at_s.desc(), c.job, c.way).limit(limit)):
            try:
                read.append(record_from(row.record, JobCurve))
            except BackendError as error:
                _log.warning("a curve of quality in the history is not used: %s", error)
        return tuple(read)
