"""The result of `rehearse`: what staleness costs, as text, picture and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.widgets.past import rehearsal
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one

if TYPE_CHECKING:
    from dlrover_nb.core.rehearsal.rehearsal import Rehearsal
    from dlrover_nb.core.rehearsal.runs import Run
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.past.rehearsal import PointRow

_HEAD: Columns[Rehearsal] = Columns(
    fields("job n_row n_held_out n_epoch=settings.n_epoch n_seed n_update overlap holds_out_own cpu_s")
)
_POINTS: Columns[PointRow] = Columns(
    fields("way n_worker age auc auc_low auc_high loss loss_low loss_high n_seed n_update base_auc base_loss")
)
_RUNS: Columns[Run] = Columns(fields("way n_worker=delay.n_worker seed age auc loss n_update n_skipped"))


@dataclass(frozen=True, slots=True, repr=False)
class RehearsalView(Shown):
    """What older gradients cost a job; ``result`` holds each run and the curves."""

    result: Rehearsal

    @property
    def points(self) -> tuple[PointRow, ...]:
        """The change of AUC and loss at each number of workers, with 90 % intervals."""
        return rehearsal.point_rows(self.result)

    def view(self) -> View:
        """Return the content."""
        return rehearsal.rehearsal_view(self.result)

    def tables(self) -> Tables:
        """Return it as data: a row for each number of workers and way, and one for each run."""
        tables = {"points": _POINTS.table(self.points), "runs": _RUNS.table(self.result.runs)}
        return Tables(one(_HEAD, self.result), tables, "points")
