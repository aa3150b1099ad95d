"""The result of the verb `brain`: one round of planning for all jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.widgets.clusters import brain
from dlrover_nb.widgets.rows.columns import PLAN, through
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.brain import BrainRound, JobShare, QueuedJob
    from dlrover_nb.widgets.blocks import View

_ROUND: Columns[BrainRound] = Columns(fields("cluster by term number at_s took_s is_kept note"))
_SHARES: Columns[JobShare] = Columns(
    {
        **fields("job owner"),
        **through("now", PLAN),
        **fields(
            "meant=meant.short added_cores quota_cpu=quota.cpu quota_memory_mib=quota.memory_mib why refused"
        ),
    }
)
_APART: Columns[tuple[str, str]] = Columns(fields("job=0 why=1"))
_QUEUE: Columns[QueuedJob] = Columns(
    {
        **fields("job owner"),
        "place": lambda q: None if q.admitted else q.place.place,
        **fields(
            "asked=asked.short admitted=admitted.short starts_in_s=place.starts_in_s why=place.why refused"
        ),
    }
)


@dataclass(frozen=True, slots=True, repr=False)
class BrainView(Shown):
    """What every job of a cluster is meant to have."""

    newest: BrainRound

    def view(self) -> View:
        """Return the content."""
        return brain.brain_view(self.newest)

    def tables(self) -> Tables:
        """Return it as data."""
        tables = {
            "shares": _SHARES.table(self.newest.shares),
            "queue": _QUEUE.table(self.newest.queue),
            "apart": _APART.table(self.newest.apart),
        }
        return Tables(one(_ROUND, self.newest), tables, "shares")
